"""Writes rows of a batch to files, on executors or on the driver. Executors import this module.

A file is on disk when its name is told. A task that Spark runs twice writes two files, and only the one of the attempt
that counts is told to the driver.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

SCHEMA = "file string, rows long"


@dataclass(frozen=True)
class WriteRows:
    """The function for ``mapInArrow``: each task writes a file, unless it has no rows."""

    folder: Path
    number: int  # of the batch
    names: tuple[str, ...]  # of the columns

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None, "it is called in tasks of Spark"
        named = (pa.RecordBatch.from_arrays(batch.columns, names=self.names) for batch in batches)
        written = write_rows(self.folder, self.number, task.partitionId(), named)
        if written is not None:
            name, rows = written
            yield pa.RecordBatch.from_arrays([pa.array([name]), pa.array([rows])], names=["file", "rows"])


def write_rows(folder: Path, number: int, part: int, batches: Iterable[Any]) -> tuple[str, int] | None:
    """Write Arrow batches to a new file. Returns its name and its number of rows, or None if there are no rows.

    Args:
        folder: where.
        number: the batch.
        part: the place of the file in the batch: names sort by it.
        batches: the rows.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return None
    path = folder / f"{number:012d}-{part:05d}-{uuid.uuid4().hex[:8]}.parquet"
    schema = pa.schema([field.with_type(in_utc(field.type)) for field in first.schema])
    rows = 0
    try:
        with path.open("xb") as file:
            # Dictionaries and statistics are of no use to a reader that reads every row once.
            with pq.ParquetWriter(file, schema, use_dictionary=False, write_statistics=False) as writer:
                for batch in chain([first], filled):
                    writer.write_batch(batch.cast(schema))
                    rows += batch.num_rows
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path.name, rows


def in_utc(kind: Any) -> Any:
    """The Arrow type with instants in UTC: Spark gives them in the time zone of the session."""
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit, tz=kind.tz and "UTC")
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(in_utc(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(
            kind.key_field.with_type(in_utc(kind.key_type)), kind.item_field.with_type(in_utc(kind.item_type))
        )
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(in_utc(field.type)) for field in kind])
    return kind
