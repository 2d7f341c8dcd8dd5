"""Tables and streams of what file sinks commit: all of it, each row once, and nothing that is not committed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import tailrace as tr
from kit.runs import assert_prefixes, assert_same_rows, finish, kill, received, row, running, stop
from kit.spark import running_on
from tailrace.connector import Entry, SinkContext
from tailrace.errors import OptionError, TailraceError
from tailrace.testing.processes import wait_until

ENDLESS = range(10_000_000)
PER_SECOND = 1000
SPLITS = 2


def write(sink: Any, *commits: list[Any], operator: str = "out", job: str = "0123456789abcdef") -> None:
    """Commit rows as a sink's task does, a file for each list."""
    writer = sink.open(SinkContext(operator, 0, 1, 1, job, lambda *_: None))
    for number, rows in enumerate(commits):
        for value in rows:
            writer.write(value)
        writer.commit([Entry("s", number, place) for place in range(len(rows))])
    writer.close()


def numbers_topology(sink: Any, numbers: range = ENDLESS) -> tr.Topology:
    topology = tr.Topology("numbers")
    source = topology.source("numbers", tr.at_rate(numbers, PER_SECOND), tasks=SPLITS)
    source.map("row", row, tasks=2).sink("out", sink, tasks=2)
    return topology


def await_rows(run: tr.Run, more: int = 300) -> None:
    least = received(run, "out") + more
    wait_until(lambda: received(run, "out") >= least, 30, "rows at the sink")


def numbers_in(frame: DataFrame) -> list[int]:
    found: list[int] = frame.select("n").toArrow().column("n").to_pylist()
    return found


def read_all(stream: DataFrame, folder: Path, **options: Any) -> list[int]:
    """What a query of the stream has written once it has read all that is there now."""
    query = stream.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    query.option("path", str(folder / "rows")).trigger(availableNow=True).start().awaitTermination()
    return numbers_in(stream.sparkSession.read.parquet(str(folder / "rows")))


# -- a table of what is there


def test_the_table_of_a_run_whose_workers_die(spark: SparkSession, tmp_path: Path) -> None:
    """Whatever it shows at any time is there at the end, once."""
    seen: list[list[int]] = []
    sink = tr.to_parquet(tmp_path, schema="n long", roll_seconds=0.2)
    with running(numbers_topology(sink), workers=2, max_pending=2000) as run:
        for worker in (0, 1, 0):
            await_rows(run)
            first = run.table(spark)
            seen += [numbers_in(first)]
            kill(run, worker)
            seen += [numbers_in(run.table(spark)), numbers_in(first)]
            assert sorted(seen[-1]) == sorted(seen[-3]), "a table stays as it is"
        stop(run)
    final = numbers_in(run.table(spark))
    assert_prefixes(final, SPLITS, 900)
    for found in seen:
        assert len(set(found)) == len(found), "a row is there twice"
        assert set(found) <= set(final), "a row was there, and is gone"
    assert max(map(len, seen)) > 300, "the tables in between show nothing"


@pytest.mark.slow
def test_the_table_of_a_run_on_spark_itself(spark: SparkSession, tmp_path: Path) -> None:
    topology = numbers_topology(tr.to_jsonl(tmp_path, roll_seconds=0.1), range(3000))
    with running_on(spark, topology, workers=2) as run:
        wait_until(lambda: any(tmp_path.glob("part-*")), 30, "a file")
        assert numbers_in(run.table()), "the session is that of the run"
        finish(run)
    assert_same_rows(numbers_in(run.table()), range(3000))


