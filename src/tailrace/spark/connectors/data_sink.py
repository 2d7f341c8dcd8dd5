"""Any PySpark Python data source with a stream writer is a committing sink.

A commit hands the rows to the data source's ``write``, then makes rows and entries durable in the log, which is the
commit point, then calls the data source's ``commit`` under a batch id, then marks the batch as done. A successor
that finds a batch not done writes and commits it again under the same id, as Spark does after a failure. The data
source must therefore show a batch id that it sees twice only once.

::

    log/owner.json                                                         job, operator and max_tasks
    log/part-<operator>-<job>-<task>-e<epoch>-<number>.rows                 a batch: see ``_Part``
    log/_tailrace/…                                                        see ``runtime/connectors/commits/files.py``
"""

from __future__ import annotations

import json
import os
import pickle
import re
import struct
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import Row
from pyspark.sql import datasource as _datasource
from pyspark.sql.datasource import DataSource, WriterCommitMessage
from pyspark.sql.types import StructType

from tailrace.clock import SECOND_NS
from tailrace.connector import CommittingWriter, Entry, SinkContext
from tailrace.errors import OptionError, TailraceError, shorten
from tailrace.runtime.connectors.commits.disk import make_directory, sync_directory, write_file
from tailrace.runtime.connectors.commits.files import PartFiles, check_roll
from tailrace.runtime.connectors.schemas.columns import Columns
from tailrace.spark.connectors.data_options import as_arrow, as_struct, check_class, check_log, check_options, make

_NAME = re.compile(r"part-.*-(?P<stem>(?P<task>\d+)-e(?P<epoch>\d+)-(?P<number>\d+))\.rows")
_HEADER = struct.Struct("<QQ")  # batch id, bytes of rows that follow
_ARROW_WRITER: Any = getattr(_datasource, "DataSourceStreamArrowWriter", ())  # from Spark 4.1


@dataclass(frozen=True)
class StreamSink:
    """See ``to_data_source``."""

    data_source: type[DataSource]
    options: Mapping[str, str]
    schema: StructType
    log: Path
    roll_ns: int
    roll_rows: int
    max_tasks: int
    committing: bool = True

    def open(self, context: SinkContext) -> CommittingWriter[Any]:
        if context.tasks > self.max_tasks:
            raise OptionError(
                f"sink has more tasks than batch ids: class={self.data_source.__name__} tasks={context.tasks} "
                f"max_tasks={self.max_tasks}, does the data source tell batch ids apart one by one? "
                f"Then say max_tasks={context.tasks}."
            )
        return StreamWriter(self, context)


