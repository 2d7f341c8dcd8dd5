"""``bench dataframe``: calls that are slow, limited and paid for, and rows that are, with Tailrace and without it.

A *row* is one question, answered by contests that take turns. The plain side is tuned as if it were to win, and has the
same concurrency.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tailrace_research.bench.turns import Contest, Figures, Say, machine_facts, machine_line, summarise, take_turns

Samples = dict[str, list[float]]
"""All repeats of each figure."""

Result = dict[str, Any]


@dataclass(frozen=True)
class DataFrameSizes:
    """How much is measured."""

    calls: int = 20_000
    rows: int = 200_000  # of even, cheap work
    paid: int = 2_000  # calls that a journal keeps
    seconds: float = 20.0  # of calls at a limit
    repeats: int = 3
    skewed_rows: int = 20_000
    skewed_s: float = 35.0  # for which they keep all slots busy
    streamed_s: float = 60.0  # at each trigger, after the warm-up
    traces: dict[str, list[float]] = field(default_factory=dict)  # filled, for plots: when calls began, and the like


@dataclass(frozen=True)
class Row:
    """A question. Keys of its figures are its own, and flat."""

    name: str
    contests: Callable[[DataFrameSizes, Any], Sequence[Contest]]  # by sizes and the Spark session
    conclude: Callable[[Samples], Samples]  # what follows from the figures, repeat by repeat
    table: Callable[[Result], Sequence[str]]


def run_dataframe_benchmark(rows: Sequence[Row], sizes: DataFrameSizes, say: Say, spark: Any) -> Result:
    """Measure everything, telling ``say`` how it goes. The result is flat: see ``summarise``."""
    facts = machine_facts()
    contests = [contest for row in rows for contest in row.contests(sizes, spark)]
    samples = take_turns(contests, sizes.repeats, say, in_words)
    concluded = {key: values for row in rows for key, values in row.conclude(samples).items()}
    names = [row.name for row in rows]
    return {**summarise({**samples, **concluded}), "rows": names, "repeats": sizes.repeats, **facts}


def in_words(figures: Figures) -> str:
    return ", ".join(f"{key.split('_', 1)[1]} {value:,.3g}" for key, value in figures.items())


def render_table(rows: Sequence[Row], result: Result) -> str:
    """A block for each row: medians, and the range of the repeats in brackets."""
    lines = [line for row in rows for line in (*row.table(result), "")]
    how = f"Medians of {result['repeats']} repeats [least..most], taking turns."
    return "\n".join([*lines, how, machine_line(result)])
