"""The driver's side of a sink whose rows end on the driver: it takes each row once, for any number of runs at once.

Entries, epochs and prefixes have a meaning within one job only: another run of the same topology repeats them. Each
message therefore names its job, and the messages of one job change nothing for another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tailrace.connector import Entry
from tailrace.errors import Fenced

COMPACT_AT = 4096
"""Entries of a job. With fewer it is not worth a pass over them to forget some."""


class SinkTask(NamedTuple):
    """One epoch of one sink task: the sender of a message."""

    job_id: str
    operator: str
    task: int
    epoch: int
    first_epoch: int  # of its run; lower epochs belong to earlier runs of the job


class DriverRows:
    """Passes the committed rows of all jobs on.

    Law: a row whose entry was committed is never passed on again, and a lower epoch of its job commits nothing.
    """

    def __init__(self, give: Callable[[Any], None]) -> None:
        self._give = give
        self._jobs: dict[str, _Job] = {}

    def commit(
        self, sender: SinkTask, rows: Sequence[Any], entries: Sequence[Entry], prefixes: Mapping[str, int]
    ) -> None:
        """Commit all rows and entries, or none. Raises ``Fenced`` if a higher epoch has taken over."""
        if rows and len(rows) != len(entries):
            raise ValueError(
                f"commit needs one entry per row: rows={len(rows)} entries={len(entries)}, was one skipped?"
            )
        job = self._job_of(sender)
        job.admit(sender)
        for row in job.take(rows, entries):
            self._give(row)
        job.forget(prefixes)

    def recover(self, sender: SinkTask, prefixes: Mapping[str, int]) -> list[Entry]:
        """Shut out lower epochs, and return the entries at or above the prefixes, of any task."""
        job = self._job_of(sender)
        job.admit(sender)
        return sorted(entry for entry in job.entries if entry.offset >= prefixes.get(entry.split, 0))

    def _job_of(self, sender: SinkTask) -> _Job:
        return self._jobs.setdefault(sender.job_id, _Job())


class _Job:
    """The entries, epochs and prefixes of one job."""

    def __init__(self) -> None:
        self.entries: set[Entry] = set()
        self._epochs: dict[tuple[str, int], int] = {}
        self._first_epoch = 0  # of its newest run
        self._prefixes: dict[str, int] = {}
        self._compact_at = COMPACT_AT

    def admit(self, sender: SinkTask) -> None:
        where = (sender.operator, sender.task)
        newest = max(self._epochs.get(where, 0), self._first_epoch)
        if sender.epoch < newest:
            raise Fenced(
                f"a higher epoch has taken over: task={sender.task} epoch={sender.epoch} found={newest}, "
                "was this worker declared dead?"
            )
        self._epochs[where] = sender.epoch
        self._first_epoch = max(sender.first_epoch, self._first_epoch)

    def take(self, rows: Sequence[Any], entries: Sequence[Entry]) -> list[Any]:
        """Add the entries, and return the rows that are new."""
        known = self.entries
        new = [row for row, entry in zip(rows, entries, strict=False) if entry not in known]
        known.update(entries)
        return new

    def forget(self, prefixes: Mapping[str, int]) -> None:
        for split, offset in prefixes.items():
            if offset > self._prefixes.get(split, 0):
                self._prefixes[split] = offset
        if len(self.entries) >= self._compact_at:  # doubling keeps the cost per row constant
            self.entries = {entry for entry in self.entries if entry.offset >= self._prefixes.get(entry.split, 0)}
            self._compact_at = max(COMPACT_AT, 2 * len(self.entries))
