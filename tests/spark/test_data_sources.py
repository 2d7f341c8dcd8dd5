"""PySpark's Python data sources as sources and sinks, and a DataFrame as a source: every row, each once.

All but the last tests run on plain worker processes: a data source needs no JVM.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kit import assert_same_rows, finish, homes, kill, received, running
from pyspark.sql import Row, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    SimpleDataSourceStreamReader,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import LongType, StructField, StructType

import tailrace as tr
from tailrace.connector import Entry, SinkContext, SplitStart
from tailrace.errors import NotRepeatable, OptionError, TailraceError
from tailrace.runtime.connectors.fingerprint import fingerprint
from tailrace.spark.data_sink import to_data_source
from tailrace.spark.data_source import from_data_source
from tailrace.spark.dataframe import from_dataframe, sweep
from tailrace.testing.connectors import check_sink, check_source
from tailrace.testing.processes import wait_until

# --- data sources


class Counted(DataSource):
    """Options: ``rows`` in all, or a file ``upto`` that says how many there are by now."""

    def schema(self) -> str:
        return "n long, name string"

    @property
    def upto(self) -> int:
        if "upto" in self.options:
            return int(Path(self.options["upto"]).read_text())
        return int(self.options["rows"])


class Counter2(Counted):
    """Partitioned, two partitions a batch, as many rows a batch as ``step`` says. Notes what was committed."""

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return CounterReader(self)


@dataclass
class Range(InputPartition):
    first: int
    end: int


class CounterReader(DataSourceStreamReader):
    def __init__(self, source: Counted) -> None:
        self.source = source
        self.options = source.options

    def initialOffset(self) -> dict[str, int]:
        return {"n": 0}

    def getDefaultReadLimit(self) -> ReadMaxRows:
        return ReadMaxRows(int(self.options.get("STEP", "7")))  # options do not care for case

    def latestOffset(self, start: dict[str, int], limit: ReadMaxRows) -> dict[str, int]:
        time.sleep(float(self.options.get("pause", "0")))
        return {"n": min(self.source.upto, start["n"] + limit.max_rows)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        middle = (start["n"] + end["n"]) // 2
        return [Range(start["n"], middle), Range(middle, end["n"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        assert isinstance(partition, Range)
        for n in range(partition.first, partition.end):
            yield n, f"row {n}"

    def commit(self, end: dict[str, int]) -> None:
        if "committed" in self.options:
            with Path(self.options["committed"]).open("a") as file:
                file.write(json.dumps(end) + "\n")


class OldCounter(Counted):
    """Before Spark 4.2: ``latestOffset`` without arguments. Rows by name, in another order than the schema's."""

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return OldReader(self)


class OldReader(CounterReader):
    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]
        return {"n": self.source.upto}

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Range)
        return (Row(name=f"row {n}", n=n) for n in range(partition.first, partition.end))


class ArrowCounter(Counted):
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return ArrowReader(self)


class ArrowReader(CounterReader):
    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Range)
        numbers = range(partition.first, partition.end)
        yield pa.RecordBatch.from_pydict({"n": list(numbers), "name": [f"row {n}" for n in numbers]})


class Simple(Counted):
    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        return SimpleReader(self)


class SimpleReader(SimpleDataSourceStreamReader):
    def __init__(self, source: Counted) -> None:
        self.source = source

    def initialOffset(self) -> dict[str, int]:
        return {"n": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[Any, ...]], dict[str, int]]:
        end = {"n": min(self.source.upto, start["n"] + int(self.source.options.get("step", "7")))}
        return self.readBetweenOffsets(start, end), end

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[Any, ...]]:
        return iter([(n, f"row {n}") for n in range(start["n"], end["n"])])


class Fickle(Counter2):
    """Gives other rows each time, and from ``OldCounter`` everything else."""

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return FickleReader(self)


class FickleReader(OldReader):
    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Range)
        return ((n, uuid.uuid4().hex) for n in range(partition.first, partition.end))


class Narrow(Counter2):
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return NarrowReader(self)


class NarrowReader(OldReader):
    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield (1,)


@dataclass
class Staged(WriterCommitMessage):
    value: Any


