"""How a streaming query and the run that it feeds end: stopped, held back, failed, and without their session."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import tailrace as tr
from kit.data_sources import assert_once
from kit.runs import finish, read_parquet, stop
from kit.spark import MASTER, Sessions, running_on
from kit.streams import AVAILABLE, Input, WaitsFor, files_in, n_of, of, query_of
from tailrace.errors import TailraceError
from tailrace.testing.processes import wait_until

pytestmark = pytest.mark.usefixtures("nothing_left")


def test_a_query_that_is_stopped_ends_the_run(spark: SparkSession, numbers: Input, tmp_path: Path) -> None:
    numbers.add(100, files=2)
    out = tr.to_list()
    source = tr.from_stream(numbers.stream, folder=tmp_path / "handover")
    run = of(source, out).run(workers=2)
    wait_until(lambda: len(out.values) >= 100, 60, "rows")
    spark.sparkContext.cancelAllJobs()  # as PySpark does at Ctrl-C; jobs of the query are left out
    assert source.query is not None
    source.query.processAllAvailable()
    source.query.stop()
    finish(run)
    assert_once(n_of(out.values), 200)


class Gated:
    """A stream whose rows from one number on wait in Spark until they may go."""

    def __init__(self, numbers: Input, folder: Path, first: int) -> None:
        self.begun, self.go = folder / "begun", folder / "go"
        begun, go = self.begun, self.go

        def wait(n: int) -> int:  # a local one: Spark's workers do not have the tests
            if n >= first:
                begun.touch()
                while not go.exists():
                    time.sleep(0.02)
            return n

        self.stream = numbers.stream.select(F.udf(wait, "long")("n").alias("n"))

    def await_batch(self) -> None:
        wait_until(self.begun.exists, 60, "the batch that waits")


@pytest.mark.parametrize(("first", "forgiven"), [(0, True), (100, True), (100, False)])
def test_a_query_that_is_stopped_in_a_batch_ends_the_run(
    spark: SparkSession,
    numbers: Input,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    first: int,
    forgiven: bool,
) -> None:
    """The executors write the first batch, the driver the second: each waits in another way. A version of Spark that
    does not know the error that a stop has caused shows it to who asks the query. The run does not fail."""
    if not forgiven:
        monkeypatch.setattr("tailrace.spark.connectors.handover.query_feed.SPARK_FORGIVES", "a stop")
    numbers.add(100, files=2)
    gated, out = Gated(numbers, tmp_path, first), tr.to_parquet(tmp_path / "out", schema="n long", roll_seconds=0.1)
    source = tr.from_stream(gated.stream, folder=tmp_path / "handover")
    run = of(source, out).run(workers=2, checkpoint=tmp_path / "checkpoint")
    gated.await_batch()
    assert source.query is not None
    source.query.stop()
    finish(run)
    assert (source.query.exception() is None) == forgiven
    assert_once(read_parquet(tmp_path / "out"), first)
    gated.go.touch()
    again = tr.from_stream(gated.stream, folder=tmp_path / "handover", trigger=AVAILABLE)
    finish(of(again, out).run(workers=2, checkpoint=tmp_path / "checkpoint"), 120)
    assert_once(read_parquet(tmp_path / "out"), 200)


def test_a_run_that_is_given_up_in_a_batch_leaves_its_folder_free(
    spark: SparkSession, numbers: Input, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that takes longer than a run waits for it is cancelled before the run is over, and computed again."""
    monkeypatch.setattr("tailrace.spark.connectors.handover.query_feed.CLOSING_GRACE_S", 0.5)
    numbers.add(100)
    gated, out = Gated(numbers, tmp_path, 0), tr.to_list()
    source = tr.from_stream(gated.stream, folder=tmp_path / "handover")
    run = of(source, out).run(workers=2)
    gated.await_batch()
    run.stop(timeout=0)
    assert source.query is not None and not source.query.isActive and source.query.exception() is None
    gated.go.touch()
    again = tr.from_stream(gated.stream, folder=tmp_path / "handover", trigger=AVAILABLE)
    finish(of(again, out).run(workers=2), 120)
    assert_once(n_of(out.values), 100)


