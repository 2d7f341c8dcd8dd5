"""``bench tail``: what each technique does to the tail of latencies, beside the plain default.

A *row* is one question, answered by contests that take turns. Contests of one repeat draw the same stream, so their
figures are compared repeat by repeat; each repeat draws another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.clock import MILLISECOND_NS
from tailrace.errors import OptionError
from tailrace_research.bench.turns import (
    Contest,
    Figures,
    Say,
    chosen,
    machine_facts,
    percentile,
    summarise,
    take_turns,
)
from tailrace_research.bench.workloads.hosting import hosted_by

Samples = dict[str, list[float]]
"""All repeats of each figure."""

Result = dict[str, Any]

WARM_UP = 0.05
"""The share of a stream, from its beginning, whose latencies are left out: connections are made then."""

SIMULATED = "_sim_"
"""In the keys of figures that the simulator gave."""

OVERHEAD = "_overhead"
SHARE = "_share"

STEMS = {"mean_ms": "mean", "p50_ms": "p50", "p99_ms": "p99", "p999_ms": "p99.9"}


@dataclass(frozen=True)
class TailSizes:
    """How much is measured."""

    tuples: int = 10_000
    repeats: int = 3
    unit_ms: float = 0.25  # of work
    baseline: str | None = None  # folder of the engine that the row about what is off compares with


@dataclass(frozen=True)
class Row:
    """A question. Keys of its figures are its own, and flat."""

    name: str
    contests: Callable[[TailSizes], Sequence[Contest]]
    conclude: Callable[[Samples], Samples]  # what follows from the figures, repeat by repeat
    table: Callable[[Result], Sequence[str]]
    not_on_spark: str = ""  # why, if Spark cannot host it


def run_tail_benchmark(rows: Sequence[Row], sizes: TailSizes, say: Say, spark: Any = None) -> Result:
    """Measure everything, telling ``say`` how it goes. The result is flat: see ``summarise``.

    With a Spark session, workers are its tasks, and rows that it cannot host are left out.
    """
    facts = machine_facts()
    hosted = [row for row in rows if spark is None or not row.not_on_spark]
    with hosted_by(spark):
        contests = [contest for row in hosted for contest in row.contests(sizes)]
        samples = take_turns(contests, sizes.repeats, say, in_words)
    concluded = {key: values for row in hosted for key, values in row.conclude(samples).items()}
    settings = {"tuples": sizes.tuples, "repeats": sizes.repeats, "unit_ms": sizes.unit_ms}
    where = "process" if spark is None else spark.sparkContext.master
    names = [row.name for row in hosted]
    return {**summarise({**samples, **concluded}), "rows": names, **settings, "host": where, **facts}


def chosen_rows(rows: Sequence[Row], names: Sequence[str], *, on_spark: bool = False) -> list[Row]:
    """The rows with these names, or all rows without any name."""
    found = chosen(rows, names)
    for row in found if names and on_spark else ():
        if row.not_on_spark:
            raise OptionError(f"not a row for Spark: only={row.name}: {row.not_on_spark}")
    return found


def latency_figures(prefix: str, latencies_ns: Sequence[int]) -> Figures:
    """Figures of the latencies of tuples, which are in the order in which they were due."""
    counted = latencies_ns[int(WARM_UP * len(latencies_ns)) :]
    ordered = sorted(counted)
    fractions = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999}
    figures = {f"{prefix}_{stem}": percentile(ordered, q) / MILLISECOND_NS for stem, q in fractions.items()}
    return {f"{prefix}_mean_ms": sum(counted) / len(counted) / MILLISECOND_NS, **figures}


def ratios(samples: Samples, above: str, below: str) -> list[float]:
    """The ratio in each repeat, in which both saw the same stream."""
    return [one / other for one, other in zip(samples[above], samples[below], strict=True)]


def in_words(figures: Figures) -> str:
    simulated = {key: value for key, value in figures.items() if SIMULATED in key}
    live = {key: value for key, value in figures.items() if key not in simulated}
    parts = ([_listed(live)] if live else []) + ([f"simulated {_listed(simulated)}"] if simulated else [])
    return "; ".join(parts)


def _listed(figures: Figures) -> str:
    named = [f"{STEMS[stem]} {value:,.1f}" for key, value in figures.items() for stem in STEMS if key.endswith(stem)]
    more = [f"{value:+.1%}" for key, value in figures.items() if key.endswith(OVERHEAD)]
    more += [f"{value:.1%} of a core" for key, value in figures.items() if key.endswith(SHARE)]
    return ", ".join([*([", ".join(named) + " ms"] if named else []), *more])
