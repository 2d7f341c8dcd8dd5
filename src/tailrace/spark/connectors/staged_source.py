"""A source over the files that Spark has written a DataFrame to. Workers import this, so it needs no pyspark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from tailrace.connector import Reader, Record, SplitStart
from tailrace.errors import NotRepeatable, TailraceError, shorten
from tailrace.runtime.connectors.fingerprint import describe, matches
from tailrace.runtime.connectors.read_ahead import close_iterator
from tailrace.spark.connectors.staged_rows import RowReader, rows_in


@dataclass(frozen=True)
class DataFrameSource:
    """The rows of a folder. ``from_dataframe(…)`` makes one.

    A split is a file, or, if there are more than ``most_splits``, several that are read one after another: each split
    that is read has a file open, and some rows in memory. An offset is the number of the row.
    """

    folder: Path
    reader: RowReader
    most_splits: int | None = None
    replayable: bool = True

    def splits(self, tasks: int) -> Sequence[str]:
        files = files_in(self.folder)
        if self.most_splits is None or len(files) <= self.most_splits:
            return [path.name for path in files]
        return [f"{_MANY}{number}" for number in range(self.most_splits)]

    def open(self, start: SplitStart) -> Reader[dict[str, Any]]:
        return FileReader(self.folder / start.split, self._files_of(start.split), start, self.reader)

    def delete(self) -> None:
        """Delete the files. The runs that read them must have ended."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _files_of(self, split: str) -> list[Path]:
        if not split.startswith(_MANY):
            return [self.folder / split]
        return files_in(self.folder)[int(split.removeprefix(_MANY)) :: self.most_splits]


_MANY = "files-"  # then the number of the split


class FileReader:
    """Reads the rows of one split, a few at a time."""

    ready_ns = 0

    def __init__(self, path: Path, files: Sequence[Path], start: SplitStart, reader: RowReader) -> None:
        for file in files or [path]:
            if not file.exists():
                raise TailraceError(f"file is not there: file={file}, is the folder reachable by this worker?")
        self._files = files
        self._reader = reader
        self._next = start.offset
        self._done = False
        self._rows = self._from(max(0, start.offset - 1))
        if start.offset:
            self._check_last(path, start)

    def poll(self, limit: int, now_ns: int) -> Sequence[Record]:
        rows = list(islice(self._rows, limit))
        self._done = len(rows) < limit
        first = self._next
        self._next += len(rows)
        return [Record(offset, 0, row) for offset, row in enumerate(rows, first)]

    @property
    def done(self) -> bool:
        return self._done

    def close(self) -> None:
        close_iterator(self._rows)

    def _from(self, row: int) -> Iterator[dict[str, Any]]:
        """Rows from number ``row`` on. Files that end before it are not read."""
        for file in self._files:
            if row and (rows := rows_in(file)) <= row:
                row -= rows
            else:
                yield from self._reader.rows(file, row)
                row = 0

    def _check_last(self, path: Path, start: SplitStart) -> None:
        last = next(self._rows, None)
        if last is None or (start.last is not None and not matches(start.last, last)):
            before = "a row" if start.last is None else shorten(describe(start.last))
            raise NotRepeatable(
                f"file has another row than before: file={path} row={start.offset - 1} before={before} "
                f"now={'the end' if last is None else shorten(last)}, was it written again?"
            )


def files_in(folder: Path) -> list[Path]:
    """The data files of a folder that Spark has written."""
    return sorted(folder.glob("part-*.parquet"))