def test_all_types_come_back(spark: SparkSession, tmp_path: Path) -> None:
    schema = (
        "a long, b string, c timestamp, d timestamp_ntz, e decimal(12,3), f array<string>, g map<string,long>, "
        "h struct<x:long,y:date>, i binary, j double, k boolean"
    )
    at = datetime(2024, 2, 29, 12, 30, 0, 123456)
    full = {
        "a": 2**40,
        "b": "ü\n",
        "c": at.replace(tzinfo=UTC),
        "d": at,
        "e": Decimal("12.345"),
        "f": ["x", None],
        "g": {"k": 1},
        "h": {"x": 1, "y": date(2024, 1, 2)},
        "i": b"\x00",
        "j": 0.5,
        "k": True,
    }
    sink = tr.to_parquet(tmp_path, schema=schema)
    write(sink, [full], [{}])
    batch = tr.read_stream(spark, sink).schema
    (found, empty) = sorted(spark.read.schema(batch).parquet(str(tmp_path)).collect(), key=lambda one: one.a is None)
    expected = {**full, "c": found.c, "i": bytearray(b"\x00")}  # collect() gives local time
    assert found.asDict(recursive=True) == expected
    assert found.c.astimezone(UTC) == full["c"]
    assert set(empty.asDict().values()) == {None}


def test_types_that_spark_reads_as_others(spark: SparkSession, tmp_path: Path) -> None:
    kinds = {"a": pa.uint8(), "b": pa.uint32(), "c": pa.uint64(), "d": pa.duration("us"), "e": pa.date64()}
    sink = tr.to_parquet(tmp_path / "out", schema=pa.schema(kinds))
    write(sink, [{"a": 255, "b": 2**32 - 1, "c": 2**64 - 1}])
    stream = tr.read_stream(spark, sink).select("a", "b", "c")
    query = stream.writeStream.format("memory").queryName("others").trigger(availableNow=True).start()
    query.awaitTermination()
    assert [tuple(one) for one in spark.table("others").collect()] == [(255, 2**32 - 1, Decimal(2**64 - 1))]


class Finished:
    """A run that has ended, for tests of its table alone."""

    def __init__(self, sink: Any, *names: str) -> None:
        topology = tr.Topology("finished")
        numbers = topology.source("numbers", tr.at_rate(range(10), 100))
        for name in names or ("out",):
            numbers.map(f"row-{name}", row).sink(name, sink)
        self.run = topology.run(workers=1)
        assert self.run.awaitTermination(60)


def test_a_table_has_the_rows_of_this_job_and_this_sink(spark: SparkSession, tmp_path: Path) -> None:
    """In a folder that they share with others; a stream has all of them."""
    sink = tr.to_parquet(tmp_path, schema="n long")
    write(sink, [{"n": 100}], operator="good")
    write(sink, [{"n": 200}], operator="good-0")
    write(tr.to_jsonl(tmp_path), [{"n": 300}], operator="lines")
    (tmp_path / "notes.parquet").write_text("no table")
    (tmp_path / ".part-hidden.parquet").write_text("no table")
    run = Finished(sink, "good", "bad").run
    assert sorted(numbers_in(run.table(spark, "good"))) == list(range(10))
    assert sorted(numbers_in(run.table(spark, "bad"))) == list(range(10))
    with pytest.raises(OptionError, match="several sinks write files: run=finished sinks=good,bad"):
        run.table(spark)
    everything = sorted([*range(10), *range(10), 100, 200])
    assert sorted(read_all(tr.read_stream(spark, sink), tmp_path / "query")) == everything


def test_a_folder_whose_name_looks_like_a_pattern(spark: SparkSession, tmp_path: Path) -> None:
    """Spark can read it at once. From a stream of it, it would read the rows of two files twice."""
    folder = tmp_path / "a [b]{c}*\\?"
    sink = tr.to_jsonl(folder, roll_seconds=0.001)
    run = Finished(sink).run
    assert len(list(folder.glob("part-*"))) > 1
    assert sorted(numbers_in(run.table(spark))) == list(range(10))
    with pytest.raises(OptionError) as told:
        tr.read_stream(spark, sink)
    assert str(told.value) == (
        f"Spark reads rows several times from a folder with such a name: folder={folder} "
        "characters=* ? [ \\ ] { }: could it be called otherwise?"
    )


