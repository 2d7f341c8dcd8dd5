"""Rows in a list on the driver, each once for as long as the driver lives.

Tasks send rows and entries in one message, which the driver half takes as a whole or not at all; that is the
commit. The list grows without bound: it is for tests, notebooks and small results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tailrace.clock import MILLISECOND_NS
from tailrace.connector import Entry, SinkContext
from tailrace.errors import Fenced, OptionError

_COMMIT_EVERY_NS = 20 * MILLISECOND_NS  # short enough to look immediate in a notebook
_FULL_ROWS = 4096  # rows; a message of this size is far below any limit of a frame
_COMPACT_AT = 4096  # entries; forgetting below this is not worth a pass over them


class ListSink:
    """See ``to_list``. This object is the driver half; copies of it that reach workers know no rows."""

    committing = True

    def __init__(self, values: list[Any]) -> None:
        self.values = values
        self._begin("")

    def open(self, context: SinkContext) -> ListWriter:
        return ListWriter(context)

    def on_message(self, task: int, epoch: int, message: Any) -> Any:
        """Take one message of a task: ``(job_id, operator, kind, ...)``. Several operators may share one list."""
        job_id, operator, kind, *rest = message
        if job_id != self._job_id:
            self._begin(job_id)
        place = (operator, task)
        if epoch < self._epochs.get(place, epoch):
            raise Fenced(
                f"a higher epoch has taken over: task={task} epoch={epoch} found={self._epochs[place]}, "
                "was this worker declared dead?"
            )
        self._epochs[place] = epoch
        if kind == "commit":
            return self._commit(*rest)
        return self._recover(*rest)

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__([])  # type: ignore[misc]  # a worker's copy starts empty, and stays so

    def _begin(self, job_id: str) -> None:
        """Entries and epochs mean something within one job only; another run of the topology repeats them."""
        self._job_id = job_id
        self._epochs: dict[tuple[str, int], int] = {}
        self._entries: set[Entry] = set()
        self._prefixes: dict[str, int] = {}
        self._compact_at = _COMPACT_AT

    def _commit(self, rows: Sequence[Any], entries: Sequence[Entry], prefixes: Mapping[str, int]) -> None:
        if rows and len(rows) != len(entries):
            raise ValueError(
                f"commit needs one entry per row: rows={len(rows)} entries={len(entries)}, was one skipped?"
            )
        for split, offset in prefixes.items():
            if offset > self._prefixes.get(split, 0):
                self._prefixes[split] = offset
        for row, entry in zip(rows, entries, strict=False):
            if entry not in self._entries:
                self._entries.add(entry)
                self.values.append(row)
        self._entries.update(entries)
        if len(self._entries) >= self._compact_at:  # doubling keeps the cost per row constant
            self._entries = {entry for entry in self._entries if entry.offset >= self._prefixes.get(entry.split, 0)}
            self._compact_at = max(_COMPACT_AT, 2 * len(self._entries))

    def _recover(self, prefixes: Mapping[str, int]) -> list[Entry]:
        return sorted(entry for entry in self._entries if entry.offset >= prefixes.get(entry.split, 0))


class ListWriter:
    """Sends what a task has received to the driver."""

    commit_every_ns = _COMMIT_EVERY_NS

    def __init__(self, context: SinkContext) -> None:
        self._context = context
        self._rows: list[Any] = []
        self._prefixes: dict[str, int] = {}

    def write(self, value: Any) -> None:
        self._rows.append(value)

    @property
    def full(self) -> bool:
        return len(self._rows) >= _FULL_ROWS

    def recover(self, prefixes: Mapping[str, int]) -> Iterable[Entry]:
        entries: list[Entry] = self._call("recover", dict(prefixes))
        return entries

    def commit(self, entries: Sequence[Entry]) -> None:
        if not self._rows and not entries:
            return
        self._call("commit", self._rows, list(entries), self._prefixes)
        self._rows = []  # not cleared in place: without a wire in between, the driver holds the same list
        self._prefixes = {}

    def forget(self, prefixes: Mapping[str, int]) -> None:
        self._prefixes = dict(prefixes)  # travels with the next commit

    def close(self) -> None:
        self._rows = []

    def _call(self, kind: str, *rest: Any) -> Any:
        operator = self._context.operator
        return self._context.call_driver(operator, (self._context.job_id, operator, kind, *rest))


def to_list(values: list[Any] | None = None) -> ListSink:
    """Append rows to ``values`` on the driver, or to a new list: ``sink.values``. **Each row once.**

    Rows of several tasks come in the order of their commits. A second run appends to the same list.
    """
    if values is not None and not isinstance(values, list):
        raise OptionError(f"not a list: to_list type={type(values).__name__}, did you mean to_call?")
    return ListSink([] if values is None else values)
