"""Data sources and DataFrames on Spark's executors, a Python worker killed in the middle: each row once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import tailrace as tr
from kit.data_sources import Counter2, Table, assert_once, copy, table_rows
from kit.runs import durable, finish, homes, kill, received, restarts
from kit.spark import MASTER, Sessions, executor_of, running_on
from tailrace.spark.connectors.data_sink import to_data_source
from tailrace.spark.connectors.data_source import from_data_source
from tailrace.spark.connectors.dataframe import from_dataframe
from tailrace.testing.processes import wait_until

ROWS = 6000
LOCAL_CLUSTER = "local-cluster[2,1,1024]"


@pytest.fixture(scope="module", params=[MASTER, LOCAL_CLUSTER], ids=["local", "local-cluster"])
def spark(request: pytest.FixtureRequest, sessions: Sessions) -> SparkSession:
    return sessions.get(request.param)


def table_sink(folder: Path) -> Any:
    options = {"path": str(folder / "table")}
    return to_data_source(Table, options, schema="n long", log=folder / "log", roll_seconds=0.05)


def kill_in_the_middle(run: tr.Run, topology: tr.Topology, victim: str) -> None:
    """The worker that hosts an operator, when a third of the rows has reached the sink."""
    (worker,) = set(homes(topology, 2, victim))
    wait_until(lambda: received(run, "out") > ROWS // 3, 60, "rows at the sink")
    assert durable(run) < ROWS, "it is over already"
    kill(run, worker)


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["rows", "out"])
def test_from_one_data_source_to_another(spark: SparkSession, victim: str, tmp_path: Path) -> None:
    options = {"rows": str(ROWS), "step": "50", "pause": "0.02"}
    source = from_data_source(Counter2, options, log=tmp_path / "in", available_now=True)
    topology = copy(source, table_sink(tmp_path))
    with running_on(spark, topology, workers=2, max_pending=300) as run:
        if spark.sparkContext.master == LOCAL_CLUSTER:
            assert len({executor_of(pid) for pid in run.workerPids().values()}) == 2
        kill_in_the_middle(run, topology, victim)
        progress = finish(run)
    assert sum(restarts(progress)) == 1
    assert_once(table_rows(tmp_path / "table"), ROWS)


@pytest.mark.slow
def test_from_a_dataframe(spark: SparkSession, tmp_path: Path) -> None:
    """The same session computes the DataFrame and then hosts the workers."""
    frame = spark.range(ROWS).selectExpr("id AS n", "id * id AS square")
    topology = copy(from_dataframe(frame, splits=3, folder=tmp_path / "rows"), table_sink(tmp_path))
    with running_on(spark, topology, workers=2, max_pending=200) as run:
        kill_in_the_middle(run, topology, "rows")
        progress = finish(run)
    assert sum(restarts(progress)) == 1
    assert_once(table_rows(tmp_path / "table"), ROWS)
