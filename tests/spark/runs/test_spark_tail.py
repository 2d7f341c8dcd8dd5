"""Techniques against the tail on executors: from the session's configuration, switched in mid-run, through a kill."""

from __future__ import annotations

import random
import time

from pyspark.sql import SparkSession

import tailrace as tr
from kit.runs import durable, finish, kill
from kit.spark import running_on
from tailrace.testing.processes import wait_until

ROWS = 3_000
OPTIONS = {"spark.tailrace.replay": "fixed_timeout=15", "spark.tailrace.sharedQueues": "worker"}


def sometimes_late(number: int) -> dict[str, int]:
    time.sleep(0.06 if random.random() < 0.02 else 0.001)
    return {"n": number}


def test_late_roots_are_hedged_and_every_row_comes_once(spark: SparkSession) -> None:
    topology = tr.Topology("lookups")
    numbers = topology.source("numbers", tr.at_rate(range(ROWS), 1_000))
    rows = tr.to_list()
    numbers.map("lookup", sometimes_late, tasks=8, kind="blocking").sink("out", rows)
    for name, value in OPTIONS.items():
        spark.conf.set(name, value)
    try:
        with running_on(spark, topology, workers=2) as run:
            wait_until(lambda: durable(run) > ROWS // 4, 60, "a quarter")
            run.tail(shared_queues=None)
            kill(run, 1)
            wait_until(lambda: durable(run) > ROWS // 2 or not run.isActive, 60, "half of it")
            run.tail(hedge=None, shared_queues="node")
            progress = finish(run, 60)
    finally:
        for name in OPTIONS:
            spark.conf.unset(name)
    assert progress["tail"]["replay"] is None and progress["tail"]["shared_queues"] == "node"
    assert progress["replay"]["hedges"] > 0 and progress["replay"]["won"] > 0
    assert progress["recoveries"] >= 1
    assert sorted(row["n"] for row in rows.values) == list(range(ROWS))
