"""The row about windows: calls of uneven length, about one in a hundred hangs, from rows of a DataFrame.

The plain side is ``mapInPandas`` with coroutines, gathered batch by batch, at most ``CONCURRENCY`` under way: it waits
for the slowest call of each batch. Its connections are kept open for all batches of a task.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import Any

import tailrace as tr
from tailrace.testing.service import Behaviour, serving
from tailrace_research.bench.dataframe.client import ask
from tailrace_research.bench.dataframe.run import DataFrameSizes, Result, Row, Samples
from tailrace_research.bench.turns import Contest, Figures, aligned, range_of

TASKS = 2
CONCURRENCY = 16  # of each task
SMALL, DEFAULT = 1_000, 10_000  # rows of an Arrow batch
HANGING = 0.012
"""A little more than one in a hundred: with exactly that share, p99 would lie just below the hanging calls or among
them, as it happens."""

SCHEMA = "key string, answer string, ms double"
BATCH_CONF = "spark.sql.execution.arrow.maxRecordsPerBatch"

SIDES = {
    "gather": "mapInPandas, gather per batch",
    "window": "map_rows",
    "hedged": "map_rows, hedge=True",
}


async def timed(port: int, key: str) -> tuple[str, str, float]:
    """One call, and how long its caller waited for it."""
    began_ns = time.perf_counter_ns()
    answer = await ask(port, key)
    return key, answer, (time.perf_counter_ns() - began_ns) / 1e6


def _gathered(port: int, frames: Iterator[Any]) -> Iterator[Any]:
    import pandas as pd

    async def batch(frame: Any) -> list[tuple[str, str, float]]:
        free = asyncio.Semaphore(CONCURRENCY)

        async def one(key: str) -> tuple[str, str, float]:
            async with free:
                return await timed(port, key)

        return await asyncio.gather(*map(one, frame["key"]))

    with asyncio.Runner() as runner:
        for frame in frames:
            yield pd.DataFrame(runner.run(batch(frame)), columns=["key", "answer", "ms"])


async def _asked(port: int, row: Any) -> tuple[str, str]:
    return row.key, await ask(port, row.key)


def contests(sizes: DataFrameSizes, spark: Any) -> list[Contest]:
    numbers = count()
    return [
        Contest(f"window, batches of {rows:,}, {title}", partial(_measure, spark, sizes, rows, side, numbers))
        for rows in (SMALL, DEFAULT)
        for side, title in SIDES.items()
    ]


def _measure(spark: Any, sizes: DataFrameSizes, rows: int, side: str, numbers: count[int]) -> Figures:
    """One query. Each has keys of its own, and the service draws which calls hang."""
    from pyspark.sql import Observation

    name, repeat = f"window_{rows}_{side}", next(numbers)
    frame = spark.range(0, sizes.calls, 1, TASKS).selectExpr(f"concat('{repeat}-', id) AS key")
    before = spark.conf.get(BATCH_CONF)
    spark.conf.set(BATCH_CONF, rows)
    try:
        with serving(Behaviour(hanging=HANGING, seed=repeat)) as service:
            observation = Observation()
            if side == "gather":
                asked = frame.mapInPandas(partial(_gathered, service.port), SCHEMA)
                asked = asked.observe(observation, _percentile("ms", 50), _percentile("ms", 99))
            else:
                how = tr.Calls(concurrency=CONCURRENCY, hedge=side == "hedged")
                step = tr.map_rows(
                    partial(_asked, service.port), "key string, answer string", calls=how, observation=observation
                )
                asked = frame.transform(step)
            began_s = time.perf_counter()
            asked.write.format("noop").mode("overwrite").save()
            taken_s = time.perf_counter() - began_s
            begun_s = sizes.traces[name] = service.report()["begun_s"]
    finally:
        spark.conf.set(BATCH_CONF, before)
    found = observation.get
    return {
        f"{name}_s": taken_s,
        f"{name}_p50_ms": found["p50_ms"],
        f"{name}_p99_ms": found["p99_ms"],
        f"{name}_extra_calls": len(begun_s) / sizes.calls - 1,
    }


def _percentile(column: str, percent: int) -> Any:
    from pyspark.sql import functions

    return functions.percentile(column, percent / 100).alias(f"p{percent}_{column}")


def conclude(samples: Samples) -> Samples:
    """Times as shares of the plain side's, repeat by repeat, and how much shorter the tail of calls is."""

    def ratio(rows: int, side: str, stem: str) -> list[float]:
        ours, plain = samples[f"window_{rows}_{side}_{stem}"], samples[f"window_{rows}_gather_{stem}"]
        return [one / other for one, other in zip(ours, plain, strict=True)]

    return {
        "window_ratio": ratio(SMALL, "hedged", "s"),
        "window_unhedged_ratio": ratio(SMALL, "window", "s"),
        "window_default_ratio": ratio(DEFAULT, "hedged", "s"),
        "window_default_unhedged_ratio": ratio(DEFAULT, "window", "s"),
        "hedged_p99_ratio": ratio(SMALL, "hedged", "p99_ms"),
    }


def table(result: Result) -> list[str]:
    lines = [
        (f"{TASKS} tasks of {CONCURRENCY} calls, 1.2% hang", "s", "", "of gather", "p50 ms", "p99 ms", "more calls")
    ]
    for rows in (SMALL, DEFAULT):
        for side, title in SIDES.items():
            name = f"window_{rows}_{side}"
            ratio = result[f"{name}_s"] / result[f"window_{rows}_gather_s"]
            lines.append(
                (
                    f"batches of {rows:,}: {title}",
                    f"{result[f'{name}_s']:.1f}",
                    range_of(result, f"{name}_s", "{:.1f}"),
                    f"{ratio:.2f}",
                    f"{result[f'{name}_p50_ms']:.1f}",
                    f"{result[f'{name}_p99_ms']:.1f}",
                    f"{result[f'{name}_extra_calls']:.1%}",
                )
            )
    ratios = f"{result['window_ratio']:.2f} {range_of(result, 'window_ratio', '{:.2f}')}"
    tail = f"{result['hedged_p99_ratio']:.2f}"
    return [*aligned(lines), f"Hedged, in small batches: {ratios} of the time, {tail} of the p99 of calls."]


WINDOW = Row("window", contests, conclude, table)
