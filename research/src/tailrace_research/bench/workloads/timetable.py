"""An open-loop source: each record is due at a listed time after the start of the run, whatever became of the others.

A tuple is ``(index, due_ns, body)``: all processes of a machine share one clock, so every task knows its age.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.connector import Record, SplitStart
from tailrace.runtime.connectors.iterable import split_names, split_numbers

Item = tuple[int, int, Any]
"""Index in the stream, when it was due, and what it holds."""


@dataclass(frozen=True)
class Timetable:
    """Splits take turns: record *i* is in split *i* modulo their number."""

    bodies: Sequence[Any]
    due_ns: Sequence[int]
    replayable: bool = True

    def splits(self, tasks: int) -> Sequence[str]:
        return split_names(tasks)

    def open(self, start: SplitStart) -> TimetableReader:
        index, splits = split_numbers(start.split)
        return TimetableReader(self.bodies[index::splits], self.due_ns[index::splits], start, index, splits)


class TimetableReader:
    """Gives the records of a split once they are due. A restart keeps their times."""

    def __init__(
        self, bodies: Sequence[Any], due_ns: Sequence[int], start: SplitStart, index: int, splits: int
    ) -> None:
        self._bodies = bodies
        self._due_ns = due_ns
        self._index, self._splits = index, splits
        self._next = start.offset
        self._elapsed_ns = start.elapsed_ns
        self._began_ns: int | None = None

    def poll(self, limit: int, now_ns: int) -> Sequence[Record]:
        if self._began_ns is None:
            self._began_ns = now_ns - self._elapsed_ns
        began_ns, first = self._began_ns, self._next
        self._next = min(first + limit, bisect_right(self._due_ns, now_ns - began_ns, first))
        return [self._record(offset, began_ns + self._due_ns[offset]) for offset in range(first, self._next)]

    def _record(self, offset: int, due_ns: int) -> Record:
        return Record(offset, due_ns, (offset * self._splits + self._index, due_ns, self._bodies[offset]))

    @property
    def ready_ns(self) -> int:
        if self._began_ns is None or self.done:
            return 0
        return self._began_ns + self._due_ns[self._next]

    @property
    def done(self) -> bool:
        return self._next >= len(self._due_ns)

    def close(self) -> None:
        pass
