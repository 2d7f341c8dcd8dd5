"""Stores of simulated sinks. They commit rows and entries together and refuse lower epochs.

A ``Store`` is like a directory or a database that several workers reach, zombies among them. In some runs sinks are on
the driver instead, with the production code that ``to_list`` uses there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from tailrace.connector import Entry
from tailrace.core.protocol.driver_rows import DriverRows, SinkTask
from tailrace.errors import Fenced
from tailrace.sim.faults.journal import Journal
from tailrace.sim.faults.topologies import Row


class Store:
    """All that the sink tasks of a run have committed."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.rows: dict[str, Counter[Row]] = {}
        self.on_driver = False
        self._entries: dict[tuple[str, int], list[Entry]] = {}
        self._epochs: dict[tuple[str, int], int] = {}
        self._first_epochs: dict[str, int] = {}  # of the newest run, by sink
        self._driver_sides: dict[str, DriverRows] = {}

    def fence(self, place: SinkTask) -> None:
        """Fence lower epochs of the task, and earlier runs of all tasks, whose rows may now come to other tasks."""
        self.check(place)
        self._epochs[place.operator, place.task] = place.epoch
        self._first_epochs[place.operator] = max(place.first_epoch, self._first_epochs.get(place.operator, 0))

    def check(self, place: SinkTask) -> None:
        newest = max(self._epochs.get((place.operator, place.task), 0), self._first_epochs.get(place.operator, 0))
        if place.epoch < newest:
            raise Fenced(f"a higher epoch has taken over: {place}")

    def commit(self, place: SinkTask, rows: Sequence[Row], entries: Sequence[Entry]) -> None:
        for row in rows:
            self.show(place.operator, row)
        self._entries.setdefault((place.operator, place.task), []).extend(entries)

    def show(self, sink: str, row: Row) -> None:
        self._journal.note("row", sink, row)
        self.rows.setdefault(sink, Counter())[row] += 1

    def entries(self, sink: str, prefixes: Mapping[str, int]) -> list[Entry]:
        """The entries of all tasks, since their number may have changed."""
        found = (entry for (name, _), entries in self._entries.items() if name == sink for entry in entries)
        return [entry for entry in found if entry.offset >= prefixes.get(entry.split, 0)]

    def forget(self, place: SinkTask, prefixes: Mapping[str, int]) -> None:
        own = self._entries.get((place.operator, place.task), [])
        self._entries[place.operator, place.task] = [e for e in own if e.offset >= prefixes.get(e.split, 0)]

    def driver_side(self, sink: str) -> DriverRows:
        """The driver side of a sink."""
        return self._driver_sides.setdefault(sink, DriverRows(partial(self.show, sink)))


class StoreWriter:
    """The writer of one sink task in one epoch."""

    full = False
    commit_every_ns = 0

    def __init__(self, store: Store, place: SinkTask, after_commit: Callable[[], None]) -> None:
        self._store = store
        self._place = place
        self._rows: list[Row] = []
        self._after_commit = after_commit  # called between commit and ack, where a crash may happen

    def write(self, row: Row) -> None:
        self._rows.append(row)

    def recover(self, prefixes: Mapping[str, int]) -> Iterable[Entry]:
        self._store.fence(self._place)
        return self._store.entries(self._place.operator, prefixes)

    def commit(self, entries: Sequence[Entry]) -> None:
        self._store.check(self._place)
        self._store.commit(self._place, self._rows, entries)
        self._rows = []
        self._after_commit()

    def forget(self, prefixes: Mapping[str, int]) -> None:
        self._store.forget(self._place, prefixes)

    def close(self) -> None:
        pass


class DriverWriter:
    """The writer of a sink whose rows go to the driver. ``counts``: whether the driver still accepts this process."""

    full = False
    commit_every_ns = 0

    def __init__(
        self, driver_side: DriverRows, place: SinkTask, after_commit: Callable[[], None], counts: Callable[[], bool]
    ) -> None:
        self._driver_side = driver_side
        self._place = place
        self._counts = counts
        self._rows: list[Row] = []
        self._prefixes: Mapping[str, int] = {}
        self._after_commit = after_commit

    def write(self, row: Row) -> None:
        self._rows.append(row)

    def recover(self, prefixes: Mapping[str, int]) -> Iterable[Entry]:
        self._check()
        return self._driver_side.recover(self._place, prefixes)

    def commit(self, entries: Sequence[Entry]) -> None:
        self._check()
        self._driver_side.commit(self._place, self._rows, entries, self._prefixes)
        self._rows, self._prefixes = [], {}
        self._after_commit()

    def forget(self, prefixes: Mapping[str, int]) -> None:
        self._prefixes = dict(prefixes)

    def close(self) -> None:
        pass

    def _check(self) -> None:
        if not self._counts():
            raise Fenced(f"a higher epoch has taken over: {self._place}")
