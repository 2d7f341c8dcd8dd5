"""A source over a repeatable iterable. The offset of a record is its index.

A split is named ``"index/count"``, because the number of splits decides which records each gets: an offset in split 0
of 2 means nothing in split 0 of 4.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, islice, repeat
from typing import Any, Generic, TypeVar

from tailrace.connector import Reader, ReadT, Record, SplitStart
from tailrace.errors import NotRepeatable, OptionError, shorten
from tailrace.runtime.connectors.fingerprint import describe, matches
from tailrace.runtime.connectors.read_ahead import LATER_NS, InMemory, Values, values_of

T = TypeVar("T")
Splitter = Callable[[int, int], Iterable[T]]

_SLICED = (list, tuple, range, str, bytes)
_record: Callable[[Iterable[Any]], Record] = partial(tuple.__new__, Record)  # half the cost of calling Record
_END = object()


@dataclass(frozen=True)
class IterableSource(Generic[ReadT]):
    """See ``from_iterable``."""

    values: Splitter[ReadT] | Sequence[ReadT]
    replayable: bool = True

    def splits(self, tasks: int) -> Sequence[str]:
        return split_names(tasks)

    def open(self, start: SplitStart) -> Reader[ReadT]:
        return IterableReader(resume(self.values, start), start.offset)


class IterableReader:
    """Reads the rest of an iterator as fast as it is polled."""

    def __init__(self, values: Values, offset: int) -> None:
        self._values = values
        self._next = offset
        self.wake_by = values.wake_by
        self.close = values.close

    def poll(self, limit: int, now_ns: int) -> Sequence[Record]:
        values = self._values.take(limit)
        records = list(map(_record, zip(count(self._next), repeat(0), values, strict=False)))
        self._next += len(records)
        return records

    @property
    def ready_ns(self) -> int:
        return LATER_NS if self._values.waits else 0

    @property
    def may_follow(self) -> bool:
        return self._values.may_follow

    @property
    def done(self) -> bool:
        return self._values.ended


def from_iterable(values: Splitter[T] | Sequence[T]) -> IterableSource[T]:
    """Read a list, tuple or range, or what a function gives for each split, as fast as the topology takes it.

    Args:
        values: a sequence, whose elements are divided among the source's tasks; or a function of ``(split, splits)``
            that returns an iterable for split number ``split`` of ``splits``, one for each task. A second call with
            the same numbers must give the same records in the same order; after a crash this is checked where it can
            be. A generator may wait for its records: a thread of its own reads it.

    Example:
        >>> from collections.abc import Iterator
        >>> def numbers(split: int, splits: int) -> Iterator[int]:
        ...     yield from range(split, 100, splits)
        >>> tr.Topology("numbers").source("numbers", tr.from_iterable(numbers), tasks=2)
        Stream(numbers.main)
    """
    check_splitter(values, "from_iterable")
    return IterableSource(values)


def check_splitter(values: Any, connector: str) -> None:
    """Raise OptionError for arguments that would otherwise fail only in a worker."""
    if isinstance(values, (list, tuple, range)):
        return
    if not callable(values):
        raise OptionError(
            f"not a function or a sequence: {connector}={shorten(values)} type={type(values).__name__}, "
            "is it an iterator that can be read only once?"
        )
    try:
        signature = inspect.signature(values)
    except (TypeError, ValueError):  # some builtins have none
        return
    try:
        signature.bind(0, 1)
    except TypeError:
        name = getattr(values, "__name__", type(values).__name__)
        raise OptionError(
            f"function does not take (split, splits): {connector}={name}{signature}, "
            "did you forget the two arguments that say which part to read?"
        ) from None


def split_names(tasks: int) -> list[str]:
    """Names of as many splits as there are tasks. ``split_numbers`` reads them."""
    return [f"{index}/{tasks}" for index in range(tasks)]


def split_numbers(name: str) -> tuple[int, int]:
    """Index and count of the split called ``name``."""
    index, slash, splits = name.partition("/")
    if slash and index.isdecimal() and splits.isdecimal() and int(index) < int(splits):
        return int(index), int(splits)
    raise OptionError(f"not the name of a split: split={name!r}, was the checkpoint written by another source?")


def resume(values: Splitter[Any] | Sequence[Any], start: SplitStart) -> Values:
    """The values from ``start.offset`` on. Raises NotRepeatable if the value before it has changed.

    An iterator that may block is checked in the thread that reads it, so that opening the source does not block.
    """
    index, splits = split_numbers(start.split)
    part = values(index, splits) if callable(values) else values[index::splits]
    if start.offset and isinstance(part, _SLICED):
        before = part[start.offset - 1 : start.offset]
        _check_repeatable(start, before[0] if before else _END)
        return InMemory(iter(part[start.offset :]))
    return values_of(_iterator(part), start.split, partial(_skip, start))


def _skip(start: SplitStart, values: Iterator[Any]) -> None:
    if start.offset:
        deque(islice(values, start.offset - 1), maxlen=0)
        _check_repeatable(start, next(values, _END))


def _iterator(part: Any) -> Iterator[Any]:
    try:
        return iter(part)
    except TypeError:
        raise OptionError(
            f"function did not return an iterable: returned={shorten(part)} type={type(part).__name__}, "
            "did you forget to return or yield?"
        ) from None


def _check_repeatable(start: SplitStart, last: Any) -> None:
    if last is _END:
        now = "the end"
    elif start.last is None or matches(start.last, last):
        return
    else:
        now = shorten(last)
    before = "a record" if start.last is None else shorten(describe(start.last))
    raise NotRepeatable(
        f"source gave something else when read again: split={start.split} offset={start.offset - 1} "
        f"before={before} now={now}, is the function given to from_iterable repeatable?"
    )