def test_a_run_that_resumes_has_the_rows_of_those_before(spark: SparkSession, tmp_path: Path) -> None:
    for rows in (10, 25):
        topology = tr.Topology("resumed")
        numbers = topology.source("numbers", tr.from_iterable(range(rows)))
        numbers.map("row", row).sink("out", tr.to_jsonl(tmp_path / "out"))
        run = topology.run(workers=1, checkpoint=tmp_path / "checkpoint")
        assert run.awaitTermination(60)
        assert_same_rows(numbers_in(run.table(spark)), range(rows))


def test_columns_that_come_later_are_in_the_table(spark: SparkSession, tmp_path: Path) -> None:
    parquet, jsonl = tr.to_parquet(tmp_path / "parquet"), tr.to_jsonl(tmp_path / "jsonl")
    for sink in (parquet, jsonl):
        write(sink, [{"n": 1}], [{"n": 2, "name": "two"}])
        stream = tr.read_stream(spark, sink)
        assert sorted(stream.columns) == ["n", "name"]
        by_path = tr.read_stream(spark, str(sink.path))
        assert by_path.schema == stream.schema
        assert tr.read_stream(spark, sink, "n int").dtypes == [("n", "int")]


def test_a_table_of_nothing(spark: SparkSession, tmp_path: Path) -> None:
    topology = tr.Topology("nothing")
    numbers = topology.source("numbers", tr.from_iterable(range(10)))
    numbers.filter("none", lambda number: number < 0).map("row", row).sink(
        "typed", tr.to_parquet("typed", schema="n long")
    )
    numbers.filter("never", lambda number: number < 0).sink("untyped", tr.to_jsonl(tmp_path / "untyped"))
    run = topology.run(workers=1)
    assert run.awaitTermination(60)
    assert run.table(spark, "typed").dtypes == [("n", "bigint")]
    assert run.table(spark, "typed").collect() == []
    assert run.table(spark, "untyped", schema="n int, name string").collect() == []
    with pytest.raises(TailraceError) as told:
        run.table(spark, "untyped")
    assert str(told.value) == (
        f"nothing is committed yet, and the columns are not known: folder={tmp_path / 'untyped'}; "
        "could the sink have a schema, or schema='id long, name string' be given here?"
    )


# -- a stream of all that comes


def test_a_stream_of_a_run_whose_workers_die(spark: SparkSession, tmp_path: Path) -> None:
    sink = tr.to_parquet(tmp_path / "out", schema="n long", roll_seconds=0.05)
    query = (
        tr.read_stream(spark, sink)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .option("path", str(tmp_path / "read"))
        .start()
    )
    try:
        with running(numbers_topology(sink), workers=2, max_pending=2000) as run:
            for worker in (0, 1, 0):
                await_rows(run)
                kill(run, worker)
            stop(run)
        query.processAllAvailable()
    finally:
        query.stop()
    found = numbers_in(spark.read.parquet(str(tmp_path / "read")))
    assert_prefixes(found, SPLITS, 900)
    assert_same_rows(found, numbers_in(run.table(spark)))


def test_a_file_is_read_however_old_it_is(spark: SparkSession, tmp_path: Path) -> None:
    """A commit of a job that died in the middle is finished when the job is resumed, which may be weeks later."""
    sink = tr.to_jsonl(tmp_path / "out")
    write(sink, [{"n": 1}], operator="other")
    stream = tr.read_stream(spark, sink, "n long")
    assert read_all(stream, tmp_path) == [1]
    write(sink, [{"n": 2}], [{"n": 3}])
    for part, years in zip(sorted(sink.path.glob("part-out-*")), (1, 20), strict=True):
        long_ago = time.time() - years * 365 * 86400
        os.utime(part, (long_ago, long_ago))
    assert sorted(read_all(stream, tmp_path)) == [1, 2, 3]
    assert sorted(read_all(stream, tmp_path)) == [1, 2, 3]


def test_a_few_files_at_a_time(spark: SparkSession, tmp_path: Path) -> None:
    sink = tr.to_parquet(tmp_path / "out", schema="n long")
    write(sink, *([{"n": number}] for number in range(7)))
    sizes: list[int] = []

    def count(batch: DataFrame, number: int) -> None:
        sizes.append(batch.count())

    stream = tr.read_stream(spark, sink, max_files=3)
    stream.writeStream.foreachBatch(count).trigger(availableNow=True).start().awaitTermination()
    assert sizes == [3, 3, 1]


