"""The row about a stream: 300 rows/s at random moments, one in a hundred is slow. How late do the *others* get visible?

The plain side is a Structured Streaming query with the same function in ``mapInPandas``, at several triggers, of which
the best counts: its batches wait for their slowest row. Both sides read Spark's socket source, write Parquet files, and
have at most eight rows under way. Latency is from when a row was due until a reader may see it. The first seconds, in
which Java compiles and workers start, have fewer rows and do not count.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import tailrace as tr
from tailrace.clock import MILLISECOND_NS, SECOND_NS
from tailrace.errors import TailraceError
from tailrace_research.bench.dataframe.arrivals import SCHEMA, SLOW_TIMES, Arrivals, draw_arrivals, work
from tailrace_research.bench.dataframe.run import DataFrameSizes, Result, Row, Samples
from tailrace_research.bench.dataframe.watcher import Output
from tailrace_research.bench.feed import HOST, Feed
from tailrace_research.bench.turns import Contest, Figures, aligned, percentile, range_of

RATE = 300
COST_S = 0.010  # with the slow ones 0.0149 on average: eight slots are 56% busy
SLOTS = 8
WORKERS = 2  # of the topology, with half of the tasks each
ROLL_S = 0.1
GENTLY_S, WARM_UP_S = 8.0, 20.0  # with few rows, and in all before any row counts
TIMEOUT_S = 60.0  # for what is left when the last row has arrived

QUERIES: dict[str, tuple[str, int | None]] = {
    "asap": ("0 seconds", None),
    "half": ("500 milliseconds", None),
    "second": ("1 second", None),
    "spread": ("0 seconds", 24),
}
"""Triggers, and into how many partitions a batch is divided. Eight come from the socket, a slot for each."""

OURS = "tailrace"
SIDES = {
    "asap": "query, batch after batch",
    "half": "query, every 500 ms",
    "second": "query, every second",
    "spread": "query, batch after batch, repartition(24)",
    OURS: "from_stream",
}
FIGURES = ("p50_ms", "p99_ms", "slow_p99_ms", "begun_p99_ms", "shown_p99_ms", "busy", "files_per_min")

Stop = Callable[[], None]


def contests(sizes: DataFrameSizes, spark: Any) -> list[Contest]:
    return [
        Contest(f"stream, {title}", partial(_measure, spark, sizes, side, count())) for side, title in SIDES.items()
    ]


def _measure(spark: Any, sizes: DataFrameSizes, side: str, repeats: count[int]) -> Figures:
    """One stream. Within a repeat all sides get the same rows at the same moments."""
    arrivals = draw_arrivals(WARM_UP_S + sizes.streamed_s, RATE, COST_S, next(repeats), GENTLY_S)
    with tempfile.TemporaryDirectory(prefix="tailrace-stream-") as name:
        folder = Path(name)
        feed = Feed(arrivals.due_ns, arrivals.line)
        output = Output(folder / "out", with_log=side != OURS)
        lines = spark.readStream.format("socket").option("host", HOST).option("port", feed.port).load()
        feed.start()
        output.watcher.start()
        try:
            stop = _start_ours(spark, lines, folder) if side == OURS else _start_query(lines, folder, *QUERIES[side])
            try:
                _wait_for(feed, output, arrivals)
            finally:
                stop()
        finally:
            feed.close()
            output.watcher.end()
        rows = sorted(output.rows(), key=lambda row: row["id"])
    if [row["id"] for row in rows] != list(range(len(arrivals.due_ns))):
        raise TailraceError(f"rows differ from those sent: rows={len(rows)} sent={len(arrivals.due_ns)} side={side}")
    counted = [row for row, due_ns in zip(rows, arrivals.due_ns, strict=True) if due_ns >= WARM_UP_S * SECOND_NS]
    _trace(sizes, side, [row for row in counted if not row["slow"]])
    return {f"stream_{side}_{key}": value for key, value in figures(counted).items()}


def _start_query(lines: Any, folder: Path, trigger: str, partitions: int | None) -> Stop:
    """A Structured Streaming query, with Spark's own file sink."""
    spread = lines if partitions is None else lines.repartition(partitions)
    writer = spread.mapInPandas(_plain, SCHEMA).writeStream.format("parquet").trigger(processingTime=trigger)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start(str(folder / "out"))
    return query.stop  # type: ignore[no-any-return]


def _plain(frames: Iterator[Any]) -> Iterator[Any]:
    import pandas as pd

    for frame in frames:
        yield pd.DataFrame([work(line) for line in frame["value"]])


