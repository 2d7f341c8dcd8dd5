"""A sink that writes rows to Parquet files, which appear atomically and once, in a folder that Spark can read."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tailrace.clock import SECOND_NS
from tailrace.connector import CommittingWriter, Entry, SinkContext
from tailrace.errors import OptionError, TailraceError, did_you_mean, shorten
from tailrace.runtime.connectors.commits.files import PartFiles, absolute, check_roll
from tailrace.runtime.connectors.commits.witness import Entered, Witness, open_part_files
from tailrace.runtime.connectors.schemas.agreement import Agreement
from tailrace.runtime.connectors.schemas.columns import Columns
from tailrace.runtime.connectors.schemas.ddl import check_names, parse_ddl

Compression = Literal["snappy", "gzip", "brotli", "lz4", "zstd", "none"]

_SAMPLE_EVERY = 64  # rows; each sample costs a pickle, some microseconds


@dataclass(frozen=True)
class ParquetSink:
    """See ``to_parquet``."""

    path: Path
    schema: Any | None
    roll_ns: int
    roll_rows: int
    roll_bytes: int
    compression: str
    format: str = "parquet"
    committing: bool = True
    witness: Witness = field(default_factory=Witness, repr=False, compare=False)

    def open(self, context: SinkContext) -> CommittingWriter[Any]:
        return ParquetWriter(self, open_part_files(self.path, "parquet", context))

    def on_message(self, task: int, epoch: int, message: Entered) -> list[Entered]:
        """Called on the driver: a task has opened the folder."""
        return self.witness.entered(self.path, message)


class ParquetWriter:
    """Buffers rows until they are committed as one file."""

    def __init__(self, sink: ParquetSink, files: PartFiles) -> None:
        import pyarrow.parquet

        pyarrow.array([0])  # makes pyarrow look for pandas, which takes a third of a second, before the first row
        self._sink = sink
        self._files = files
        self._rows: list[Any] = []
        self._columns = Columns(sink.schema, Agreement(sink.path) if sink.schema is None else None)
        self._check = self._columns.check
        self._roll_rows = sink.roll_rows
        self._sampled = self._sampled_bytes = 0
        self._next_sample = 1
        self.commit_every_ns = sink.roll_ns

    def write(self, value: Any) -> None:
        self._check(value)
        self._rows.append(value)

    @property
    def full(self) -> bool:
        size = len(self._rows)
        if size >= self._next_sample:
            self._sample(size)
        return size >= self._roll_rows

    def recover(self, prefixes: Mapping[str, int]) -> Iterable[Entry]:
        return self._files.recover(prefixes)

    def commit(self, entries: Sequence[Entry]) -> None:
        if not self._rows and not entries:
            return
        self._files.commit(self._encoded() if self._rows else None, len(self._rows), entries)
        self._rows.clear()
        self._sampled = self._sampled_bytes = 0
        self._next_sample = 1
        self._roll_rows = self._sink.roll_rows

    def forget(self, prefixes: Mapping[str, int]) -> None:
        self._files.forget(prefixes)

    def close(self) -> None:
        self._rows.clear()
        self._files.close()

    def _encoded(self) -> memoryview:
        import pyarrow as pa
        import pyarrow.parquet as pq

        buffer = pa.BufferOutputStream()
        try:
            pq.write_table(self._columns.table(self._rows), buffer, compression=self._sink.compression)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:  # each row was checked when written
            raise TailraceError(
                f"rows do not become a file: directory={self._sink.path} rows={len(self._rows)} "
                f"cause={type(error).__name__}: {error}, was one changed after it had been passed on?"
            ) from error
        return memoryview(buffer.getvalue())

    def _sample(self, size: int) -> None:
        """Estimate from sampled rows how many make up ``roll_bytes``."""
        self._next_sample = min(size * 2, size + _SAMPLE_EVERY)
        self._sampled += 1
        self._sampled_bytes += _size(self._rows[-1])
        enough = self._sink.roll_bytes * self._sampled // max(1, self._sampled_bytes)
        self._roll_rows = min(self._sink.roll_rows, max(1, enough))


def to_parquet(
    path: str | Path,
    *,
    schema: Any | None = None,
    roll_seconds: float = 1.0,
    roll_rows: int = 1_000_000,
    roll_bytes: int = 64 * 1024 * 1024,
    compression: Compression = "snappy",
) -> ParquetSink:
    """Write rows to ``path/part-*.parquet``, **each once**, as a table that Spark reads.

    A file appears when it is complete, and never changes. A row that does not fit the schema is treated as the sink's
    ``on_error`` says.

    Args:
        path: a folder that all workers reach under this path. It is made if need be.
        schema: a pyarrow schema, or one in Spark's words: ``"id long, name string"``. Without it the types are those
            of the rows up to the first file, and then the same for all files of the folder.
        roll_seconds: a file is complete so long after its first row.
        roll_rows: a file is complete once it has as many rows.
        roll_bytes: a file is complete once its rows take about so many bytes before compression.
        compression: the codec of the files.

    Example:
        >>> numbers = tr.Topology("numbers").source("numbers", tr.from_iterable(range(10)))
        >>> rows = numbers.map("row", lambda number: {"number": number})
        >>> rows.sink("out", tr.to_parquet("rows/", schema="number long"))
    """
    import pyarrow as pa

    check_roll(roll_seconds=roll_seconds, roll_rows=roll_rows, roll_bytes=roll_bytes)
    if isinstance(schema, str):
        schema = parse_ddl(schema)
    if schema is not None and not (isinstance(schema, pa.Schema) and schema.names):
        raise OptionError(
            f"not a schema: schema={shorten(schema)} type={type(schema).__name__}, "
            "did you mean a string like 'id long, name string', or a pyarrow schema?"
        )
    if schema is not None:
        check_names(schema.names, shorten(schema))
    if compression != "none" and compression not in _codecs():
        hint = did_you_mean(compression, [*_codecs(), "none"])
        raise OptionError(f"unknown compression: compression={shorten(compression)}, {hint}")
    return ParquetSink(absolute(path), schema, int(roll_seconds * SECOND_NS), roll_rows, roll_bytes, compression)


def _codecs() -> list[str]:
    import pyarrow as pa

    return [name for name in ("snappy", "gzip", "brotli", "lz4", "zstd") if pa.Codec.is_available(name)]


def _size(row: Any) -> int:
    try:
        return len(pickle.dumps(row, protocol=5))
    except Exception:  # a row that cannot be pickled did not come from another worker; any size will do
        return 1024
