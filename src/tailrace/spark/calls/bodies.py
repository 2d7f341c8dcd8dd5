"""The function of a step inside a task: a function, a coroutine function, or an object of a class."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from pyspark import TaskContext

from tailrace.errors import OptionError, shorten
from tailrace.policy.signatures import misfit
from tailrace.runtime.worker.opening import Context
from tailrace.topology.body import is_async, is_factory


def check_function(body: Any, what: str, several: bool) -> None:
    """Refuse what can be seen to fail at the first row.

    Args:
        body: the function, or class with a ``process`` method.
        what: the name of the step, for errors.
        several: whether it may take more values than one.
    """
    if not callable(body):
        hint = "the class, so that each task has its own object" if hasattr(body, "process") else "a function"
        raise OptionError(f"not a function: {what}={shorten(body)}: did you mean {hint}?")
    if isinstance(body, type) and not is_factory(body):
        raise OptionError(
            f"a class has no process method: {what}={body.__qualname__}: did you forget to define process(self, …)?"
        )
    code = getattr(body, "process", body)
    if inspect.isasyncgenfunction(code):
        raise OptionError(
            f"an async generator gives no single result: {what}={name_of(body)}: "
            "could it be an async function that returns a list?"
        )
    if is_factory(body):
        signature = misfit(body, 0)
        if signature is not None:
            raise OptionError(
                f"a class is called without arguments, once a task, and wants some: {what}={name_of(body)} "
                f"signature={signature}: did you mean functools.partial({name_of(body)}, …)?"
            )
    else:
        signature = misfit(body, 1)
        wants_more = misfit(body, 0) is not None
        if signature is not None and not (several and wants_more):
            raise OptionError(
                f"a function does not take what it will be given: {what}={name_of(body)} arguments=1 "
                f"signature={signature}: did you mean def f(value)?"
            )


def name_of(body: Any) -> str:
    """The name of a function, without the place where it was defined."""
    while hasattr(body, "func"):
        body = body.func
    return str(getattr(body, "__name__", type(body).__name__)).strip("<>")


def qualified_name_of(body: Any) -> str:
    """The name of a function, with the module and the place where it was defined."""
    while hasattr(body, "func"):
        body = body.func
    named = body if hasattr(body, "__name__") else type(body)
    return f"{getattr(named, '__module__', None)}.{getattr(named, '__qualname__', named.__name__)}"


def parameters_of(body: Any) -> list[str]:
    """The names of what a function takes for each row, by place; empty if it does not say."""
    target = body
    while hasattr(target, "func"):
        target = target.func
    if isinstance(target, type):
        target, skipped = target.process, 1  # type: ignore[attr-defined]
    else:
        skipped = 0
    try:
        found = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return []
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [one.name for one in found if one.kind in places][skipped:]


class Body:
    """A function that is ready to be called, and what is to be done before and after.

    ``open`` and ``close`` of a class may be coroutine functions. ``open`` may take a ``tr.Context``.
    """

    def __init__(self, body: Any, name: str) -> None:
        self.asynchronous = is_async(body)
        self._object = body() if is_factory(body) else None
        self._name = name
        self.function: Callable[..., Any] = body if self._object is None else self._object.process

    async def open(self) -> None:
        opening = getattr(self._object, "open", None)
        if opening is None:
            return
        given = (_context(self._name),) if misfit(opening, 1) is None else ()
        await _settle(opening(*given))

    async def close(self) -> None:
        closing = getattr(self._object, "close", None)
        if closing is not None:
            await _settle(closing())

    @property
    def has_steps(self) -> bool:
        """Whether there is anything to open or close."""
        return hasattr(self._object, "open") or hasattr(self._object, "close")

    def open_now(self) -> None:
        """Open where there is no event loop."""
        if self.has_steps:
            asyncio.run(self.open())

    def close_now(self) -> None:
        if self.has_steps:
            asyncio.run(self.close())


async def _settle(result: Any) -> None:
    if inspect.isawaitable(result):
        await result


def _context(name: str) -> Context:
    """The place of this task. How many there are, only the driver knows."""
    task = TaskContext.get()
    number, attempt = (0, 0) if task is None else (task.partitionId(), task.attemptNumber())
    return Context(operator=name, task=number, tasks=0, worker=number, epoch=attempt, name=name, job_id="")