def test_files_that_were_read_are_deleted(spark: SparkSession, tmp_path: Path) -> None:
    """In a folder whose name an address would read otherwise."""
    sink = tr.to_parquet(tmp_path / "a b#c 100%d&e+f:g", schema="n long")
    stream = tr.read_stream(spark, sink, clean=True)
    query = stream.writeStream.format("memory").queryName("cleaned").start()
    try:
        with running(numbers_topology(sink, range(1000)), workers=1) as run:
            finish(run)
        query.processAllAvailable()
        write(sink, [{"n": 1000}])  # the files of a micro-batch are deleted with the next one
        query.processAllAvailable()
        wait_until(lambda: len(list(sink.path.glob("part-*"))) <= 1, 30, "files that were read to go")
        assert_same_rows(numbers_in(spark.table("cleaned")), range(1001))
    finally:
        query.stop()


# -- what is refused


def refusals(folder: Path) -> dict[str, tuple[Callable[[Any], Any], str]]:
    sink = tr.to_parquet(folder / "none", schema="n long")
    return {
        "session": (lambda _: tr.read_stream("spark", sink), "not a Spark session: spark='spark' type=str, did you"),  # type: ignore[arg-type]
        "sink": (lambda spark: tr.read_stream(spark, tr.to_list()), "not a file sink: sink=.*ListSink.*, did you mean"),  # type: ignore[arg-type]
        "no path": (lambda spark: tr.read_stream(spark, ""), "not a folder: path=''"),
        "empty folder": (
            lambda spark: tr.read_stream(spark, folder / "none", "n long"),
            r"folder does not say what its files are: folder=.* kinds=none, did you mean the sink itself",
        ),
        "two kinds": (
            lambda spark: tr.read_stream(spark, folder / "both"),
            "folder does not say what its files are: folder=.* kinds=parquet,jsonl, ",
        ),
        "no schema": (
            lambda spark: tr.read_stream(spark, tr.to_jsonl(folder / "none")),
            "nothing is committed yet, and the columns are not known: folder=.*; could the sink have a schema",
        ),
        "schema": (
            lambda spark: tr.read_stream(spark, sink, "n lnog"),
            "schema cannot be read: schema='n lnog' cause=.*LNOG.*, is it written like 'id long, name string'",
        ),
        "clean": (lambda spark: tr.read_stream(spark, sink, clean="yes"), "option is neither True nor False: clean="),  # type: ignore[arg-type]
        "max_files": (lambda spark: tr.read_stream(spark, sink, max_files=0), "must be a positive number: max_files=0"),
        "no objects": (
            lambda spark: tr.read_stream(spark, folder / "words"),
            r"rows are no JSON objects, and have no columns: folder=.*; could a map make dicts of them",
        ),
    }


@pytest.mark.parametrize("case", refusals(Path("x")))
def test_what_is_refused(case: str, spark: SparkSession, tmp_path: Path) -> None:
    write(tr.to_jsonl(tmp_path / "both"), [{"n": 1}])
    write(tr.to_parquet(tmp_path / "both"), [{"n": 1}], operator="other")
    write(tr.to_jsonl(tmp_path / "words"), ["the", "mill"])
    call, sentence = refusals(tmp_path)[case]
    with pytest.raises(TailraceError, match=sentence):
        call(spark)


def test_a_session_is_needed_and_must_not_have_been_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopped:
        read = readStream = None

        class _sc:
            _jsc = None

    sink = tr.to_jsonl(tmp_path)
    with pytest.raises(OptionError, match="the Spark session has been stopped: could you give another"):
        tr.read_stream(Stopped(), sink)  # type: ignore[arg-type]
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(SparkSession, "_instantiatedSession", None)
    with pytest.raises(OptionError, match="a table needs a Spark session, and none is active: spark=None; "):
        tr.read_stream(None, sink)
