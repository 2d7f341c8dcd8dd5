"""A store for simulated sinks that commits rows and entries together, and refuses lower epochs.

It stands for a directory or a database that several workers reach, a zombie among them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from tailrace.connector import Entry
from tailrace.errors import Fenced
from tailrace.sim.shapes import Row


class Store:
    """What all sink tasks of a run have committed."""

    def __init__(self) -> None:
        self.rows: dict[str, Counter[Row]] = {}
        self._entries: dict[tuple[str, int], list[Entry]] = {}
        self._epochs: dict[tuple[str, int], int] = {}

    def fence(self, sink: str, task: int, epoch: int) -> None:
        if epoch < self._epochs.get((sink, task), 0):
            raise Fenced(f"a higher epoch has taken over: sink={sink} task={task} epoch={epoch}")
        self._epochs[sink, task] = epoch

    def check(self, sink: str, task: int, epoch: int) -> None:
        if epoch < self._epochs.get((sink, task), 0):
            raise Fenced(f"a higher epoch has taken over: sink={sink} task={task} epoch={epoch}")

    def commit(self, sink: str, task: int, rows: Sequence[Row], entries: Sequence[Entry]) -> None:
        self.rows.setdefault(sink, Counter()).update(rows)
        self._entries.setdefault((sink, task), []).extend(entries)

    def entries(self, sink: str, task: int, prefixes: Mapping[str, int]) -> list[Entry]:
        found = self._entries.get((sink, task), [])
        return [entry for entry in found if entry.offset >= prefixes.get(entry.split, 0)]

    def forget(self, sink: str, task: int, prefixes: Mapping[str, int]) -> None:
        self._entries[sink, task] = self.entries(sink, task, prefixes)


class StoreWriter:
    """One epoch of one sink task."""

    full = False
    commit_every_ns = 0

    def __init__(self, store: Store, sink: str, task: int, epoch: int, after_commit: Callable[[], None]) -> None:
        self._store = store
        self._place = (sink, task, epoch)
        self._rows: list[Row] = []
        self._after_commit = after_commit  # the moment between commit and ack, where a crash may strike

    def write(self, row: Row) -> None:
        self._rows.append(row)

    def recover(self, prefixes: Mapping[str, int]) -> Iterable[Entry]:
        sink, task, epoch = self._place
        self._store.fence(sink, task, epoch)
        return self._store.entries(sink, task, prefixes)

    def commit(self, entries: Sequence[Entry]) -> None:
        sink, task, epoch = self._place
        self._store.check(sink, task, epoch)
        self._store.commit(sink, task, self._rows, entries)
        self._rows = []
        self._after_commit()

    def forget(self, prefixes: Mapping[str, int]) -> None:
        sink, task, _ = self._place
        self._store.forget(sink, task, prefixes)

    def close(self) -> None:
        pass
