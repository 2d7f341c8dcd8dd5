"""The driver's half of a handover: it hands batches over, and deletes those that are durable.

One driver at a time has the folder's lock. It needs no luck with time: each step leaves the folder such that a
successor can go on.

- Row files are on disk before the manifest that names them. Those that no manifest names are of a batch that was not
  handed over, and are swept.
- Where rows may be missing is written down before the first of them is deleted.
- Rows are deleted before their manifest, and manifests from the lowest number on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from tailrace.errors import NotRepeatable, OptionError, TailraceError
from tailrace.runtime.connectors.commits.disk import sync_directory
from tailrace.spark.connectors.handover.folder import About, HandoverFolder, Job
from tailrace.spark.connectors.handover.manifests import ROW_BITS, Manifest, Manifests, names_of

_ROWS = re.compile(r"(\d+)-.*\.parquet")


class Keeper:
    """Holds the folder until it is closed. Used by one thread at a time."""

    def __init__(self, folder: HandoverFolder, about: About, job: str, starts: Mapping[str, int]) -> None:
        """``starts``: by split, the offset from which this job will read."""
        self._folder = folder
        self._splits = about.splits
        self._lock = folder.claim(about)
        try:
            self._manifests = Manifests(folder.batches)
            self._manifests.go_on()
            numbers, _ = self._manifests.look()
            self._there = {number: self._known(number) for number in numbers}
            self.newest = max(numbers, default=-1)
            self._job = Job(job, self._check_job(job, starts))
            folder.set_job(self._job)
            self._sweep()
        except BaseException:
            self._lock.close()
            raise
        self._ended = False
        self._closed = False
        self._cleaned = -1  # rows of batches up to this number have been deleted

    def wants(self, number: int) -> bool:
        """Whether a batch is to be handed over: False if that has been done. Raises if it cannot be the next."""
        if number not in (self.newest, self.newest + 1):
            raise TailraceError(
                f"the streaming query and its batches do not fit together: folder={self._folder.path} "
                f"batch={number} newest={self.newest}, was a part of the folder deleted or copied?"
            )
        return number > self.newest

    def hand_over(self, number: int, files: Sequence[tuple[str, int]]) -> None:
        """Hand a batch over: from here on it has these files, whatever happens."""
        if self._ended:
            raise TailraceError(f"the handover has ended: folder={self._folder.path} batch={number}, is it stopped?")
        missing = [name for name, _ in files if not (self._folder.rows / name).exists()]
        if missing:
            # Executors without access to the driver's disk write to their own, and Spark does not notice.
            raise TailraceError(
                f"rows are not where the driver can read them: folder={self._folder.path} files={len(files)} "
                f"missing={len(missing)}, is the folder on a disk that the driver and all executors share?"
            )
        sync_directory(self._folder.rows)
        self._there[number] = self._manifests.publish(Manifest(number, tuple(files)))
        self.newest = number

    def waiting(self, durable: Mapping[str, int]) -> int:
        """How many rows have been handed over and lie at or above these offsets.

        ``durable``: by split, the offset below which all are. Above it some may be, and the driver does not know which.
        """
        return sum(manifest.rows_from(durable, self._splits) for manifest in tuple(self._there.values()))

    def clean(self, durable: Mapping[str, int]) -> None:
        """Delete the batches that are durable as a whole, from the lowest on. The newest manifest stays."""
        if self._closed:
            return
        over: list[Manifest] = []
        for number in sorted(self._there):
            if self._there[number].rows_from(durable, self._splits):
                break
            over.append(self._there[number])
        if not over or over[-1].number <= self._cleaned:
            return
        ends = dict(self._job.deleted)
        for manifest in over:
            for index, name in enumerate(names_of(self._splits)):
                if manifest.of_split(index, self._splits):
                    ends[name] = max(manifest.end_of(index, self._splits), ends.get(name, 0))
        self._job = Job(self._job.id, ends)
        self._folder.set_job(self._job)
        self._cleaned = over[-1].number
        for path, number in self._row_files():
            if number <= self._cleaned:
                path.unlink(missing_ok=True)
        for manifest in over:
            if manifest.number != self.newest:
                self._manifests.remove(manifest.number)
                del self._there[manifest.number]

    def end(self) -> None:
        """No more batches come in this run: readers are done once they have read all that are there."""
        if not self._ended:
            self._ended = True
            self._manifests.end(self.newest + 1)

    def close(self) -> None:
        """Give the folder back: another driver may have it from now on, and this one changes nothing in it any more."""
        self._ended = self._closed = True
        self._lock.close()

    def _known(self, number: int) -> Manifest:
        manifest = self._manifests.read(number)
        assert manifest is not None, "the driver that has the lock is the only one to delete manifests"
        return manifest

    def _row_files(self) -> list[tuple[Path, int]]:
        """The row files that are there, each with the number of its batch."""
        paths = list(self._folder.rows.iterdir())
        return [(path, int(match[1])) for path in paths if (match := _ROWS.fullmatch(path.name))]

    def _sweep(self) -> None:
        """Delete row files of batches that were never handed over, or whose manifest is gone."""
        known = {name for manifest in self._there.values() for name, _ in manifest.files}
        for path, _ in self._row_files():
            if path.name not in known:
                path.unlink(missing_ok=True)

    def _check_job(self, job: str, starts: Mapping[str, int]) -> Mapping[str, int]:
        """Raise unless this job can read on from its starts. Returns by split how far rows may have been deleted."""
        found, place = self._folder.job(), f"folder={self._folder.path}"
        resumes = any(starts.values())
        if found is None or found.id != job:
            if resumes:
                raise OptionError(
                    f"checkpoint belongs to another folder: {place} job={job} found={found and found.id}, "
                    "is this the folder that the job began with?"
                )
            if found is not None and found.deleted:
                raise NotRepeatable(
                    f"rows have been read and deleted: {place} job={found.id} ours={job}, "
                    "is it of an earlier job whose checkpoint is gone, or did you forget checkpoint=…?"
                )
            return {}
        for name, start in starts.items():
            if start < found.deleted.get(name, 0):
                raise NotRepeatable(
                    f"rows have been deleted that the checkpoint has not read: {place} split={name} offset={start} "
                    f"deleted={found.deleted[name]}, is it an old copy of the checkpoint?"
                )
            if start and start >> ROW_BITS > self.newest:
                raise NotRepeatable(
                    f"the checkpoint has read more than the folder holds: {place} split={name} offset={start} "
                    f"newest={self.newest}, is it an old copy of the folder?"
                )
        return found.deleted
