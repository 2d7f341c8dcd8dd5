"""The contenders that need Spark measure what they say they do. How fast they are is for the benchmark to tell."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.topology import Topology
from tailrace_research.bench.engine import spark_query
from tailrace_research.bench.engine.hops import run_hops
from tailrace_research.bench.engine.words import run_words
from tailrace_research.bench.workloads import Draw, hosted_by, micro, run_workload
from tailrace_research.bench.workloads.hosting import host


def test_the_query_measures_every_message_after_the_warm_up(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_query, "WARM_UP_S", 1.0)
    figures = spark_query.run_spark_query(spark, 200, 1.0)
    assert figures["n"] == 200
    assert 0 < figures["p50_ms"] <= figures["p99_ms"] <= figures["p999_ms"]
    assert not spark.streams.active


def test_a_query_that_breaks_is_told(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_query, "TIMEOUT_S", 0.0)
    with pytest.raises(spark_query.TailraceError, match=r"the Spark query did not finish: rows=\d+ expected=1400"):
        spark_query.run_spark_query(spark, 200, 1.0)
    assert not spark.streams.active


def test_workloads_are_hosted_by_a_session_for_as_long_as_it_is_said(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts: list[object] = []
    run = Topology.run

    def noted(self: Topology, host: object, **options: Any) -> Any:
        hosts.append(host)
        return run(self, host, **options)

    monkeypatch.setattr(Topology, "run", noted)
    workload = micro(Draw(tuples=100, load=0.5, unit_ns=50_000))
    with hosted_by(spark):
        outcome = run_workload(workload)
    assert hosts == [spark] and host() is None
    assert len(outcome.latencies_ns) == len(outcome.executions) == 100
    assert min(outcome.latencies_ns) >= min(execution.ended_ns - execution.began_ns for execution in outcome.executions)


def test_hops_and_words_run_on_spark(spark: SparkSession) -> None:
    assert run_hops(200, 1.0, spark)["n"] == 200
    assert run_words(1_000, spark)["words"] > 10_000
