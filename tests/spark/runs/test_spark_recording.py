"""A run on executors is recorded where the session's configuration says."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

import tailrace as tr
from kit.runs import finish, same
from tailrace.sim import Playback, read_trace


def test_workers_on_executors_write_one_recording(spark: SparkSession, tmp_path: Path) -> None:
    topology = tr.Topology("recorded")
    topology.source("numbers", tr.from_iterable(range(500))).map("same", same, tasks=3).sink("out", tr.to_call(discard))
    spark.conf.set("spark.tailrace.record", str(tmp_path / "trace"))
    try:
        finish(topology.run(spark, workers=2))
    finally:
        spark.conf.unset("spark.tailrace.record")
    trace = read_trace(tmp_path / "trace")
    assert not trace.notes and len(trace.roots) == 500 and len(trace.operators) == 1000
    assert sum(Playback(trace).play("pull").executed[:3]) == 500


def discard(number: int) -> None:
    pass
