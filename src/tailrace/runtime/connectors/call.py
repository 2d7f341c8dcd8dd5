"""A function or a class as a sink: called once per row, at least once after a crash.

Nothing is committed, so the rows of a root that is re-emitted are passed again. Use a committing sink, or make the call
idempotent, where that matters.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

from tailrace.connector import SinkContext, Writer, WrittenT
from tailrace.errors import OptionError, shorten
from tailrace.topology import Processor, is_async, is_factory

T = TypeVar("T")


@dataclass(frozen=True)
class CallSink(Generic[WrittenT]):
    """See ``to_call``."""

    target: Callable[..., Any]
    committing: bool = False

    def open(self, context: SinkContext) -> Writer[WrittenT]:
        return CallWriter(self.target, context)


class CallWriter:
    """Passes every row to the user's function, or to this task's instance of the user's class."""

    write: Callable[[Any], Any]  # an attribute rather than a method: one call less per row

    def __init__(self, target: Callable[..., Any], context: SinkContext) -> None:
        self.write = target
        self._close: Callable[[], Any] | None = None
        if is_factory(target):
            instance: Any = target()
            if hasattr(instance, "open"):
                instance.open(context)
            self.write = instance.process
            self._close = getattr(instance, "close", None)

    def close(self) -> None:
        if self._close is not None:
            self._close()


@overload
def to_call(target: Callable[[], Processor[T, object]]) -> CallSink[T]: ...


@overload
def to_call(target: Callable[[T], object]) -> CallSink[T]: ...


def to_call(target: Callable[..., Any]) -> CallSink[Any]:
    """Call a function for every row, **at least once**.

    Args:
        target: a function of one row; or a class with ``process(self, row)``, or a ``functools.partial`` of one, of
            which each task gets an instance. ``open(self, context)`` and ``close(self)`` are called if it has them.

    Example:
        >>> numbers = tr.Topology("numbers").source("numbers", tr.from_iterable(range(10)))
        >>> numbers.sink("out", tr.to_call(print))
    """
    if not callable(target):
        raise OptionError(
            f"not callable: to_call={shorten(target)} type={type(target).__name__}, did you call the function already?"
        )
    if inspect.isclass(target) and not is_factory(target):
        raise OptionError(f"class has no process method: to_call={target.__name__}, did you mean a function?")
    if is_async(target):
        name = getattr(target, "__name__", shorten(target))
        raise OptionError(f"function is async: to_call={name}, did you mean an async map before the sink?")
    return CallSink(target)
