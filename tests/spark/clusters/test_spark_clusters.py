"""Integers come out once each on executors of their own, whoever dies on the way: process or executor.

A million of them in the soak."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tailrace as tr
from kit.runs import MARK, assert_same_rows, durable, finish, kill, operator_now, read_parquet, row, same, stop
from kit.spark import Sessions, command_of, executor_of, running_on, seconds_until_gone, standalone_cluster
from tailrace.ring.segment import FOLDER
from tailrace.spark.doctor import examine
from tailrace.testing.processes import is_alive, processes_with, wait_until

MILLION = 1_000_000
PYTHON, EXECUTOR = "process", "executor"
EAGER = tr.Tail(hedge=tr.fixed_timeout(20), shared_queues="worker")


def million(folder: Path, rows: int = MILLION) -> tr.Topology:
    topology = tr.Topology("million")
    numbers = topology.source("numbers", tr.from_iterable(range(rows)), tasks=2)
    dealt = numbers.map("dealt", same, tasks=4, grouping=tr.shuffle())
    keyed = dealt.map("keyed", row, tasks=4, grouping=tr.fields(lambda number: number))
    keyed.sink("out", tr.to_parquet(folder, schema="n long", roll_seconds=0.5), tasks=2)
    return topology


def hurt(run: tr.Run, worker: int, what: str) -> float:
    """Kill a worker's process, or the executor it is on; returns how long it took to be replaced."""
    begun, pid = time.monotonic(), run.workerPids()[worker]
    if what == PYTHON:
        kill(run, worker)
    else:
        os.kill(executor_of(pid), signal.SIGKILL)
        wait_until(lambda: run.workerPids().get(worker, pid) != pid or not run.isActive, 60, "the worker's successor")
        wait_until(lambda: not is_alive(pid), 10, "the Python process of a dead executor to leave")
    return time.monotonic() - begun


@pytest.mark.slow
@pytest.mark.timeout(280)
@pytest.mark.parametrize(
    ("rows", "tail"), [(200_000, tr.Tail()), pytest.param(MILLION, EAGER, marks=pytest.mark.soak, id="million-eager")]
)
def test_three_executors(rows: int, tail: tr.Tail, sessions: Sessions, tmp_path: Path) -> None:
    spark = sessions.get("local-cluster[3,1,1024]")
    plan = [(0.15, 0, PYTHON), (0.3, 1, EXECUTOR), (0.45, 2, PYTHON), (0.6, 0, EXECUTOR), (0.8, 1, PYTHON)]
    if rows < MILLION:
        plan = plan[:3]
    took = []
    with running_on(spark, million(tmp_path, rows), workers=3, tail=tail) as run:
        assert len({executor_of(pid) for pid in run.workerPids().values()}) == 3
        for fraction, victim, what in plan:
            wait_until(lambda least=fraction * rows: durable(run) >= least, 120, f"{fraction:.0%} to be durable")
            wait_until(lambda victim=victim: victim in run.workerPids(), 30, "the victim")
            assert run.isActive
            took.append((what, round(hurt(run, victim, what), 1)))
        progress = finish(run, 150)
    print(f"seconds to replace: {took}; replay: {progress.get('replay')}")
    assert progress["recoveries"] >= len(plan) - 1
    assert tail.hedge is None or progress["replay"]["hedges"] > 0
    assert sorted(read_parquet(tmp_path)) == list(range(rows))


@pytest.mark.slow
def test_three_executors_of_one_machine_draw_from_one_queue(sessions: Sessions, tmp_path: Path) -> None:
    spark = sessions.get("local-cluster[3,1,1024]")
    rows = 60_000
    with running_on(spark, million(tmp_path, rows), workers=3, tail=tr.Tail(shared_queues="node")) as run:
        wait_until(lambda: durable(run) >= rows // 5, 60, "the first rows")
        dealt = operator_now(run, "dealt")
        assert [queue["workers"] for queue in dealt["sharedQueues"]] == [[0, 1, 2]]
        hurt(run, 0, EXECUTOR)
        finish(run, 100)
    assert sorted(read_parquet(tmp_path)) == list(range(rows))
    assert not list(FOLDER.glob(f"tailrace-{run.id}-*"))


@pytest.fixture
def standalone(sessions: Sessions, tmp_path: Path) -> Iterator[tuple[str, list[int]]]:
    """Two workers of Spark with two cores each, on two hosts as Spark sees it: (url, their pids)."""
    with standalone_cluster(sessions, tmp_path, "127.0.0.1", {"127.0.0.1": [], "127.0.0.2": []}) as cluster:
        yield cluster


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_million_on_a_standalone_cluster(
    sessions: Sessions, standalone: tuple[str, list[int]], tmp_path: Path
) -> None:
    """Every day such a cluster is across namespaces: see test_spark_namespaces."""
    rows = MILLION
    url, spark_workers = standalone
    spark: SparkSession = sessions.get(url, spark_executor_memory="512m", spark_executor_cores="1")
    with running_on(spark, million(tmp_path / "out", rows), workers=3) as run:
        victims = [(0.15, 0, PYTHON), (0.35, 1, EXECUTOR), (0.6, 2, PYTHON)]
        executors = [executor_of(pid) for pid in run.workerPids().values()]
        for fraction, victim, what in victims:
            wait_until(lambda least=fraction * rows: durable(run) >= least, 120, f"{fraction:.0%} to be durable")
            wait_until(lambda victim=victim: victim in run.workerPids(), 30, "the victim")
            hurt(run, victim, what)
        finish(run, 200)
    assert_same_rows(read_parquet(tmp_path / "out"), range(rows))
    problems = [finding for finding in examine(spark) if not finding.ok]
    assert not problems
    sessions.stop()
    seconds_until_gone(executors, 20)
    assert all(is_alive(pid) for pid in spark_workers)
    assert not [pid for pid in processes_with(MARK, os.environ[MARK]) if b"pyspark.daemon" in command_of(pid)]


@pytest.mark.slow
@pytest.mark.soak
def test_speculation_disturbs_nothing(sessions: Sessions, standalone: tuple[str, list[int]]) -> None:
    """With these settings Spark starts a copy, on another host, of every task that lasts a second. It must wait."""
    conf = {
        "spark_executor_memory": "512m",
        "spark_executor_cores": "2",
        "spark_speculation": "true",
        "spark_speculation_interval": "100ms",
        "spark_speculation_task_duration_threshold": "1s",
    }
    spark = sessions.get(standalone[0], **conf)
    topology = tr.Topology("long")
    numbers = topology.source("numbers", tr.at_rate(range(10_000_000), 500))
    numbers.map("row", row, tasks=2).sink("out", tr.to_list())
    with running_on(spark, topology, workers=2) as run:
        pids = run.workerPids()
        tracker = spark.sparkContext.statusTracker()
        wait_until(lambda: _tasks(tracker) > 2, 30, "Spark to start a copy")
        time.sleep(4)
        assert run.workerPids() == pids
        progress = stop(run)
    assert [worker["restarts"] for worker in progress["workers"]] == [0, 0]
    assert spark.range(0, 60, 1, 4).count() == 60, "copies hold slots after the run"


def _tasks(tracker: object) -> int:
    """Active ones, copies included."""
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]  # type: ignore[attr-defined]
    return sum(stage.numActiveTasks for stage in stages if stage is not None)