class StreamWriter:
    """Holds rows until they are committed as one batch."""

    def __init__(self, sink: StreamSink, context: SinkContext) -> None:
        self._sink = sink
        self._context = context
        self._names = sink.schema.fieldNames()
        arrow = as_arrow(sink.schema)
        self._columns = Columns(arrow)
        self._check = self._columns.check
        self._rows: list[tuple[Any, ...]] = []
        self._sequence = 0  # of the next batch
        self._number = 0  # of the next commit, as PartFiles counts
        self._broken = False
        self.commit_every_ns = sink.roll_ns
        make_directory(sink.log)
        _claim(sink, context)
        self._data_source = make(sink.data_source, sink.options)
        self._files = PartFiles(sink.log, "rows", context)

    def write(self, value: Any) -> None:
        if isinstance(value, Row) and hasattr(value, "__fields__"):
            value = value.asDict()
        self._check(value)
        self._rows.append(tuple(map(value.get, self._names)) if isinstance(value, dict) else tuple(value))

    @property
    def full(self) -> bool:
        return len(self._rows) >= self._sink.roll_rows

    def recover(self, prefixes: Mapping[str, int]) -> Iterable[Entry]:
        entries = self._files.recover(prefixes)
        for part in self._parts():
            if self._owns(part.task):
                self._finish(part)
            if part.task == self._context.task:
                self._sequence = max(self._sequence, part.batch_id // self._sink.max_tasks + 1)
        return entries

    def commit(self, entries: Sequence[Entry]) -> None:
        if not self._rows:
            if entries:
                self._log(None, 0, entries)
            return
        if self._broken:
            raise TailraceError(
                f"writer is broken by a failed commit: log={self._sink.log}, did the runtime open it again?"
            )
        batch_id = self._sequence * self._sink.max_tasks + self._context.task
        rows = self._rows
        table = self._columns.table(rows)
        attempt = _Attempt(self._new_writer(), batch_id)
        attempt.write(self._input(attempt.writer, rows, table))
        path = self._log(_encoded(batch_id, rows), len(rows), entries)
        self._sequence += 1
        self._broken = True  # if this fails, only a successor may retry, under the same batch id
        attempt.commit()
        _mark_done(path)
        self._rows = []
        self._broken = False

    def forget(self, prefixes: Mapping[str, int]) -> None:
        """Drop entries, and batches that have none left. A task's newest batch stays: the next id follows from it."""
        self._files.forget(prefixes)
        kept = {path.stem for path in self._sink.log.glob("_tailrace/*/manifests/*.manifest")}
        newest: dict[int, int] = {}
        parts = [part for part in self._parts() if self._owns(part.task)]
        for part in parts:
            newest[part.task] = max(part.batch_id, newest.get(part.task, 0))
        for part in parts:
            if part.done and part.stem not in kept and part.batch_id < newest[part.task]:
                part.path.unlink(missing_ok=True)

    def close(self) -> None:
        self._rows = []
        self._files.close()

    def _owns(self, task: int) -> bool:
        """Whether this task finishes the batches of ``task``: of itself, or of one that this run no longer has."""
        return task % self._context.tasks == self._context.task

    def _log(self, data: bytes | None, rows: int, entries: Sequence[Entry]) -> Path:
        """Make rows and entries durable, which is the commit point. Returns the path of the batch."""
        self._files.commit(data, rows, entries)
        stem = f"{self._context.task:05d}-e{self._context.epoch}-{self._number:06d}"
        self._number += 1
        return next(self._sink.log.glob(f"part-*-{stem}.rows"), self._sink.log / stem)

    def _finish(self, part: _Part) -> None:
        """Write and commit a logged batch to the data source, which its writer may not have done."""
        rows = part.rows()
        if rows is not None:
            attempt = _Attempt(self._new_writer(), part.batch_id)
            attempt.write(self._input(attempt.writer, rows, self._columns.table(rows)))
            attempt.commit()
            _mark_done(part.path)

    def _parts(self) -> list[_Part]:
        """All batches in the log, by batch id."""
        found = (_read_part(path) for path in self._sink.log.iterdir())
        return sorted((part for part in found if part is not None), key=lambda part: part.batch_id)

    def _new_writer(self) -> Any:
        """A new writer for each batch, as in Spark: its attributes belong to that batch."""
        return self._data_source.streamWriter(self._sink.schema, False)

    def _input(self, writer: Any, rows: Sequence[tuple[Any, ...]], table: Any) -> Iterator[Any]:
        if _ARROW_WRITER and isinstance(writer, _ARROW_WRITER):
            return iter(table.to_batches())
        row = Row(*self._names)
        return (row(*values) for values in rows)


class _Attempt:
    """One attempt at a batch. It calls the data source's ``abort`` if it fails."""

    def __init__(self, writer: Any, batch_id: int) -> None:
        self.writer = writer
        self._batch_id = batch_id
        self._message: Any = None

    def write(self, rows: Iterator[Any]) -> None:
        try:
            message = self.writer.write(rows)
            if not isinstance(message, WriterCommitMessage):
                raise TailraceError(
                    f"stream writer returned no commit message: class={type(self.writer).__name__} "
                    f"returned={shorten(message)} type={type(message).__name__}, did you forget to return one?"
                )
        except Exception:
            self._abort()
            raise
        self._message = message

    def commit(self) -> None:
        try:
            self.writer.commit([self._message], self._batch_id)
        except Exception:
            self._abort()
            raise

    def _abort(self) -> None:
        with suppress(Exception):  # the error that led here is the one to report
            self.writer.abort([self._message], self._batch_id)


class _Part(NamedTuple):
    """A batch in the log. Its file holds the batch id and the pickled rows, or only the id once the batch is done."""

    batch_id: int
    task: int
    stem: str
    done: bool
    path: Path

    def rows(self) -> list[tuple[Any, ...]] | None:
        """The rows; None once the batch is done. That may happen at any time: a writer declared dead may finish it."""
        data = self.path.read_bytes()
        if len(data) == _HEADER.size:
            return None
        _, size = _HEADER.unpack_from(data)
        if len(data) - _HEADER.size == size:
            rows: list[tuple[Any, ...]] = pickle.loads(memoryview(data)[_HEADER.size :])
            return rows
        if self.path.stat().st_size == _HEADER.size:
            return None
        raise TailraceError(
            f"batch in the log is damaged: file={self.path} bytes={len(data)} expected={size + _HEADER.size}, "
            "did something else write to it?"
        )


def _read_part(path: Path) -> _Part | None:
    match = _NAME.fullmatch(path.name)
    if match is None:
        return None
    try:
        with path.open("rb") as file:
            batch_id, _ = _HEADER.unpack(file.read(_HEADER.size))
            done = file.seek(0, os.SEEK_END) == _HEADER.size
    except FileNotFoundError:  # another task has just deleted it
        return None
    return _Part(batch_id, int(match["task"]), match["stem"], done, path)


def _encoded(batch_id: int, rows: Sequence[tuple[Any, ...]]) -> bytes:
    data = pickle.dumps(rows, protocol=5)
    return _HEADER.pack(batch_id, len(data)) + data


def _mark_done(path: Path) -> None:
    with suppress(FileNotFoundError):  # a successor was faster, and has deleted it since
        os.truncate(path, _HEADER.size)


def _claim(sink: StreamSink, context: SinkContext) -> None:
    """Claim the log for this operator and job, or raise: for another one its batch ids would mean other rows."""
    path = sink.log / "owner.json"
    ours = {"job": context.job_id, "operator": context.operator, "max_tasks": sink.max_tasks}
    draft = sink.log / f".owner.{uuid.uuid4().hex}"
    if not path.exists():
        write_file(draft, json.dumps(ours).encode())
        with suppress(FileExistsError):
            os.link(draft, path)
        draft.unlink()
        sync_directory(sink.log)
    found = json.loads(path.read_bytes())
    if found != ours:
        raise TailraceError(
            f"log belongs to another sink: log={sink.log} found={found} ours={ours}, did you forget the checkpoint, "
            "or is it a new job that needs a log and a target of its own?"
        )


def to_data_source(
    data_source: type[DataSource],
    options: Mapping[str, str] | None = None,
    *,
    schema: str | StructType,
    log: str | Path | None = None,
    roll_seconds: float = 1.0,
    roll_rows: int = 10_000,
    max_tasks: int = 1,
) -> StreamSink:
    """Write rows with the stream writer of a PySpark Python data source, **each once** if it is idempotent by batch id.

    Rows are dicts, tuples or Rows that fit the schema. Batch ids rise by 1, from 0.

    Args:
        data_source: a subclass of ``pyspark.sql.datasource.DataSource`` with a stream writer.
        options: its options, as for ``df.writeStream.options``.
        schema: the columns, as a ``StructType`` or in Spark's words: ``"id long, name string"``.
        log: a folder that all workers reach, one for each job and sink.
        roll_seconds: a batch is committed so long after its first row.
        roll_rows: a batch is committed once it has as many rows.
        max_tasks: how many tasks the sink may have. With *n* of them task *t* uses the batch ids *t*, *t + n*, *t + 2n*
            and so on, in no order among tasks: only for data sources that remember each id, not just the highest.

    Example:
        >>> from typing import Any
        >>> from pyspark.sql.datasource import DataSource
        >>> class Table(DataSource):
        ...     @classmethod
        ...     def name(cls) -> str:
        ...         return "table"
        ...     def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        ...         raise NotImplementedError("writes rows to somewhere")
        >>> numbers = tr.Topology("numbers").source("numbers", tr.from_iterable(range(10)))
        >>> rows = numbers.map("row", lambda number: {"number": number})
        >>> rows.sink("out", tr.to_data_source(Table, schema="number long", log="log/"))
    """
    source = check_class(data_source, "to_data_source")
    checked = check_options(source, options)
    if source.streamWriter is DataSource.streamWriter:
        raise OptionError(
            f"data source has no stream writer: class={source.__name__}, did you forget to define streamWriter?"
        )
    folder = check_log(source, log, "to_data_source")
    check_roll(roll_seconds=roll_seconds, roll_rows=roll_rows, max_tasks=max_tasks)
    struct_type = as_struct(schema, source)
    return StreamSink(source, checked, struct_type, folder, int(roll_seconds * SECOND_NS), roll_rows, max_tasks)
