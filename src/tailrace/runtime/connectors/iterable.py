"""A repeatable iterable is a source: the offset of a record is its index.

A split is named ``"index/count"``, because another number of splits deals the records out differently: an offset
of split 0 of 2 means nothing in split 0 of 4.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, islice, repeat
from typing import Any

from tailrace.clock import system_clock
from tailrace.connector import Record, SplitStart
from tailrace.errors import NotRepeatable, OptionError, shorten
from tailrace.runtime.connectors.fingerprint import describe, matches

Splitter = Callable[[int, int], Iterable[Any]]

_SLICED = (list, tuple, range, str, bytes)
_record: Callable[[Iterable[Any]], Record] = partial(tuple.__new__, Record)  # half the cost of calling Record
_END = object()
_IN_MEMORY: tuple[type[Any], ...] = (type(iter([])), type(iter(())), type(iter(range(0))))
_QUICKLY_NS = 500_000  # about as long as a task works before what it has sent leaves


@dataclass(frozen=True)
class IterableSource:
    """See ``from_iterable``."""

    values: Splitter | Sequence[Any]
    replayable: bool = True

    def splits(self, tasks: int) -> Sequence[str]:
        return split_names(tasks)

    def open(self, start: SplitStart) -> IterableReader:
        return IterableReader(resume(self.values, start), start.offset)


class IterableReader:
    """Gives what is left of an iterator, as fast as it is asked for."""

    def __init__(self, values: Iterator[Any], offset: int) -> None:
        self._values = values
        self._next = offset
        self._done = False

    def poll(self, limit: int, now_ns: int) -> Sequence[Record]:
        values, self._done = pull(self._values, limit)
        records = list(map(_record, zip(count(self._next), repeat(0), values, strict=False)))
        self._next += len(records)
        return records

    @property
    def ready_ns(self) -> int:
        return 0

    @property
    def done(self) -> bool:
        return self._done

    def close(self) -> None:
        close_iterator(self._values)


def pull(values: Iterator[Any], limit: int) -> tuple[list[Any], bool]:
    """Up to ``limit`` values, and whether the iterator has ended.

    What lies in memory is taken at once. Of anything else only what comes quickly: a generator that waits for its
    records must not keep back those it has given.
    """
    if isinstance(values, _IN_MEMORY):
        taken = list(islice(values, limit))
        return taken, len(taken) < limit
    taken = []
    deadline_ns = system_clock() + _QUICKLY_NS
    for value in values:
        taken.append(value)
        if len(taken) >= limit or system_clock() >= deadline_ns:
            return taken, False
    return taken, True


def from_iterable(values: Splitter | Sequence[Any]) -> IterableSource:
    """Read ``values(split, splits)``, a repeatable iterable per split, or a list, tuple or range.

    There are as many splits as source tasks. Repeatable means that a second call with the same numbers gives the
    same records in the same order; after a crash this is checked where it can be.
    """
    check_splitter(values, "from_iterable")
    return IterableSource(values)


def check_splitter(values: Any, connector: str) -> None:
    """Refuse at construction what would fail only in a worker."""
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
    return [f"{index}/{tasks}" for index in range(tasks)]


def split_numbers(name: str) -> tuple[int, int]:
    """Index and count of the split called ``name``."""
    index, slash, splits = name.partition("/")
    if slash and index.isdecimal() and splits.isdecimal() and int(index) < int(splits):
        return int(index), int(splits)
    raise OptionError(f"not the name of a split: split={name!r}, was the checkpoint written by another source?")


def resume(values: Splitter | Sequence[Any], start: SplitStart) -> Iterator[Any]:
    """An iterator at ``start.offset``, after checking that what lies before it is still the same."""
    index, splits = split_numbers(start.split)
    part = values(index, splits) if callable(values) else values[index::splits]
    if start.offset == 0:
        return _iterator(part)
    if isinstance(part, _SLICED):
        before, rest = part[start.offset - 1 : start.offset], iter(part[start.offset :])
        last = before[0] if before else _END
    else:
        rest = _iterator(part)
        deque(islice(rest, start.offset - 1), maxlen=0)
        last = next(rest, _END)
    _check_repeatable(start, last)
    return rest


def close_iterator(values: Iterator[Any]) -> None:
    """Run the ``finally`` of a generator now rather than whenever it is collected."""
    close = getattr(values, "close", None)
    if close is not None:
        close()


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
