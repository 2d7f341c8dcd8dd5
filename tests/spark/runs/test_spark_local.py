"""Runs on a local session: exact rows, kills, company, the end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark import StatusTracker
from pyspark.sql import SparkSession

import tailrace as tr
from kit.runs import (
    assert_prefixes,
    assert_same_rows,
    await_recovery,
    durable,
    finish,
    kill,
    read_jsonl,
    row,
    slowly,
    stop,
)
from kit.spark import running_on
from tailrace.connector import Entry, SinkContext
from tailrace.errors import TailraceError, TaskError
from tailrace.spark.doctor import examine
from tailrace.testing.processes import listening_ports, wait_until


def numbers_to(folder: Path, rows: int, name: str = "numbers") -> tr.Topology:
    topology = tr.Topology(name)
    numbers = topology.source("numbers", tr.from_iterable(range(rows)), tasks=2)
    slow = numbers.map("slow", slowly, tasks=4)
    slow.map("row", row, tasks=2).sink("out", tr.to_jsonl(folder, roll_seconds=0.2), tasks=2)
    return topology


def rows_in(folder: Path) -> list[int]:
    return [found["n"] for found in read_jsonl(folder)]


def forever(name: str = "forever") -> tr.Topology:
    topology = tr.Topology(name)
    topology.source("numbers", tr.at_rate(range(10_000_000), 500)).map("row", row, tasks=2).sink("out", tr.to_list())
    return topology


def sleep_long(number: int) -> int:
    time.sleep(60)
    return number


def fail_at_7(number: int) -> int:
    if number == 7:
        raise ValueError("seven is not allowed")
    return number


@pytest.mark.slow
def test_kills_beyond_what_spark_forgives(spark: SparkSession, tmp_path: Path) -> None:
    """Spark gives a task eight failures; each of ours is a new job. Another job goes on beside."""
    rows, kills = 40_000, 9
    with running_on(spark, numbers_to(tmp_path, rows), workers=3, max_pending=2000) as run:
        for number in range(kills):
            before = durable(run)
            kill(run, 0 if number % 3 else 1)
            if number == 4:
                assert spark.range(1000).selectExpr("sum(id) AS total").collect()[0].total == 499_500
            least = number + 1
            await_recovery(run, least)
            wait_until(lambda before=before: durable(run) > before or not run.isActive, 30, "the run to go on")
        progress = finish(run, 120)
    assert sum(worker["restarts"] for worker in progress["workers"]) == kills
    assert_same_rows(rows_in(tmp_path), range(rows))


def test_two_runs_at_once_and_one_after(spark: SparkSession, tmp_path: Path) -> None:
    first = numbers_to(tmp_path / "a", 4000, "a")
    second = numbers_to(tmp_path / "b", 3000, "b")
    with running_on(spark, first, workers=2) as one, running_on(spark, second, workers=2) as two:
        finish(one)
        finish(two)
    with running_on(spark, numbers_to(tmp_path / "c", 1000, "c"), workers=4) as third:
        finish(third)
    assert_same_rows(rows_in(tmp_path / "a"), range(4000))
    assert_same_rows(rows_in(tmp_path / "b"), range(3000))
    assert_same_rows(rows_in(tmp_path / "c"), range(1000))


def test_a_table_without_a_schema_is_read_as_one(spark: SparkSession, tmp_path: Path) -> None:
    """Two tasks wrote a column of integers and one of doubles, which Spark does not read together."""
    writers = [
        tr.to_parquet(tmp_path).open(SinkContext("out", task, 2, 1, "0123456789abcdef", lambda *_: None))
        for task in range(2)
    ]
    for writer, value in zip(writers, (1, 0.5), strict=True):
        writer.write({"v": value, "tags": ["x"] if value == 1 else []})
    for number, writer in enumerate(writers):
        writer.commit([Entry("s", number, number)])
    for merge in ("false", "true"):
        table = spark.read.option("mergeSchema", merge).parquet(str(tmp_path))
        assert sorted((found.v, found.tags) for found in table.collect()) == [(0.5, []), (1.0, ["x"])]


def test_stop_frees_slots_and_leaves_workers_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    topology = numbers_to(tmp_path, 10_000_000)
    with running_on(spark, topology, workers=4, max_pending=500) as run:
        wait_until(lambda: durable(run) > 500, 30, "rows")
        pids = run.workerPids()
        assert len(pids) == 4 and all(listening_ports(pid) for pid in pids.values())
        begun = time.monotonic()
        stop(run)
        assert time.monotonic() - begun < 8
    assert_prefixes(rows_in(tmp_path), 2, 500)
    assert not any(listening_ports(pid) for pid in pids.values())
    begun = time.monotonic()
    assert spark.range(0, 400, 1, 4).count() == 400
    assert time.monotonic() - begun < 8

    def report(batches: Any) -> Any:
        import sys
        import threading

        import pyarrow as pa

        for _ in batches:
            pass
        yield pa.RecordBatch.from_pydict({"interval": [sys.getswitchinterval()], "threads": [threading.active_count()]})

    left = spark.range(0, 8, 1, 8).mapInArrow(report, "interval double, threads long").collect()
    assert {one.interval for one in left} == {0.005}, "Spark's next task runs with the settings of a worker"
    assert max(one.threads for one in left) < 8


def test_no_task_outlives_its_run(spark: SparkSession) -> None:
    """Not even that of a worker which did not leave in time: a session that is stopped next would trip over it."""
    topology = tr.Topology("stuck")
    topology.source("numbers", tr.at_rate(range(10_000_000), 500)).map("stuck", sleep_long, tasks=2).sink(
        "out", tr.to_list()
    )
    tracker = spark.sparkContext.statusTracker()
    with running_on(spark, topology, workers=2, stop_timeout_s=0.2) as run:
        stages = tracker.getActiveStageIds()
        assert len(stages) == 2
        run.stop(timeout=0.1)
        assert active_tasks(tracker, stages) == 0


def active_tasks(tracker: StatusTracker, stages: Iterable[int]) -> int:
    found = [tracker.getStageInfo(stage) for stage in stages]
    return sum(stage.numActiveTasks for stage in found if stage is not None)


def test_an_error_of_the_user_is_the_runs(spark: SparkSession) -> None:
    topology = tr.Topology("wrong")
    topology.source("numbers", tr.from_iterable(range(100))).map("check", fail_at_7).sink("out", tr.to_list())
    run = topology.run(spark, workers=2)
    with pytest.raises(TaskError, match="seven is not allowed"):
        run.awaitTermination(60)
    error = run.exception()
    assert isinstance(error, TaskError) and "in fail_at_7" in str(error)
    assert str(error).endswith("operator failed: operator=check task=0 tuple=7")


def test_another_version_on_an_executor(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = tr.__version__
    monkeypatch.setattr("tailrace.spark.host.VERSION", "9.9")
    run = forever().run(spark, workers=2)
    with pytest.raises(TailraceError) as caught:
        run.awaitTermination(60)
    here = f"executor={os.uname().nodename} python={spark.sparkContext.pythonExec}"
    assert str(caught.value) == (
        f"an executor has another tailrace: {here} version={ours} driver=9.9 driver_python={sys.executable}; "
        "is PYSPARK_PYTHON another Python, or one of them old?"
    )


def test_a_python_that_is_not_there(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/no/such/python")
    run = forever().run(spark, workers=2)
    with pytest.raises(TailraceError) as caught:
        run.awaitTermination(60)
    assert "an executor cannot start Python: " in str(caught.value)
    assert "python=/no/such/python; does PYSPARK_PYTHON exist there?" in str(caught.value)


def test_too_few_slots(spark: SparkSession) -> None:
    with pytest.raises(tr.OptionError) as caught:
        forever().run(spark, workers=5)
    hint = "could the session have more cores, or the run fewer workers?"
    assert str(caught.value) == f"too few slots: local[4,8] has 4 free slots, 5 workers wanted; {hint}"
    with running_on(spark, forever(), workers=3) as run:
        with pytest.raises(tr.OptionError) as caught:
            forever("other").run(spark, workers=2)
        there = "local[4,8] has 1 free slot (other runs hold 3 of 4)"
        assert str(caught.value) == f"too few slots: {there}, 2 workers wanted; {hint}"
        stop(run)
    with running_on(spark, forever(), workers=4):
        pass


def test_options_come_from_the_spark_configuration(spark: SparkSession) -> None:
    spark.conf.set("spark.tailrace.workers", "3")
    try:
        with running_on(spark, forever()) as run:
            assert len(run.workerPids()) == 3
        with running_on(spark, forever(), workers=1) as run:
            assert len(run.workerPids()) == 1
        spark.conf.set("spark.tailrace.worker", "3")
        expected = r"Spark configuration: spark\.tailrace\.worker=3: did you mean spark\.tailrace\.workers\?$"
        with pytest.raises(tr.OptionError, match=f"^unknown option in the {expected}"):
            forever().run(spark)
    finally:
        spark.conf.unset("spark.tailrace.workers")
        spark.conf.unset("spark.tailrace.worker")


def test_doctor_finds_nothing_wrong_here(spark: SparkSession) -> None:
    findings = examine(spark)
    assert all(finding.ok for finding in findings), findings
    assert [finding.what for finding in findings][:6] == ["Java", "driver", "PySpark", "session", "slots", "encryption"]
    assert findings[4].detail == "4 of 4 free: a run can have as many workers"
    assert findings[5].detail.startswith("off: all processes are on this machine; encrypt=True")
    (executor,) = findings[6:]
    assert executor.what == f"executor on {os.uname().nodename}"
    assert f"tailrace {tr.__version__}" in executor.detail and "the driver is reachable" in executor.detail


def test_doctor_names_another_version(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = tr.__version__
    monkeypatch.setattr("tailrace.spark.doctor.VERSION", "9.9")
    (problem,) = [finding for finding in examine(spark) if not finding.ok]
    assert problem.detail == f"tailrace {ours}, the driver has 9.9; could they be the same?"


def test_tasks_chosen_by_load(spark: SparkSession) -> None:
    sink = tr.to_list()
    topology = tr.Topology("load")
    numbers = topology.source("numbers", tr.from_iterable(range(5_000)), tasks=2)
    pulled = numbers.map("pulled", row, tasks=3, grouping=tr.pull())
    pulled.map("least", dict, tasks=2, grouping=tr.least_work("n")).sink("out", sink)
    with running_on(spark, topology, workers=2) as run:
        finish(run)
    assert_same_rows((found["n"] for found in sink.values), range(5_000))
