"""The log of a committing sink, by which it writes each tuple once. It knows a tuple by split, offset and lineage.

The log remembers the tuples that it has written for roots at or above the prefix. Below the prefix it needs no memory:
every root there is durable at every sink, so all that arrives is a duplicate. A duplicate of a tuple that is not
committed yet becomes durable only together with the first copy.
"""

from __future__ import annotations

from collections.abc import Iterable

WRITE = 0
DUPLICATE_PENDING = 1
DUPLICATE_DURABLE = 2

PRUNE_AT_LEAST = 1024
"""The log is pruned when it has doubled, and has grown by at least this many entries."""

Mark = tuple[int, int, int]
"""(split index, offset, lineage)"""


class SinkLog:
    """The tuples that one task of a committing sink has written."""

    def __init__(self, prefixes: dict[int, int], recovered: Iterable[Mark]) -> None:
        self._prefix = dict(prefixes)
        self._open: dict[Mark, None] = {}  # written but not committed, in the order of writing
        self._durable = {mark for mark in recovered if mark[1] >= self._prefix.get(mark[0], 0)}
        self._prune_at = 2 * len(self._durable) + PRUNE_AT_LEAST

    def admit(self, split: int, offset: int, lineage: int) -> int:
        """Decide what to do with a tuple: WRITE it, or drop it as DUPLICATE_PENDING or DUPLICATE_DURABLE."""
        mark = (split, offset, lineage)
        if offset < self._prefix.get(split, 0) or mark in self._durable:
            return DUPLICATE_DURABLE
        return DUPLICATE_PENDING if mark in self._open else WRITE

    def wrote(self, split: int, offset: int, lineage: int) -> None:
        """A tuple that was admitted has been written, and waits for the commit."""
        self._open[split, offset, lineage] = None

    @property
    def open_marks(self) -> list[Mark]:
        """The tuples of the next commit, in the order of writing."""
        return list(self._open)

    def committed(self) -> None:
        """All tuples written so far are durable."""
        self._durable.update(self._open)
        self._open.clear()
        if len(self._durable) > self._prune_at:
            self._prune()

    def advance(self, split: int, offset: int) -> None:
        """The source has committed this prefix."""
        if offset > self._prefix.get(split, 0):
            self._prefix[split] = offset

    @property
    def prefixes(self) -> dict[int, int]:
        return self._prefix

    def __len__(self) -> int:
        return len(self._durable) + len(self._open)

    def _prune(self) -> None:
        prefix = self._prefix
        self._durable = {mark for mark in self._durable if mark[1] >= prefix.get(mark[0], 0)}
        self._prune_at = 2 * len(self._durable) + PRUNE_AT_LEAST

    def validate(self) -> None:
        """Raise AssertionError if the log contradicts itself."""
        assert self._durable.isdisjoint(self._open), "a tuple is both committed and not"
