"""The workers' half of a handover: reads the rows of one split, batch after batch.

This module is imported in workers, so it imports nothing of Spark.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from tailrace.clock import MILLISECOND_NS
from tailrace.connector import Reader, Record, SplitStart
from tailrace.errors import NotRepeatable, TailraceError, shorten
from tailrace.runtime.connectors.fingerprint import describe, matches
from tailrace.runtime.connectors.read_ahead import close_iterator
from tailrace.spark.connectors.handover.folder import HandoverFolder
from tailrace.spark.connectors.handover.manifests import ROW_BITS, Manifest, Manifests, names_of
from tailrace.spark.connectors.staged_rows import RowReader

POLL_NS = 10 * MILLISECOND_NS
"""How often to look for the next batch, by its name."""

LIST_NS = 250 * MILLISECOND_NS
"""How often to list the folder while no batch is there. Only a listing shows that the handover has ended, or that the
next batch is gone because it held nothing for this split, and it costs more than a look at a name."""


@dataclass(frozen=True)
class HandoverSource:
    """The side of ``from_stream`` that workers get."""

    folder: Path
    count: int  # of splits
    reader: RowReader
    replayable: bool = True

    def splits(self, tasks: int) -> Sequence[str]:
        return names_of(self.count)

    def open(self, start: SplitStart) -> Reader[dict[str, Any]]:
        return HandoverReader(HandoverFolder(self.folder), self.count, self.reader, start)


class HandoverReader:
    """Reads batch after batch. It waits for the next one, until the driver says that none will come."""

    def __init__(self, folder: HandoverFolder, splits: int, reader: RowReader, start: SplitStart) -> None:
        if not folder.batches.is_dir():
            raise TailraceError(f"folder is not there: folder={folder.path}, is it reachable by this worker?")
        self._folder = folder
        self._manifests = Manifests(folder.batches)
        self._reader = reader
        self._split, self._splits = int(start.split), splits
        self._files: deque[tuple[str, int]] = deque()  # of the batch that is read, those that are not open yet
        self._rows: Iterator[dict[str, Any]] | None = None  # of the file that is open
        self._number = start.offset >> ROW_BITS  # of the next batch
        self._next = start.offset
        self._ready_ns = 0
        self._list_ns = 0  # when to list the folder again
        self._done = False
        self._resume(start)

    def poll(self, limit: int, now_ns: int) -> Sequence[Record[dict[str, Any]]]:
        while self._rows is not None or self._advance(now_ns):
            assert self._rows is not None
            rows = list(islice(self._rows, limit))
            if len(rows) < limit:
                self.close()
            if rows:
                first = self._next
                self._next += len(rows)
                return [Record(offset, 0, row) for offset, row in enumerate(rows, first)]
        return []

    @property
    def ready_ns(self) -> int:
        return self._ready_ns

    @property
    def may_follow(self) -> bool:
        """Whether there is a batch that has not been looked at."""
        return not self._done and any(number >= self._number for number in self._manifests.look()[0])

    @property
    def done(self) -> bool:
        return self._done

    def close(self) -> None:
        if self._rows is not None:
            close_iterator(self._rows)
            self._rows = None

    def _advance(self, now_ns: int) -> bool:
        """Open the next file. False if there is none yet."""
        while not self._files:
            manifest = self._next_manifest(now_ns)
            if manifest is None:
                self._ready_ns = now_ns + POLL_NS
                return False
            self._begin(manifest)
        name, _ = self._files.popleft()
        self._rows = self._open(name)
        self._ready_ns = 0
        return True

    def _next_manifest(self, now_ns: int) -> Manifest | None:
        """The next batch. Those that are gone were durable before this split came to them: they hold nothing of it."""
        manifest = self._manifests.read(self._number)
        if manifest is not None or now_ns < self._list_ns:
            return manifest
        numbers, end = self._manifests.look()
        later = [number for number in numbers if number >= self._number]
        if not later:
            self._list_ns = now_ns + LIST_NS
            self._done = end is not None and self._number >= end
            return None
        # Batches are handed over in order: with a later one there, this one is there too, or was and is gone.
        return self._manifests.read(self._number) or self._manifests.read(later[0])

    def _begin(self, manifest: Manifest) -> None:
        self._files.extend(manifest.of_split(self._split, self._splits))
        self._number = manifest.number + 1
        self._next = manifest.number << ROW_BITS

    def _resume(self, start: SplitStart) -> None:
        """Go to where the split was read before. Raises NotRepeatable if that is not there."""
        job, manifest = self._folder.job(), self._manifests.read(self._number)
        deleted = 0 if job is None else job.deleted.get(start.split, 0)
        place = f"folder={self._folder.path} split={start.split} offset={start.offset}"
        if start.offset < deleted:
            raise NotRepeatable(
                f"rows have been deleted: {place} deleted={deleted}, is it an earlier job whose checkpoint is gone?"
            )
        row = start.offset - (self._number << ROW_BITS)
        if not row:
            return
        if manifest is None:
            if start.offset != deleted:
                raise NotRepeatable(f"there is no such batch: {place}, is it the folder that the job began with?")
            self._number += 1
            return
        if start.offset > manifest.end_of(self._split, self._splits):
            raise NotRepeatable(
                f"batch has fewer rows than were read: {place} end={manifest.end_of(self._split, self._splits)}, "
                "is it the folder that the job began with?"
            )
        self._begin(manifest)
        self._next = start.offset
        self._skip(row, start.last)

    def _skip(self, row: int, last: bytes | None) -> None:
        """Begin at this row of the batch, whose predecessor had the fingerprint ``last``."""
        before: tuple[str, int] | None = None
        while self._files and row >= self._files[0][1]:
            before = self._files.popleft()
            row -= before[1]
        if row:
            name = self._files.popleft()[0]
            self._rows = self._open(name, row - 1)
            self._check_last(name, row, next(self._rows, None), last)
        elif before is not None and last is not None and (self._folder.rows / before[0]).exists():
            rows = self._open(before[0], before[1] - 1)  # else it was read as a whole, and may be deleted
            self._check_last(*before, next(rows, None), last)
            close_iterator(rows)

    def _open(self, name: str, row: int = 0) -> Iterator[dict[str, Any]]:
        path = self._folder.rows / name
        if not path.exists():
            raise TailraceError(f"file is not there: file={path}, is the folder reachable by this worker?")
        return self._reader.rows(path, row)

    def _check_last(self, name: str, row: int, found: Any, last: bytes | None) -> None:
        if found is None or (last is not None and not matches(last, found)):
            before = "a row" if last is None else shorten(describe(last))
            raise NotRepeatable(
                f"file has another row than before: file={self._folder.rows / name} row={row - 1} before={before} "
                f"now={'the end' if found is None else shorten(found)}, was it written again?"
            )