def test_a_query_is_held_back_while_many_rows_wait(spark: SparkSession, numbers: Input, tmp_path: Path) -> None:
    numbers.add(100, files=10)
    out = tr.to_list()
    topology = tr.Topology("held-back")
    source = tr.from_stream(numbers.stream, folder=tmp_path / "handover", max_waiting=250)
    rows = topology.source("rows", source).map("slow", WaitsFor(tmp_path / "go"))
    rows.sink("out", out)
    with running_on(spark, topology, workers=2) as run:
        wait_until(lambda: len(files_in(tmp_path / "handover", "batches/batch-*")) == 3, 60, "three batches")
        time.sleep(1)
        assert len(files_in(tmp_path / "handover", "batches/batch-*")) == 3
        wait_until(lambda: query_of(run).get("waitingRows") == 300, 30, "progress to say so")
        (tmp_path / "go").touch()
        wait_until(lambda: len(out.values) == numbers.rows, 60, "all rows")
        assert len(files_in(tmp_path / "handover", "batches/batch-*")) < 10, "what is durable is deleted on the way"
        (tmp_path / "go").unlink()
        stop(run)
    assert_once(n_of(out.values), numbers.rows)


def test_stop_while_a_query_is_held_back(spark: SparkSession, numbers: Input, tmp_path: Path) -> None:
    numbers.add(100, files=5)
    out = tr.to_list()
    topology = tr.Topology("held-back")
    source = tr.from_stream(numbers.stream, folder=tmp_path / "handover", max_waiting=50)
    topology.source("rows", source).map("slow", WaitsFor(tmp_path / "go")).sink("out", out)
    with running_on(spark, topology, workers=2) as run:
        wait_until(lambda: files_in(tmp_path / "handover", "batches/batch-*"), 60, "a batch")
        (tmp_path / "go").touch()
        stop(run)
    assert_once(n_of(out.values), len(out.values))
    assert len(out.values) >= 100


def test_a_query_that_is_stopped_while_it_is_held_back_ends(
    spark: SparkSession, numbers: Input, tmp_path: Path
) -> None:
    """It does not wait until the run has caught up, which may be stuck."""
    numbers.add(100, files=2)
    out = tr.to_list()
    topology = tr.Topology("held-back")
    source = tr.from_stream(numbers.stream, folder=tmp_path / "handover", max_waiting=50)
    topology.source("rows", source).map("slow", WaitsFor(tmp_path / "go")).sink("out", out)
    with running_on(spark, topology, workers=2) as run:
        wait_until(lambda: files_in(tmp_path / "handover", "batches/batch-*"), 60, "a batch")
        query = source.query
        assert query is not None
        wait_until((tmp_path / "handover" / "query" / "offsets" / "1").exists, 60, "the second batch to be planned")
        time.sleep(1)  # it begins, and is held back
        stopping = threading.Thread(target=query.stop, daemon=True)
        stopping.start()
        stopping.join(60)
        assert not stopping.is_alive() and query.exception() is None
        (tmp_path / "go").touch()
        finish(run)
    assert_once(n_of(out.values), 100)


def test_a_query_that_fails_ends_the_run_and_what_it_handed_over_waits(
    spark: SparkSession, numbers: Input, tmp_path: Path
) -> None:
    numbers.add(100, files=2)
    out = tr.to_parquet(tmp_path / "out", schema="n long", roll_seconds=0.1)

    def fails_at_150(n: int) -> int:  # a local one: Spark's workers do not have the tests
        if n == 150:
            raise ValueError(f"no such number: n={n}")
        return n

    failing = numbers.stream.select(F.udf(fails_at_150, "long")("n").alias("n"))
    run = of(tr.from_stream(failing, folder=tmp_path / "handover"), out).run(
        workers=2, checkpoint=tmp_path / "checkpoint"
    )
    with pytest.raises(TailraceError) as caught:
        run.awaitTermination(120)
    assert str(caught.value) == (
        "the streaming query failed: source=rows query=streamed/rows cause=ValueError: no such number: n=150; "
        "is it its data, or one of its own steps?"
    )
    assert caught.value.__cause__ is not None
    again = tr.from_stream(numbers.stream, folder=tmp_path / "handover", trigger=AVAILABLE)
    finish(of(again, out).run(workers=2, checkpoint=tmp_path / "checkpoint"), 120)
    assert_once(read_parquet(tmp_path / "out"), 200)


def test_a_session_that_is_stopped_under_a_run(sessions: Sessions, tmp_path: Path) -> None:
    spark = sessions.get(MASTER)
    numbers = Input(spark, tmp_path / "in")
    numbers.add(10)
    out = tr.to_list()
    run = of(tr.from_stream(numbers.stream, folder=tmp_path / "handover"), out).run(workers=1)
    wait_until(lambda: out.values, 60, "rows")
    sessions.stop()
    with pytest.raises(TailraceError) as caught:
        run.awaitTermination(60)
    assert str(caught.value) == (
        "the Spark session was stopped under a streaming query: source=rows query=streamed/rows; "
        "was spark.stop() called?"
    )
