"""Reads the rows of Parquet files that Spark has written, as dicts: the one way from staged files to Python.

The files alone do not say all: Spark writes an instant in UTC as it writes a reading of a clock, and an interval as a
number. A reader therefore knows the types of the columns. It is made on the driver (``passing_types.row_reader``), and
this module, which workers import, needs no pyspark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

_BATCH_ROWS = 1024  # rows converted to Python objects at a time
_BUFFER_BYTES = 64 * 1024  # read ahead in each column of an open file, instead of the column of a whole row group

Convert = Callable[[Any], Any]


@dataclass(frozen=True)
class RowReader:
    """Reads files of one DataFrame.

    Args:
        schema: the columns in pyarrow's types, with instants as timestamps in UTC.
    """

    schema: Any

    def rows(self, path: Path, first: int = 0) -> Iterator[dict[str, Any]]:
        """The rows of one file from number ``first`` on. Earlier row groups are not read."""
        import pyarrow.parquet as pq

        names = self.schema.names
        converters = [converter(field.type) for field in self.schema]
        with pq.ParquetFile(path, coerce_int96_timestamp_unit="us", buffer_size=_BUFFER_BYTES) as file:
            metadata = file.metadata
            group = 0
            while group < metadata.num_row_groups and first >= metadata.row_group(group).num_rows:
                first -= metadata.row_group(group).num_rows
                group += 1
            groups = list(range(group, metadata.num_row_groups))
            for batch in file.iter_batches(_BATCH_ROWS, row_groups=groups, columns=names):
                if first < batch.num_rows:
                    columns = [
                        column.to_pylist() if convert is None else list(map(convert, column.to_pylist()))
                        for column, convert in zip(batch.slice(first).columns, converters, strict=True)
                    ]
                    for values in zip(*columns, strict=True):
                        yield dict(zip(names, values, strict=True))
                first = max(0, first - batch.num_rows)


def rows_in(path: Path) -> int:
    """How many rows a file has."""
    import pyarrow.parquet as pq

    return int(pq.read_metadata(path).num_rows)


def converter(kind: Any) -> Convert | None:
    """A function that makes a Python value of what pyarrow read; None if they are the same. ``kind``: its type."""
    import pyarrow as pa

    types = pa.types
    if types.is_timestamp(kind):
        return None if kind.tz is None else _in_utc
    if types.is_duration(kind):
        return _as_timedelta
    if types.is_map(kind):
        return _of_maps(converter(kind.key_type) or _same, converter(kind.item_type) or _same)
    if types.is_list(kind):
        inner = converter(kind.value_type)
        return None if inner is None else _of_lists(inner)
    if types.is_struct(kind):
        inside = {field.name: convert for field in kind if (convert := converter(field.type)) is not None}
        return _of_structs(inside) if inside else None
    return None


def _same(value: Any) -> Any:
    return value


def _in_utc(value: datetime | None) -> datetime | None:
    return None if value is None else value.replace(tzinfo=UTC)  # whatever it reads from the file is UTC


def _as_timedelta(value: Any) -> timedelta | None:
    return timedelta(microseconds=value) if isinstance(value, int) else value


def _of_maps(key: Convert, item: Convert) -> Convert:
    return lambda pairs: None if pairs is None else {key(name): item(value) for name, value in pairs}


def _of_lists(item: Convert) -> Convert:
    return lambda values: None if values is None else list(map(item, values))


def _of_structs(inside: dict[str, Convert]) -> Convert:
    def convert(value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is not None:
            for name, inner in inside.items():
                value[name] = inner(value[name])
        return value

    return convert
