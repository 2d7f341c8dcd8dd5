"""Figures of calls that Spark adds up: a task ends with rows that carry them, which are observed and then dropped."""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, LongType, StructField, StructType

from tailrace.runtime.calls.figures import Figures

MARK = "_tailrace"
"""The hidden column. It is null in all rows but the last few of a task."""

COUNTS = ("calls", "attempts", "retries", "timeouts", "throttled", "hedges", "hedges_won", "failed", "found")
WAIT, LATENCY, NUMBER = "limit_wait_ms", "latency_ms", "latency_count"
MS = 1e6  # nanoseconds

MARK_TYPE = pa.struct(
    [*((name, pa.int64()) for name in COUNTS), (WAIT, pa.float64()), (LATENCY, pa.float64()), (NUMBER, pa.int64())]
)

_TAKEN: WeakKeyDictionary[SparkSession, dict[str, int]] = WeakKeyDictionary()
"""Names of observations by session, and how often each was asked for."""

_TAKING = threading.Lock()


def observation_name(session: SparkSession, default: str, given: Any) -> Any:
    """The name to observe under, or the ``Observation``: what the user gave, else a name that this session has not had.

    Spark refuses a plan with two observations of one name, as a union of two frames that one function has enriched.
    """
    with _TAKING:
        taken = _TAKEN.setdefault(session, {})
        if given is not None:
            taken.setdefault(getattr(given, "_name", given), 1)
            return given
        name = default
        while name in taken:
            taken[default] += 1
            name = f"{default}_{taken[default]}"
        taken[name] = 1
        return name


def marks(figures: Figures) -> pa.Array:
    """The hidden column of a task's last rows: the counts, then one row for each latency, with its number."""
    counts = figures.counts()
    first = {name: counts[name] for name in COUNTS} | {WAIT: counts["limit_wait_ns"] / MS}
    latencies = [{LATENCY: latency / MS, NUMBER: number} for latency, number in figures.latencies.buckets()]
    return pa.array([first, *latencies], MARK_TYPE)


def no_marks(rows: int) -> pa.Array:
    """The hidden column of results."""
    return pa.nulls(rows, MARK_TYPE)


def marked(schema: StructType) -> StructType:
    """The schema with the hidden column."""
    counts = [StructField(name, LongType()) for name in COUNTS]
    rest = [StructField(WAIT, DoubleType()), StructField(LATENCY, DoubleType()), StructField(NUMBER, LongType())]
    mark = StructType([*counts, *rest])
    return StructType([*schema.fields, StructField(MARK, mark, True)])


def observe(df: DataFrame, observation: Any) -> DataFrame:
    """Have Spark add the figures up, and drop the rows and the column that carried them."""
    sums = [F.coalesce(F.sum(f"{MARK}.{name}"), F.lit(0)).alias(name) for name in COUNTS]
    wait = F.coalesce(F.sum(f"{MARK}.{WAIT}"), F.lit(0.0)).alias(WAIT)
    latency, number = F.col(f"{MARK}.{LATENCY}"), F.coalesce(F.col(f"{MARK}.{NUMBER}"), F.lit(0))
    parts = [F.percentile(latency, part, number).alias(name) for part, name in ((0.5, "p50_ms"), (0.99, "p99_ms"))]
    observed = df.observe(observation, *sums, wait, *parts)
    return observed.filter(F.col(MARK).isNull()).drop(MARK)


def summary(figures: Figures) -> str:
    """Figures in one line."""
    p50, p99 = figures.latencies.percentiles(0.5, 0.99)
    shown = {name: count for name, count in figures.counts().items() if count and name != "limit_wait_ns"}
    counts = " ".join(f"{name}={count}" for name, count in ({"calls": 0} | shown).items())
    wait = f" limit_wait_ms={figures.limit_wait_ns / MS:.0f}" if figures.limit_wait_ns else ""
    return f"{counts}{wait} p50_ms={p50 / MS:.1f} p99_ms={p99 / MS:.1f}"
