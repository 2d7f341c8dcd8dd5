"""The same three stages as a Structured Streaming query with Python functions, triggered as fast as Spark can.

Messages come through Spark's socket source, because it hands over a row as soon as it is there: the rate source holds
rows back until their second is full, which would count against Spark. As for the other contenders the source is an open
loop, and latency counts from when a message was due until the last of the three functions has it. The commit of the
batch, which comes after that, is not counted.
"""

from __future__ import annotations

import socket
import tempfile
import threading
import time
from typing import Any

from tailrace.clock import SECOND_NS
from tailrace.errors import TailraceError
from tailrace.metrics.histogram import Histogram

WARM_UP_S = 6.0  # a query's first batches pay for Java's compiler and for starting Python workers
TICK_S = 0.001  # how often the source sends what is due
TIMEOUT_S = 120.0


def first(due_ns: str) -> str:
    return due_ns


def second(due_ns: str) -> int:
    return int(due_ns)


def last(due_ns: int) -> int:
    """The latency. All processes of a machine share one clock."""
    return time.monotonic_ns() - due_ns


class Feed(threading.Thread):
    """Sends ``count`` lines at ``rate`` to the first client that connects, each the time at which it was due."""

    def __init__(self, rate: float, count: int) -> None:
        super().__init__(name="bench-feed", daemon=True)
        self._rate = rate
        self._count = count
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._cancelled = threading.Event()

    def run(self) -> None:
        try:
            peer, _ = self._listener.accept()
        except OSError:
            return  # closed before a client connected
        with peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                self._send(peer)
            except OSError:
                return  # the query has gone
            self._cancelled.wait()  # the source takes the end of its connection for an error

    def _send(self, peer: socket.socket) -> None:
        started_ns = time.monotonic_ns()
        sent = 0
        while sent < self._count and not self._cancelled.wait(TICK_S):
            due = min(self._count, int((time.monotonic_ns() - started_ns) * self._rate / SECOND_NS) + 1)
            lines = [f"{started_ns + int(number * SECOND_NS / self._rate)}\n" for number in range(sent, due)]
            peer.sendall("".join(lines).encode())
            sent = due

    def close(self) -> None:
        self._cancelled.set()
        self._listener.close()


def run_spark_query(spark: Any, rate: int, seconds: float) -> dict[str, float]:
    """Latency over three Python functions at ``rate`` messages a second, in milliseconds, after the warm-up."""
    count = round(rate * (WARM_UP_S + seconds))
    latencies_ns: list[int] = []
    arrived = threading.Event()

    def collect(batch: Any, _: int) -> None:
        latencies_ns.extend(row[0] for row in batch.collect())
        if len(latencies_ns) >= count:
            arrived.set()

    feed = Feed(rate, count)
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
    rows = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", port).load()
    for name in stages:
        rows = rows.selectExpr(f"tailrace_bench_{name}(value) AS value")
    return rows
