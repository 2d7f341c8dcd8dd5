"""A DataFrame is a bounded source: Spark writes it to Parquet files once, and workers read those.

Each file is a split, and the offset is the number of the row in it. Reading the DataFrame itself would not be
repeatable: Spark may compute it again in another order, or with other rows.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType

from tailrace.connector import Reader, Record, SplitStart
from tailrace.errors import NotRepeatable, OptionError, TailraceError, shorten
from tailrace.runtime.connectors.commits.files import absolute
from tailrace.runtime.connectors.fingerprint import describe, matches
from tailrace.runtime.connectors.read_ahead import close_iterator

_BATCH_ROWS = 1024  # rows converted to Python objects at a time
_PREFIX = "tailrace-dataframe-"  # then the process id of the driver that owns the folder
_SUCCESS = "_SUCCESS"  # Spark writes it last
_SPARKS_OWN = ("part-*", ".part-*.crc", "_temporary", "._SUCCESS.crc")  # what a job that died may leave behind
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DataFrameSource:
    """See ``from_dataframe``."""

    folder: Path
    instants: frozenset[str]  # timestamp columns: Spark's files do not say that they are in UTC
    replayable: bool = True

    def splits(self, tasks: int) -> Sequence[str]:
        return [path.name for path in _files(self.folder)]

    def open(self, start: SplitStart) -> Reader[dict[str, Any]]:
        return FileReader(self.folder / start.split, start, self.instants)

    def delete(self) -> None:
        """Delete the files. The runs that read them must have ended."""
        shutil.rmtree(self.folder, ignore_errors=True)


class FileReader:
    """Reads the rows of one Parquet file as dicts, a few at a time."""

    ready_ns = 0

    def __init__(self, path: Path, start: SplitStart, instants: frozenset[str]) -> None:
        import pyarrow.parquet as pq

        if not path.exists():
            raise TailraceError(f"file is not there: file={path}, is the folder reachable by this worker?")
        self._file = pq.ParquetFile(path, coerce_int96_timestamp_unit="us")
        self._instants = instants
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
        self._file.close()

    def _from(self, row: int) -> Iterator[dict[str, Any]]:
        """Rows from number ``row`` on. Earlier row groups are not read."""
        metadata = self._file.metadata
        group = 0
        while group < metadata.num_row_groups and row >= metadata.row_group(group).num_rows:
            row -= metadata.row_group(group).num_rows
            group += 1
        groups = list(range(group, metadata.num_row_groups))
        for batch in self._file.iter_batches(_BATCH_ROWS, row_groups=groups):
            if row < batch.num_rows:
                yield from self._in_utc(batch.slice(row)).to_pylist()
            row = max(0, row - batch.num_rows)

    def _in_utc(self, batch: Any) -> Any:
        import pyarrow as pa

        for index, field in enumerate(batch.schema):
            if field.name in self._instants and field.type.tz is None:
                instant = pa.timestamp("us", tz="UTC")
                batch = batch.set_column(index, pa.field(field.name, instant), batch.column(index).cast(instant))
        return batch

    def _check_last(self, path: Path, start: SplitStart) -> None:
        last = next(self._rows, None)
        if last is None or (start.last is not None and not matches(start.last, last)):
            before = "a row" if start.last is None else shorten(describe(start.last))
            raise NotRepeatable(
                f"file has another row than before: file={path} row={start.offset - 1} before={before} "
                f"now={'the end' if last is None else shorten(last)}, was it written again?"
            )


def from_dataframe(df: DataFrame, *, splits: int | None = None, folder: str | Path | None = None) -> DataFrameSource:
    """Read the rows of a DataFrame, as dicts, and end. **Runs a Spark job at once**, which writes them to a folder.

    Args:
        df: a DataFrame that is not streaming.
        splits: how many files the rows are written to, each of which is a split. The default is the number of the
            DataFrame's partitions.
        folder: where to write; the driver and all workers must reach it under this path. A folder that holds a
            finished DataFrame of the same columns is read as it is: give one where a checkpoint is to be resumed.
            Without it the folder is a temporary one of this machine, deleted when the driver ends or by
            ``source.delete()``.

    Example:
        >>> spark = tr.local_session(cores=2)
        >>> source = tr.from_dataframe(spark.range(10), splits=2)
        >>> topology = tr.Topology("rows")
        >>> topology.source("rows", source, tasks=2).sink("out", tr.to_list())
    """
    if not isinstance(df, DataFrame):
        raise OptionError(f"not a DataFrame: from_dataframe={shorten(df)} type={type(df).__name__}, is it a table?")
    if df.isStreaming:
        raise OptionError("DataFrame is streaming: from_dataframe takes bounded ones, did you mean from_stream?")
    if splits is not None and (not isinstance(splits, int) or splits < 1):
        raise OptionError(f"option must be a positive number: splits={shorten(splits)}, did you mean to leave it out?")
    if folder is None:
        sweep()
        home = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
        place = home / "rows"
    else:
        home, place = None, absolute(folder)
    instants = frozenset(field.name for field in df.schema.fields if isinstance(field.dataType, TimestampType))
    source = DataFrameSource(place, instants)
    if home is not None:
        atexit.register(_remove, home, os.getpid())
    if (place / _SUCCESS).exists():
        _check_columns(place, df.columns)
        _log.warning("rows are there already and are read as they are: folder=%s, is this a restart?", place)
    else:
        _check_empty(place)
        _write(df if splits is None else df.repartition(splits), place)
    return source


def _write(df: Any, place: Path) -> None:
    seen = Observation()
    df.observe(seen, F.count(F.lit(1)).alias("rows")).write.mode("overwrite").parquet(place.as_uri())
    rows = seen.get.get("rows", 0)
    found = sum(_rows_in(path) for path in _files(place))
    if found != rows:
        # Executors without access to the driver's disk write to their own, and Spark does not notice.
        (place / _SUCCESS).unlink(missing_ok=True)
        raise TailraceError(
            f"rows are not where the driver can read them: folder={place} rows={rows} found={found}, "
            "is the folder on a disk that the driver and all executors share?"
        )


def _check_empty(place: Path) -> None:
    """Raise OptionError if the folder holds anything but leftovers of Spark, which is about to delete its content."""
    others = [path.name for path in place.glob("*") if not any(path.match(pattern) for pattern in _SPARKS_OWN)]
    if others or place.is_file():
        raise OptionError(
            f"folder holds something else: folder={place} found={sorted(others)[:3]}, did you mean a new folder in it?"
        )


def _check_columns(place: Path, columns: list[str]) -> None:
    import pyarrow.parquet as pq

    for path in _files(place)[:1]:
        found = pq.read_schema(path).names
        if found != columns:
            raise OptionError(
                f"folder holds another DataFrame: folder={place} found={found} columns={columns}, "
                "did you mean another folder?"
            )


def _files(place: Path) -> list[Path]:
    return sorted(place.glob("part-*.parquet"))


def _rows_in(path: Path) -> int:
    import pyarrow.parquet as pq

    return int(pq.read_metadata(path).num_rows)


def sweep() -> None:
    """Delete temporary folders of drivers that were killed before they could do so."""
    for home in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        owner = home.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdecimal() and not Path(f"/proc/{owner}").exists() and Path("/proc/self").exists():
            shutil.rmtree(home, ignore_errors=True)


def _remove(home: Path, pid: int) -> None:
    if os.getpid() == pid:  # not in a child that was forked from the driver
        shutil.rmtree(home, ignore_errors=True)
