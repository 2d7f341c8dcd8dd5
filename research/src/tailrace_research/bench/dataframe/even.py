"""The row about even, cheap rows: what ``map_rows`` costs where there is nothing to gain.

The plain side is ``mapInPandas`` over ``itertuples``. Both call the same function, which works for about 5 us.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import tailrace as tr
from tailrace_research.bench.dataframe.run import DataFrameSizes, Result, Row, Samples
from tailrace_research.bench.turns import Contest, Figures, aligned, range_of

WORK = 150  # steps of a loop: about 5 us
SCHEMA = "id long, text string, sum long"
SIDES = {"plain": "mapInPandas, itertuples", "rows": "map_rows"}


def work(row: Any) -> tuple[int, str, int]:
    total = row.id
    for step in range(WORK):
        total += step
    return row.id, row.text, total


def _plain(frames: Iterator[Any]) -> Iterator[Any]:
    import pandas as pd

    for frame in frames:
        yield pd.DataFrame(list(map(work, frame.itertuples(index=False))), columns=["id", "text", "sum"])


def contests(sizes: DataFrameSizes, spark: Any) -> list[Contest]:
    return [Contest(f"even, {title}", partial(_measure, spark, sizes.rows, side)) for side, title in SIDES.items()]


def _measure(spark: Any, rows: int, side: str) -> Figures:
    steps: dict[str, Callable[[Any], Any]] = {
        "plain": lambda df: df.mapInPandas(_plain, SCHEMA),
        "rows": tr.map_rows(work, SCHEMA),
    }
    _run(spark, 1_000, steps[side])  # Java compiles, and the Python workers import what they need
    began_s = time.perf_counter()
    _run(spark, rows, steps[side])
    return {f"even_{side}_s": time.perf_counter() - began_s}


def _run(spark: Any, rows: int, step: Callable[[Any], Any]) -> None:
    frame = spark.range(0, rows, 1, 2).selectExpr("id", "concat('text ', id) AS text")
    frame.transform(step).write.format("noop").mode("overwrite").save()


def conclude(samples: Samples) -> Samples:
    pairs = zip(samples["even_rows_s"], samples["even_plain_s"], strict=True)
    return {"even_ratio": [ours / plain for ours, plain in pairs]}


def table(result: Result) -> list[str]:
    lines = [("even rows of about 5 us", "s", "")]
    lines += [
        (title, f"{result[f'even_{side}_s']:.2f}", range_of(result, f"even_{side}_s", "{:.2f}"))
        for side, title in SIDES.items()
    ]
    spread = range_of(result, "even_ratio", "{:.2f}")
    return [*aligned(lines), f"map_rows takes {result['even_ratio']:.2f} of the plain time {spread}"]


EVEN = Row("even", contests, conclude, table)
