"""The same three stages as a Structured Streaming query with Python functions, triggered as fast as Spark can.

Messages come through Spark's socket source (see ``feed.py``). As for the other contenders it is an open loop, and
latency counts from when a message was due until the last of the three functions has it. The commit of the batch, which
comes after that, is not counted.
"""

from __future__ import annotations

import tempfile
import threading
import time
from typing import Any

from tailrace.clock import SECOND_NS
from tailrace.errors import TailraceError
from tailrace.metrics.histogram import Histogram
from tailrace_research.bench.feed import HOST, Feed

WARM_UP_S = 6.0  # a query's first batches pay for Java's compiler and for starting Python workers
TIMEOUT_S = 120.0


def first(due_ns: str) -> str:
    return due_ns


def second(due_ns: str) -> int:
    return int(due_ns)


def last(due_ns: int) -> int:
    """The latency. All processes of a machine share one clock."""
    return time.monotonic_ns() - due_ns


def run_spark_query(spark: Any, rate: int, seconds: float) -> dict[str, float]:
    """Latency over three Python functions at ``rate`` messages a second, in milliseconds, after the warm-up."""
    count = round(rate * (WARM_UP_S + seconds))
    latencies_ns: list[int] = []
    arrived = threading.Event()

    def collect(batch: Any, _: int) -> None:
        latencies_ns.extend(row[0] for row in batch.collect())
        if len(latencies_ns) >= count:
            arrived.set()

    feed = Feed([int(number * SECOND_NS / rate) for number in range(count)], lambda number, due_ns: str(due_ns))
    feed.start()
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as folder:
        query = _pipeline(spark, feed.port).writeStream.option("checkpointLocation", folder).foreachBatch(collect)
        running = query.start()
        try:
            deadline = time.monotonic() + TIMEOUT_S
            while not arrived.wait(0.1):
                if running.exception() is not None or time.monotonic() > deadline:
                    raise TailraceError(f"the Spark query did not finish: rows={len(latencies_ns)} expected={count}")
        finally:
            running.stop()
            feed.close()
    histogram = Histogram.of(latencies_ns[round(rate * WARM_UP_S) :])
    p50, p99, p999 = histogram.percentiles(0.5, 0.99, 0.999)
    return {"p50_ms": p50 / 1e6, "p99_ms": p99 / 1e6, "p999_ms": p999 / 1e6, "n": histogram.count}


def _pipeline(spark: Any, port: int) -> Any:
    stages = {"first": (first, "string"), "second": (second, "bigint"), "last": (last, "bigint")}
    for name, (function, kind) in stages.items():
        spark.udf.register(f"tailrace_bench_{name}", function, kind)
    rows = spark.readStream.format("socket").option("host", HOST).option("port", port).load()
    for name in stages:
        rows = rows.selectExpr(f"tailrace_bench_{name}(value) AS value")
    return rows