class Folder(DataSource):
    """A file per batch in the folder ``path``, moved there by the commit: idempotent by batch id."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return FolderWriter(Path(self.options["path"]), self.options.get("fail"))


class FolderWriter(DataSourceStreamWriter):
    def __init__(self, path: Path, fail: str | None) -> None:
        self.path = path
        self.fail = Path(fail) if fail else None

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        self.path.mkdir(exist_ok=True)
        draft = self.path / f".{uuid.uuid4().hex}"
        draft.write_text(json.dumps([row.asDict() for row in iterator]))
        return Staged(draft)

    def commit(self, messages: list[Any], batchId: int) -> None:
        if self.fail is not None and self.fail.exists():
            raise ConnectionError(f"no commit of batch {batchId} today")
        for message in messages:
            message.value.rename(self.path / f"batch-{batchId}.json")

    def abort(self, messages: list[Any], batchId: int) -> None:
        (self.path / f"aborted-{batchId}").write_text(str(len(messages)))


class Table(DataSource):
    """An SQLite table that remembers the highest batch id, as transactional tables do."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return TableWriter(self.options["path"])


class TableWriter(DataSourceStreamWriter):
    def __init__(self, path: str) -> None:
        self.path = path

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        return Staged([tuple(row) for row in iterator])

    def commit(self, messages: list[Any], batchId: int) -> None:
        with closing(sqlite3.connect(self.path, timeout=30)) as database, database:
            database.execute("PRAGMA synchronous = OFF")  # processes are killed here, no power is cut
            database.execute("CREATE TABLE IF NOT EXISTS rows (n)")
            database.execute("CREATE TABLE IF NOT EXISTS batches (id)")
            (last,) = database.execute("SELECT max(id) FROM batches").fetchone()
            if last is None or batchId > last:
                database.execute("INSERT INTO batches VALUES (?)", (batchId,))
                for message in messages:
                    database.executemany("INSERT INTO rows VALUES (?)", [(row[0],) for row in message.value])


class ArrowFolder(DataSource):
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return ArrowFolderWriter(Path(self.options["path"]), None)


