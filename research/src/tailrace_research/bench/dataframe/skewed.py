"""The row about a skewed table: rows whose cost is log-normal, in partitions clustered by what makes them slow.

The plain side is ``mapInPandas``, once on the partitions as they come, once after ``repartition(200)``, which is the
best that one can do without Tailrace. Both sides have eight rows under way, call the same function, which waits, and
write Parquet. The time of ``apply`` includes that it stages the rows and starts its workers.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from functools import partial
from math import exp
from pathlib import Path
from random import Random
from typing import Any

import tailrace as tr
from tailrace.errors import TailraceError
from tailrace_research.bench.dataframe.run import DataFrameSizes, Result, Row, Samples
from tailrace_research.bench.turns import Contest, Figures, aligned, range_of

SLOTS = 8  # of the session, and rows under way on either side
WORKERS = 2  # of apply, with half of the tasks each
SIGMA = 1.2  # of the logarithm of a row's cost
NOISE = 0.4  # how far the order of the table is from that of costs: the dearest eighth of it is half of the work
PARTITIONS = 200  # of the tuned side
SCHEMA = "id long, score double, done_s double"

SIDES = {
    "as_is": "mapInPandas, partitions as they come",
    "tuned": f"mapInPandas, repartition({PARTITIONS})",
    "apply": "apply, partitions as they come",
}


def draw_costs(rows: int, slots_s: float, seed: int = 7) -> list[float]:
    """The cost of each row, in seconds, in the order of the table. All together keep ``SLOTS`` busy for ``slots_s``."""
    rng = Random(seed)
    drawn = [rng.gauss(0, 1) for _ in range(rows)]
    ordered = [size for _, size in sorted((size + NOISE * rng.gauss(0, 1), size) for size in drawn)]
    costs = [exp(SIGMA * size) for size in ordered]
    unit = slots_s * SLOTS / sum(costs)
    return [cost * unit for cost in costs]


def work(number: int, cost_s: float) -> dict[str, Any]:
    time.sleep(cost_s)
    return {"id": number, "score": _score(number, cost_s), "done_s": time.monotonic()}


def _score(number: int, cost_s: float) -> float:
    return round(number % 7 + cost_s, 6)


def _plain(frames: Iterator[Any]) -> Iterator[Any]:
    import pandas as pd

    for frame in frames:
        yield pd.DataFrame([work(row.id, row.cost_s) for row in frame.itertuples(index=False)])


def _work_row(row: dict[str, Any]) -> dict[str, Any]:
    return work(row["id"], row["cost_s"])


def contests(sizes: DataFrameSizes, spark: Any) -> list[Contest]:
    return [Contest(f"skewed, {title}", partial(_measure, spark, sizes, side)) for side, title in SIDES.items()]


def _measure(spark: Any, sizes: DataFrameSizes, side: str) -> Figures:
    costs = draw_costs(sizes.skewed_rows, sizes.skewed_s)
    rows = spark.sparkContext.parallelize(list(enumerate(costs)), SLOTS)
    frame = spark.createDataFrame(rows, "id long, cost_s double").cache()
    try:
        _warm_up(frame)
        with tempfile.TemporaryDirectory(prefix="tailrace-skewed-") as folder:
            began_s = time.monotonic()
            found = _applied(frame) if side == "apply" else _mapped(frame, side, Path(folder) / "out")
            taken_s = time.monotonic() - began_s
            done_s = _check(found, costs)
    finally:
        frame.unpersist()
    sizes.traces[f"skewed_{side}"] = sorted(moment_s - began_s for moment_s in done_s)
    return {f"skewed_{side}_s": taken_s, f"skewed_{side}_of_ideal": taken_s / sizes.skewed_s}


def _warm_up(frame: Any) -> None:
    """Fill the cache, and have the Python workers of Spark import what they need, as in a job that is under way."""
    nothing = frame.selectExpr("id", "0D AS cost_s").sample(0.01, seed=1)
    nothing.mapInPandas(_plain, SCHEMA).write.format("noop").mode("overwrite").save()
    frame.count()


def _mapped(frame: Any, side: str, out: Path) -> Any:
    parts = frame.repartition(PARTITIONS) if side == "tuned" else frame
    parts.mapInPandas(_plain, SCHEMA).write.parquet(out.as_uri())
    return frame.sparkSession.read.schema(SCHEMA).parquet(out.as_uri())


def _applied(frame: Any) -> Any:
    topology = tr.Topology("skewed")
    rows = topology.input("rows")
    rows.map("work", _work_row, tasks=SLOTS, kind="blocking", grouping=tr.pull()).output("worked")
    return topology.apply(frame, SCHEMA, workers=WORKERS)


def _check(found: Any, costs: list[float]) -> list[float]:
    """When each row was done. Raises if the rows, as a multiset, are not those that a loop would make."""
    rows = found.collect()
    expected = [(number, _score(number, cost_s)) for number, cost_s in enumerate(costs)]
    if sorted((row.id, row.score) for row in rows) != expected:
        raise TailraceError(f"rows differ from those expected: rows={len(rows)} expected={len(expected)}")
    return [row.done_s for row in rows]


def conclude(samples: Samples) -> Samples:
    def ratio(one: str, other: str) -> list[float]:
        pairs = zip(samples[f"skewed_{one}_s"], samples[f"skewed_{other}_s"], strict=True)
        return [above / below for above, below in pairs]

    return {"skewed_as_is_speedup": ratio("as_is", "apply"), "skewed_tuned_ratio": ratio("apply", "tuned")}


def table(result: Result) -> list[str]:
    lines = [(f"skewed rows, {SLOTS} slots", "s", "", "of the ideal")]
    lines += [
        (
            title,
            f"{result[f'skewed_{side}_s']:.1f}",
            range_of(result, f"skewed_{side}_s", "{:.1f}"),
            f"{result[f'skewed_{side}_of_ideal']:.2f}",
        )
        for side, title in SIDES.items()
    ]
    faster = f"{result['skewed_as_is_speedup']:.2f} {range_of(result, 'skewed_as_is_speedup', '{:.2f}')}"
    tuned = f"{result['skewed_tuned_ratio']:.2f} {range_of(result, 'skewed_tuned_ratio', '{:.2f}')}"
    return [*aligned(lines), f"apply is {faster} times as fast as is, and takes {tuned} of the tuned time."]


SKEWED = Row("skewed", contests, conclude, table)