def _start_ours(spark: Any, lines: Any, folder: Path) -> Stop:
    topology = tr.Topology("stream")
    rows = topology.source("rows", tr.from_stream(lines, folder=folder / "handover"))
    worked = rows.map("work", _work_row, tasks=SLOTS, kind="blocking", grouping=tr.pull())
    worked.sink("out", tr.to_parquet(folder / "out", schema=SCHEMA, roll_seconds=ROLL_S))
    run = topology.run(spark, workers=WORKERS, checkpoint=folder / "checkpoint")
    return run.stop


def _work_row(row: dict[str, Any]) -> dict[str, Any]:
    return work(row["value"])


def _wait_for(feed: Feed, output: Output, arrivals: Arrivals) -> None:
    deadline_s = time.monotonic() + arrivals.due_ns[-1] / SECOND_NS + TIMEOUT_S
    while not (feed.sent.wait(0.2) and output.count() >= len(arrivals.due_ns)):
        if time.monotonic() > deadline_s:
            raise TailraceError(f"rows are missing: rows={output.count()} sent={len(arrivals.due_ns)}")
        time.sleep(0.2)


def figures(rows: list[dict[str, Any]]) -> Figures:
    """Figures of rows that tell when they were due, begun, ended and visible: of slow rows and of the others."""
    others, slow = ([row for row in rows if row["slow"] is kind] for kind in (False, True))
    lasted_s = (rows[-1]["due_ns"] - rows[0]["due_ns"]) / SECOND_NS
    worked_s = sum(row["ended_ns"] - row["began_ns"] for row in rows) / SECOND_NS
    return {
        "p50_ms": _percentile(others, 0.5, "due_ns", "seen_ns"),
        "p99_ms": _percentile(others, 0.99, "due_ns", "seen_ns"),
        "slow_p99_ms": _percentile(slow, 0.99, "due_ns", "seen_ns"),
        "begun_p99_ms": _percentile(others, 0.99, "due_ns", "began_ns"),
        "shown_p99_ms": _percentile(others, 0.99, "ended_ns", "seen_ns"),
        "busy": worked_s / (lasted_s * SLOTS),
        "files_per_min": len({row["file"] for row in rows}) / lasted_s * 60,
    }


def _percentile(rows: list[dict[str, Any]], fraction: float, since: str, until: str) -> float:
    waited_ns: list[int] = sorted(row[until] - row[since] for row in rows)
    return percentile(waited_ns, fraction) / MILLISECOND_NS


def _trace(sizes: DataFrameSizes, side: str, rows: list[dict[str, Any]]) -> None:
    begin_ns = rows[0]["due_ns"]
    sizes.traces[f"stream_{side}_due_s"] = [(row["due_ns"] - begin_ns) / SECOND_NS for row in rows]
    sizes.traces[f"stream_{side}_late_s"] = [(row["seen_ns"] - row["due_ns"]) / SECOND_NS for row in rows]


def conclude(samples: Samples) -> Samples:
    """p99 of the others, as a share of that of the query at the trigger that was best in the same repeat."""
    best = [min(repeat) for repeat in zip(*(samples[f"stream_{side}_p99_ms"] for side in QUERIES), strict=True)]
    ours = samples[f"stream_{OURS}_p99_ms"]
    return {"stream_p99_ratio": [one / other for one, other in zip(ours, best, strict=True)]}


def table(result: Result) -> list[str]:
    head = f"{RATE} rows/s, 1% {SLOW_TIMES} times slower; ms"
    lines = [(head, "p50", "p99", "", "p99 slow", "p99 to begin", "p99 to be shown", "busy", "files/min")]
    for side, title in SIDES.items():
        found = {key: result[f"stream_{side}_{key}"] for key in FIGURES}
        lines.append(
            (
                title,
                f"{found['p50_ms']:,.0f}",
                f"{found['p99_ms']:,.0f}",
                range_of(result, f"stream_{side}_p99_ms", "{:,.0f}"),
                f"{found['slow_p99_ms']:,.0f}",
                f"{found['begun_p99_ms']:,.0f}",
                f"{found['shown_p99_ms']:,.0f}",
                f"{found['busy']:.0%}",
                f"{found['files_per_min']:,.0f}",
            )
        )
    ratio = f"{result['stream_p99_ratio']:.2f} {range_of(result, 'stream_p99_ratio', '{:.2f}')}"
    return [*aligned(lines), f"p99 of rows that are not slow: {ratio} of the query's at its best trigger."]


STREAM = Row("stream", contests, conclude, table)