class ArrowFolderWriter(FolderWriter, DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return super().write(Row(**row) for batch in iterator for row in batch.to_pylist())


class Forgetful(DataSource):
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return ForgetfulWriter()


class ForgetfulWriter(DataSourceStreamWriter):
    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        return None  # type: ignore[return-value]


class Bare(DataSource):
    """Neither reads nor writes."""


class NoSchema(Counter2):
    def schema(self) -> str:
        return DataSource.schema(self)  # type: ignore[return-value]


class OddSchema(Counter2):
    def schema(self) -> str:
        return ["n"]  # type: ignore[return-value]


# --- what the tests share


def batches(folder: Path) -> dict[int, list[Any]]:
    paths = folder.glob("batch-*.json")
    return {int(path.stem.removeprefix("batch-")): json.loads(path.read_text()) for path in paths}


def numbers(folder: Path) -> list[int]:
    return [row["n"] for rows in batches(folder).values() for row in rows]


def table_rows(path: Path) -> list[int]:
    if not path.exists():
        return []
    with closing(sqlite3.connect(path)) as database:
        return [n for (n,) in database.execute("SELECT n FROM rows")]


def assert_once(found: Iterable[int], rows: int) -> None:
    assert_same_rows(found, range(rows))


def expected(rows: int) -> list[dict[str, Any]]:
    return [{"n": n, "name": f"row {n}"} for n in range(rows)]


def only_n(row: dict[str, Any]) -> dict[str, Any]:
    return {"n": row["n"]}


def number_of(row: dict[str, Any]) -> int:
    return int(row["n"])


def open_writer(sink: Any, epoch: int, task: int = 0, tasks: int = 1, job: str = "0123456789abcdef") -> Any:
    return sink.open(SinkContext("out", task, tasks, epoch, job, lambda operator, message: None))


# --- reading


@pytest.mark.parametrize("source", [Counter2, OldCounter, ArrowCounter, Simple])
def test_the_law_of_sources(source: type[DataSource], tmp_path: Path) -> None:
    made = from_data_source(source, {"rows": "25", "Step": "7"}, log=tmp_path / "log", available_now=True)
    records = check_source(made)
    assert [record.value for record in records] == expected(25)
    offsets = [record.offset for record in records]
    if source is not OldCounter:
        assert offsets[6:8] == [6, 1 << 32], "seven rows a batch"


def test_a_stream_goes_on_when_there_is_more(tmp_path: Path) -> None:
    upto = tmp_path / "upto"
    upto.write_text("3")
    reader = from_data_source(Counter2, {"upto": str(upto)}, log=tmp_path / "log", poll_ms=5).open(SplitStart("stream"))
    assert len(reader.poll(10, 0)) == 3
    assert reader.poll(0, 0) == []
    assert reader.poll(10, 100) == []
    assert not reader.done
    assert reader.ready_ns == 100 + 5_000_000
    upto.write_text("4")
    assert [record.value["n"] for record in reader.poll(10, 200)] == [3]
    reader.close()


def test_the_first_plan_of_a_batch_counts(tmp_path: Path) -> None:
    """A reader that was declared dead and its successor plan the same batch, with different ends."""
    upto = tmp_path / "upto"
    for kind in (Counter2, Simple):
        source = from_data_source(kind, {"upto": str(upto), "step": "9"}, log=tmp_path / kind.__name__)
        upto.write_text("4")
        dead, successor = source.open(SplitStart("stream")), source.open(SplitStart("stream"))
        first = dead.poll(10, 0)
        upto.write_text("8")
        assert successor.poll(10, 0) == first
        assert successor.poll(10, 0) == [*dead.poll(2, 0), *dead.poll(10, 0)]
        files = sorted(path.name for path in source.log.iterdir())
        assert files == ["batch-000000000000.json", "batch-000000000001.json"]


def test_what_is_durable_is_committed_and_forgotten(tmp_path: Path) -> None:
    note = tmp_path / "committed"
    source = from_data_source(Counter2, {"rows": "25", "committed": str(note)}, log=tmp_path / "log")
    reader = source.open(SplitStart("stream"))
    records = [record for _ in range(4) for record in reader.poll(100, 0)]
    assert len(records) == 25
    reader.committed(records[6].offset + 1)
    assert not note.exists(), "the end of a batch is not known before the next one has begun"
    reader.committed(records[9].offset)
    reader.committed(records[9].offset + 1)
    assert note.read_text().splitlines() == ['{"n": 7}']
    assert len(list(source.log.iterdir())) == 4, "a position may still name the end of the batch before"
    again = source.open(SplitStart("stream", records[20].offset, fingerprint(records[19].value)))
    assert note.read_text().splitlines() == ['{"n": 7}', '{"n": 14}'], "what the position says is durable"
    assert again.poll(100, 0) == records[20:21]
    with pytest.raises(NotRepeatable) as caught:
        source.open(SplitStart("stream"))
    assert str(caught.value) == (
        f"log begins after the job: log={source.log} first=1, "
        "does it belong to an earlier job, whose checkpoint is gone?"
    )


def test_a_log_that_is_not_there_any_more(tmp_path: Path) -> None:
    source = from_data_source(Counter2, {"rows": "25"}, log=tmp_path / "log")
    with pytest.raises(NotRepeatable) as caught:
        source.open(SplitStart("stream", (3 << 32) + 1))
    assert str(caught.value) == (
        f"log does not know the batch: log={tmp_path / 'log'} batch=3 offset={(3 << 32) + 1}, "
        "is it the folder that the job began with?"
    )


def test_a_log_of_another_data_source(tmp_path: Path) -> None:
    from_data_source(Counter2, {"rows": "25"}, log=tmp_path).open(SplitStart("stream")).poll(1, 0)
    with pytest.raises(TailraceError) as caught:
        from_data_source(Simple, {"rows": "25"}, log=tmp_path).open(SplitStart("stream"))
    assert str(caught.value) == (
        f"log belongs to another data source: file={tmp_path / 'batch-000000000000.json'} found=Counter2 ours=Simple, "
        "do two sources share the folder?"
    )


def test_a_data_source_that_is_not_repeatable(tmp_path: Path) -> None:
    source = from_data_source(Fickle, {"rows": "5"}, log=tmp_path)
    records = source.open(SplitStart("stream")).poll(2, 0)
    last = fingerprint(records[1].value)
    with pytest.raises(NotRepeatable, match=r"something else when read again: class=Fickle batch=0 row=1 before=\{'n'"):
        source.open(SplitStart("stream", 2, last))


def test_a_row_that_does_not_fit_the_schema(tmp_path: Path) -> None:
    reader = from_data_source(Narrow, {"rows": "5"}, log=tmp_path).open(SplitStart("stream"))
    with pytest.raises(TailraceError) as caught:
        reader.poll(1, 0)
    assert str(caught.value) == (
        "row does not fit the schema: class=Narrow columns=['n', 'name'] row=(1,) type=tuple, "
        "is it a tuple, list, Row or pyarrow.RecordBatch with these columns?"
    )


# --- writing


def test_the_law_of_sinks_with_a_folder(tmp_path: Path) -> None:
    def make() -> Any:
        place = tmp_path / uuid.uuid4().hex
        return to_data_source(Folder, {"path": str(place / "out")}, schema="n long", log=place / "log")

    check_sink(make, lambda sink: [{"n": n} for n in numbers(Path(sink.options["path"]))])


def test_the_law_of_sinks_with_a_table(tmp_path: Path) -> None:
    def make() -> Any:
        name = uuid.uuid4().hex
        return to_data_source(Table, {"path": str(tmp_path / name)}, schema="n long", log=tmp_path / f"{name}-log")

    check_sink(make, lambda sink: [{"n": n} for n in table_rows(Path(sink.options["path"]))])


def test_batch_ids_go_on_after_a_restart_and_a_change_of_tasks(tmp_path: Path) -> None:
    out, log = tmp_path / "out", tmp_path / "log"
    sink = to_data_source(Folder, {"path": str(out)}, schema="n long", log=log, max_tasks=4)
    offset = 0
    for epoch, tasks in enumerate([2, 1, 4], 1):
        for task in range(tasks):
            writer = open_writer(sink, epoch, task, tasks)
            writer.recover({"split": offset})
            for _ in range(2):
                writer.write((offset,))
                writer.commit([Entry("split", offset, offset)])
                offset += 1
                writer.forget({"split": offset})
            writer.close()
    assert sorted(batches(out)) == sorted([0, 4, 1, 5, 8, 12, 16, 20, 9, 13, 2, 6, 3, 7])
    assert_once(numbers(out), offset)
    assert len(list(log.glob("part-*"))) == 4, "one batch a task is enough to know the next id"


def test_a_commit_that_fails_is_aborted_and_done_again_under_its_id(tmp_path: Path) -> None:
    out, fail = tmp_path / "out", tmp_path / "fail"
    options = {"path": str(out), "fail": str(fail)}
    sink = to_data_source(Folder, options, schema="n long", log=tmp_path / "log")
    fail.touch()
    writer = open_writer(sink, 1)
    writer.recover({})
    writer.write({"n": 0})
    with pytest.raises(ConnectionError):
        writer.commit([Entry("split", 0, 7)])
    with pytest.raises(TailraceError, match="writer is broken by a failed commit"):
        writer.commit([Entry("split", 0, 7)])
    assert (out / "aborted-0").read_text() == "1"
    fail.unlink()
    assert list(open_writer(sink, 2).recover({})) == [Entry("split", 0, 7)]
    assert batches(out) == {0: [{"n": 0}]}


def test_rows_as_arrow_batches(tmp_path: Path) -> None:
    sink = to_data_source(ArrowFolder, {"path": str(tmp_path / "out")}, schema="n long, b string", log=tmp_path / "log")
    writer = open_writer(sink, 1)
    writer.recover({})
    writer.write(Row(b="x", n=1))
    writer.write({"n": 2})
    writer.commit([Entry("split", 0, 0), Entry("split", 1, 1)])
    assert batches(tmp_path / "out") == {0: [{"n": 1, "b": "x"}, {"n": 2, "b": None}]}


def test_rows_that_do_not_fit_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    sink = to_data_source(Folder, {"path": str(tmp_path / "out")}, schema="n long", log=tmp_path / "log")
    writer = open_writer(sink, 1)
    writer.recover({})
    with pytest.raises(TypeError, match=r"row does not fit: unknown=\['m'\] columns=\['n'\]"):
        writer.write({"m": 1})
    writer.write({"n": "one"})
    with pytest.raises(TypeError, match=r"row does not fit the column: column=n type=int64 value='one'"):
        writer.commit([Entry("split", 0, 0)])
    assert not (tmp_path / "out").exists()


def test_a_writer_without_a_commit_message(tmp_path: Path) -> None:
    writer = open_writer(to_data_source(Forgetful, schema="n long", log=tmp_path), 1)
    writer.recover({})
    writer.write({"n": 1})
    with pytest.raises(TailraceError) as caught:
        writer.commit([Entry("split", 0, 0)])
    assert str(caught.value) == (
        "stream writer returned no commit message: class=ForgetfulWriter returned=None type=NoneType, "
        "did you forget to return one?"
    )


def test_a_log_of_another_job(tmp_path: Path) -> None:
    sink = to_data_source(Folder, {"path": str(tmp_path / "out")}, schema="n long", log=tmp_path)
    open_writer(sink, 1, job="a" * 32)
    with pytest.raises(
        TailraceError, match=re.escape(f"log belongs to another sink: log={tmp_path} found={{'job': 'a")
    ):
        open_writer(sink, 1, job="b" * 32)


def test_more_tasks_than_batch_ids(tmp_path: Path) -> None:
    sink = to_data_source(Folder, {"path": str(tmp_path / "out")}, schema="n long", log=tmp_path)
    with pytest.raises(OptionError) as caught:
        open_writer(sink, 1, 0, 2)
    assert str(caught.value) == (
        "sink has more tasks than batch ids: class=Folder tasks=2 max_tasks=1, "
        "does the data source tell batch ids apart one by one? Then say max_tasks=2."
    )


# --- refusals

Refusal = tuple[Callable[[], Any], str]
REFUSALS: dict[str, Refusal] = {
    "no reader": (
        lambda: from_data_source(Folder, log="log"),
        "data source has no stream reader: class=Folder, did you forget to define streamReader or simpleStreamReader?",
    ),
    "no writer": (
        lambda: to_data_source(Bare, schema="n long", log="log"),
        "data source has no stream writer: class=Bare, did you forget to define streamWriter?",
    ),
    "not a data source": (
        lambda: from_data_source(int, log="log"),  # type: ignore[arg-type]
        "not a data source: from_data_source=<class 'int'> type=type, is it a subclass of DataSource?",
    ),
    "not a class": (
        lambda: to_data_source(Folder({}), schema="n long", log="log"),  # type: ignore[arg-type]
        None,
    ),
    "option": (
        lambda: from_data_source(Counter2, {"rows": 5}, log="log"),  # type: ignore[dict-item]
        "option is not a string: class=Counter2 option=rows value=5 type=int, did you mean '5'?",
    ),
    "name of option": (
        lambda: to_data_source(Folder, {5: "rows"}, schema="n long", log="log"),  # type: ignore[dict-item]
        "name of an option is not a string: class=Folder option=5 type=int, did you swap name and value?",
    ),
    "source without log": (
        lambda: from_data_source(Counter2, {"rows": "5"}),
        "log folder is missing: from_data_source=Counter2 log=None, did you forget log='folder'? "
        "Without it nothing is known after a restart.",
    ),
    "sink without log": (
        lambda: to_data_source(Folder, schema="n long", log=""),
        "log folder is missing: to_data_source=Folder log='', did you forget log='folder'? "
        "Without it nothing is known after a restart.",
    ),
    "no schema": (
        lambda: from_data_source(NoSchema, {"rows": "5"}, log="log"),
        "data source has no schema: class=NoSchema, did you forget schema='id long, name string'?",
    ),
    "odd schema": (
        lambda: from_data_source(OddSchema, {"rows": "5"}, log="log"),
        "not a schema: class=OddSchema schema=['n'] type=list, "
        "did you mean a string like 'id long, name string', or a StructType?",
    ),
    "column twice": (
        lambda: to_data_source(Folder, schema=StructType([StructField("n", LongType())] * 2), log="log"),
        "schema names a column twice: class=Folder columns=['n'], is one of them a typo?",
    ),
    "poll_ms": (
        lambda: from_data_source(Counter2, {"rows": "5"}, log="log", poll_ms=0),
        "option must be positive: poll_ms=0, did you mean to leave it out?",
    ),
    "roll_rows": (
        lambda: to_data_source(Folder, schema="n long", log="log", roll_rows=0),
        "option must be positive: roll_rows=0, did you mean to leave it out?",
    ),
    "dataframe": (
        lambda: from_dataframe([1]),  # type: ignore[arg-type]
        "not a DataFrame: from_dataframe=[1] type=list, is it a table?",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name: str) -> None:
    make, text = REFUSALS[name]
    with pytest.raises(OptionError) as caught:
        make()
    if name == "not a class":
        assert str(caught.value).endswith("type=Folder, did you mean its class?")
    else:
        assert str(caught.value) == text


# --- whole runs


def _copy(source: Any, sink: Any, tasks: int = 1, sinks: int = 1) -> tr.Topology:
    topology = tr.Topology("copy")
    rows = topology.source("rows", source, tasks=tasks)
    rows.map("only", only_n, tasks=2).sink("out", sink, tasks=sinks)
    return topology


ROWS = 6000


@pytest.mark.parametrize("victim", ["rows", "out"])
@pytest.mark.parametrize("kind", [Counter2, Simple])
def test_a_worker_is_killed(kind: type[DataSource], victim: str, tmp_path: Path) -> None:
    options = {"rows": str(ROWS), "step": "50", "pause": "0.01"}
    source = from_data_source(kind, options, log=tmp_path / "in", available_now=True)
    target = tmp_path / "out"
    sink = to_data_source(Table, {"path": str(target)}, schema="n long", log=tmp_path / "log", roll_seconds=0.05)
    topology = _copy(source, sink)
    (worker,) = homes(topology, 2, victim)
    with running(topology, workers=2, max_pending=300) as run:
        for least in (500, 2000):
            wait_until(lambda least=least: received(run, "out") > least, 30, "rows at the sink")
            kill(run, worker)
        finish(run)
    assert_once(table_rows(target), ROWS)


def test_both_ends_are_killed_with_several_tasks(tmp_path: Path) -> None:
    options = {"rows": str(ROWS), "step": "50", "pause": "0.01"}
    source = from_data_source(Counter2, options, log=tmp_path / "in", available_now=True)
    out = tmp_path / "out"
    sink = to_data_source(
        Folder, {"path": str(out)}, schema="n long", log=tmp_path / "log", roll_seconds=0.05, max_tasks=2
    )
    with running(_copy(source, sink, tasks=2, sinks=2), workers=2, max_pending=300) as run:
        for worker in (0, 1):
            least = received(run, "out") + 800
            wait_until(lambda least=least: received(run, "out") > least, 30, "rows at the sink")
            kill(run, worker)
        finish(run)
    assert_once(numbers(out), ROWS)


def test_runs_that_resume_a_checkpoint(tmp_path: Path) -> None:
    """The first is given up in the middle, the second reads to the end, the third finds what was added."""
    upto, target, note = tmp_path / "upto", tmp_path / "table", tmp_path / "committed"
    upto.write_text("3000")
    options = {"upto": str(upto), "step": "50", "pause": "0.01", "committed": str(note)}

    def start() -> tr.Run:
        source = from_data_source(Counter2, options, log=tmp_path / "in", available_now=True)
        sink = to_data_source(Table, {"path": str(target)}, schema="n long", log=tmp_path / "log", roll_seconds=0.05)
        return _copy(source, sink).run(workers=2, checkpoint=tmp_path / "checkpoint", max_pending=300)

    run = start()
    wait_until(lambda: received(run, "out") > 1000, 30, "rows at the sink")
    run.stop(timeout=0)
    assert len(table_rows(target)) < 3000
    finish(start())
    assert_once(table_rows(target), 3000)
    upto.write_text("3500")
    finish(start())
    assert_once(table_rows(target), 3500)
    committed = [json.loads(line)["n"] for line in note.read_text().splitlines()]
    assert committed == sorted(committed)
    assert committed[-1] >= 2900, "the data source is told what is durable, if not at once"


def test_a_run_without_its_checkpoint_is_refused(tmp_path: Path) -> None:
    def start() -> tr.Run:
        source = from_data_source(Counter2, {"rows": "10"}, log=tmp_path / "in", available_now=True)
        sink = to_data_source(Table, {"path": str(tmp_path / "t")}, schema="n long", log=tmp_path / "log")
        return _copy(source, sink).run(workers=2)

    finish(start())
    with pytest.raises(TailraceError, match=r"log belongs to another sink.*did you forget the checkpoint"):
        start().awaitTermination(60)


# --- a DataFrame


def test_the_law_of_dataframes(spark: SparkSession) -> None:
    frame = spark.range(2500).selectExpr("id AS n", "timestamp_seconds(id) AS at", "array(id) AS list")
    source = from_dataframe(frame, splits=3)
    assert len(source.splits(2)) == 3
    records = check_source(from_dataframe(spark.range(40).selectExpr("id AS n"), splits=3))
    assert_once([record.value["n"] for record in records], 40)
    first = source.open(SplitStart(source.splits(1)[0], 600)).poll(1, 0)[0]
    assert first.offset == 600
    assert first.value["at"] == datetime.fromtimestamp(first.value["n"], UTC)
    assert first.value["list"] == [first.value["n"]]
    source.delete()
    assert not source.folder.exists()
    with pytest.raises(TailraceError, match=r"file is not there: file=.*, is the folder reachable by this worker\?"):
        source.open(SplitStart("part-0.parquet"))


def test_a_dataframe_through_a_topology(spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    frame = spark.range(5000).selectExpr("id AS n")
    out = tr.to_list()
    topology = _copy(from_dataframe(frame, splits=4, folder=tmp_path / "rows"), out, tasks=2)
    finish(topology.run(workers=2))
    assert_once(map(number_of, out.values), 5000)
    with caplog.at_level(logging.WARNING):
        again = from_dataframe(frame, folder=tmp_path / "rows")
    assert "rows are there already" in caplog.text
    assert len(again.splits(1)) == 4, "a folder that is complete is read as it is"
    assert sum(len(again.open(SplitStart(name)).poll(9999, 0)) for name in again.splits(1)) == 5000


def test_an_empty_dataframe(spark: SparkSession) -> None:
    assert check_source(from_dataframe(spark.range(10).where("id < 0"))) == []
    assert check_source(from_dataframe(spark.createDataFrame([], "n long"))) == []


def test_dataframes_that_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(3)
    with pytest.raises(OptionError) as caught:
        from_dataframe(spark.readStream.format("rate").load())
    assert str(caught.value) == (
        "DataFrame is streaming: from_dataframe takes bounded ones, did you mean from_data_source?"
    )
    (tmp_path / "precious.txt").touch()
    with pytest.raises(OptionError) as caught:
        from_dataframe(frame, folder=tmp_path)
    assert str(caught.value) == (
        f"folder holds something else: folder={tmp_path} found=['precious.txt'], did you mean a new folder in it?"
    )
    from_dataframe(frame, folder=tmp_path / "rows")
    with pytest.raises(OptionError) as caught:
        from_dataframe(frame.withColumnRenamed("id", "n"), folder=tmp_path / "rows")
    assert str(caught.value) == (
        f"folder holds another DataFrame: folder={tmp_path / 'rows'} found=['id'] columns=['n'], "
        "did you mean another folder?"
    )
    with pytest.raises(OptionError, match=r"option must be a positive number: splits=0"):
        from_dataframe(frame, splits=0)


def test_rows_of_a_driver_that_was_killed_are_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for name in (f"tailrace-dataframe-{ended.pid}-x", f"tailrace-dataframe-{os.getpid()}-y", "tailrace-dataframe-z"):
        (tmp_path / name / "rows").mkdir(parents=True)
    sweep()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"tailrace-dataframe-{os.getpid()}-y",
        "tailrace-dataframe-z",
    ]
