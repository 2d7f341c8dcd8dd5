"""A data source's stream reader, partitioned or simple, as one sequence of rows between two offsets.

Rows come as dicts by the names of the schema. The order is that of ``partitions`` and of each ``read``.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Protocol

from pyspark.errors import PySparkNotImplementedError
from pyspark.sql import Row
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from tailrace.errors import TailraceError, shorten
from tailrace.spark.connectors.batch_log import Offset, plain

Rows = Iterator[Any]


class Stream(Protocol):
    """The common interface of both kinds of stream readers."""

    def initial(self) -> Offset: ...

    def ahead(self, start: Offset) -> tuple[Offset, Rows | None]:
        """The newest offset, and the rows up to it if finding it required reading them."""
        ...

    def between(self, start: Offset, end: Offset) -> Rows: ...

    def commit(self, end: Offset) -> None: ...

    def stop(self) -> None: ...


def open_stream(source: DataSource, schema: StructType, available_now: bool) -> Stream:
    """Open ``streamReader`` if the source has one, otherwise ``simpleStreamReader``, as Spark does."""
    reader: Any
    try:
        reader = source.streamReader(schema)
        stream: Stream = PartitionedStream(reader)
    except PySparkNotImplementedError:
        reader = source.simpleStreamReader(schema)
        stream = SimpleStream(reader)
    if available_now and hasattr(reader, "prepareForTriggerAvailableNow"):
        reader.prepareForTriggerAvailableNow()
    return stream


class PartitionedStream:
    """Adapts a ``DataSourceStreamReader``."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        # Before Spark 4.2 there was no admission control, and latestOffset took no arguments.
        self._admits = bool(inspect.signature(reader.latestOffset).parameters)

    def initial(self) -> Offset:
        return plain(self._reader.initialOffset(), "initialOffset")

    def ahead(self, start: Offset) -> tuple[Offset, Rows | None]:
        reader = self._reader
        end = reader.latestOffset(start, reader.getDefaultReadLimit()) if self._admits else reader.latestOffset()
        return plain(end, "latestOffset"), None

    def between(self, start: Offset, end: Offset) -> Rows:
        return chain.from_iterable(map(self._reader.read, self._reader.partitions(start, end)))

    def commit(self, end: Offset) -> None:
        self._reader.commit(end)

    def stop(self) -> None:
        self._reader.stop()


class SimpleStream:
    """Adapts a ``SimpleDataSourceStreamReader``, which finds its newest offset only by reading up to it."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def initial(self) -> Offset:
        return plain(self._reader.initialOffset(), "initialOffset")

    def ahead(self, start: Offset) -> tuple[Offset, Rows | None]:
        rows, end = self._reader.read(start)
        end = plain(end, "read")
        if end != start:
            return end, iter(rows)
        first = next(iter(rows), None)
        if first is not None:
            raise TailraceError(
                f"simple stream reader gave rows and did not move on: start={start} end={end} row={shorten(first)}, "
                "does read() return the offset after its last row?"
            )
        return end, None

    def between(self, start: Offset, end: Offset) -> Rows:
        return iter(self._reader.readBetweenOffsets(start, end))

    def commit(self, end: Offset) -> None:
        self._reader.commit(end)

    def stop(self) -> None:
        pass


def as_dicts(rows: Iterable[Any], schema: StructType, source: str) -> Iterator[dict[str, Any]]:
    """Turn rows into dicts: tuples, lists and Rows without names by position, named Rows and Arrow batches by name."""
    names = schema.fieldNames()
    known = set(names)
    for row in rows:
        if isinstance(row, (tuple, list)):
            fields = getattr(row, "__fields__", None) if isinstance(row, Row) else None
            if len(row) != len(names) or (fields is not None and set(fields) != known):
                raise _misfit(row, names, source)
            if fields is None:
                yield dict(zip(names, row, strict=True))
            else:
                yield {name: row[name] for name in names}  # type: ignore[call-overload]  # a Row, by name
        elif hasattr(row, "to_pylist") and hasattr(row, "schema"):
            if set(row.schema.names) != known:
                raise _misfit(row.schema.names, names, source)
            for one in row.to_pylist():
                yield {name: one[name] for name in names}
        else:
            raise _misfit(row, names, source)


def _misfit(row: Any, names: list[str], source: str) -> TailraceError:
    return TailraceError(
        f"row does not fit the schema: class={source} columns={names} row={shorten(row)} type={type(row).__name__}, "
        "is it a tuple, list, Row or pyarrow.RecordBatch with these columns?"
    )
