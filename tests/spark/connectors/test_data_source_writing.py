"""The stream writer of a PySpark data source as a committing sink: each row once, under ids that it can tell apart."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from kit.data_sources import Folder, FolderWriter, Table, assert_once, batches, numbers, table_rows
from tailrace.connector import Entry, SinkContext
from tailrace.errors import OptionError, TailraceError
from tailrace.spark.connectors.data_sink import to_data_source
from tailrace.testing.connectors import check_sink


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


def open_writer(sink: Any, epoch: int, task: int = 0, tasks: int = 1, job: str = "0123456789abcdef") -> Any:
    return sink.open(SinkContext("out", task, tasks, epoch, job, lambda operator, message: None))


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
    for bad in ({"n": "one"}, {"n": 1.5}):
        with pytest.raises(TypeError, match=r"row does not fit the column: column=n type=int64 value=('one'|1\.5)"):
            writer.write(bad)
    assert not (tmp_path / "out").exists()
    writer.write({"n": 1})
    writer.write({"n": 2})
    writer.commit([Entry("split", 0, 0), Entry("split", 1, 1)])
    assert batches(tmp_path / "out") == {0: [{"n": 1}, {"n": 2}]}


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
