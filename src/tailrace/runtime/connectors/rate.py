"""An open-loop source: each record is due at a fixed time, whether or not the records before it have been processed.

Record *k* of the whole source is due ``k / per_second`` after the start of the run; splits take turns. A restart keeps
these times, so that delays caused by a crash show up in the latencies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tailrace.clock import SECOND_NS
from tailrace.connector import Reader, ReadT, Record, SplitStart
from tailrace.errors import OptionError, shorten
from tailrace.policy.numbers import is_number
from tailrace.runtime.connectors.iterable import (
    Splitter,
    check_splitter,
    resume,
    split_names,
    split_numbers,
)
from tailrace.runtime.connectors.read_ahead import LATER_NS, Values

T = TypeVar("T")


@dataclass(frozen=True)
class RateSource(Generic[ReadT]):
    """See ``at_rate``."""

    values: Splitter[ReadT] | Sequence[ReadT]
    per_second: float
    replayable: bool = True

    def splits(self, tasks: int) -> Sequence[str]:
        return split_names(tasks)

    def open(self, start: SplitStart) -> Reader[ReadT]:
        return RateReader(resume(self.values, start), start, self.per_second)


class RateReader:
    """Returns the records of a split once they are due."""

    def __init__(self, values: Values, start: SplitStart, per_second: float) -> None:
        self._values = values
        self._next = start.offset
        self._index, self._splits = split_numbers(start.split)
        self._period_ns = SECOND_NS / per_second
        self._elapsed_ns = start.elapsed_ns
        self._began_ns: int | None = None  # set at the first poll, because a reader has no clock
        self.wake_by = values.wake_by
        self.close = values.close

    def poll(self, limit: int, now_ns: int) -> Sequence[Record]:
        if self._began_ns is None:
            self._began_ns = now_ns - self._elapsed_ns
            if self._next and not self._elapsed_ns:  # a resumed run: its next record is due now
                self._began_ns -= self._due_ns(self._next) - self._began_ns
        first, due_ns = self._next, self._due_ns
        wanted = min(limit, self._due_before(now_ns) - first)
        if wanted <= 0:
            return ()
        values = self._values.take(wanted)
        self._next += len(values)
        return [Record(offset, due_ns(offset), value) for offset, value in enumerate(values, first)]

    @property
    def ready_ns(self) -> int:
        if self._values.waits:
            return LATER_NS
        return 0 if self._began_ns is None else self._due_ns(self._next)

    @property
    def may_follow(self) -> bool:
        return self._values.waits and self._values.may_follow

    @property
    def done(self) -> bool:
        return self._values.ended

    def _due_ns(self, offset: int) -> int:
        assert self._began_ns is not None
        return self._began_ns + int((offset * self._splits + self._index) * self._period_ns)

    def _due_before(self, now_ns: int) -> int:
        """The first offset that is not due at ``now_ns``."""
        assert self._began_ns is not None
        guess = int((now_ns - self._began_ns) / self._period_ns - self._index) // self._splits
        offset = max(guess - 1, 0)  # rounding may be off by one either way, so step up to the exact offset
        while self._due_ns(offset) <= now_ns:
            offset += 1
        return offset


def at_rate(values: Splitter[T] | Sequence[T], per_second: float) -> RateSource[T]:
    """Read like ``from_iterable``, but at a fixed rate, whether or not the topology keeps up.

    Records that the topology cannot take in time are late, not left out: latency counts from when they were due.

    Args:
        values: as for ``from_iterable``.
        per_second: how many records are due each second, over all splits together.

    Example:
        >>> tr.Topology("words").source("words", tr.at_rate(["the", "mill"], per_second=100))
        Stream(words.main)
    """
    check_splitter(values, "at_rate")
    if not (is_number(per_second) and per_second > 0):
        raise OptionError(f"rate must be positive: per_second={shorten(per_second)}, did you mean from_iterable?")
    return RateSource(values, float(per_second))
