"""The row about replay: Du's Exclamation with stalls, with and without hedging, where there is room and where not.

One execution in a hundred takes fifty times as long. A rule needs to see latencies and load before it hedges, so the
first seconds are left out, for both sides.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import count

from tailrace.bench.tail import Result, Row, Samples, TailSizes, latency_figures, ratios
from tailrace.bench.tail_table import replay_table
from tailrace.bench.turns import Contest, Figures
from tailrace.bench.workloads import Draw, Outcome, Workload, exclamation, run_workload
from tailrace.clock import MILLISECOND_NS, SECOND_NS
from tailrace.policy import Tail, adaptive_timeout

WORKERS = 2
LOADS: Mapping[str, float] = {"low": 0.3, "high": 0.9}
TAILS: Mapping[str, Tail] = {"plain": Tail(), "hedged": Tail(replay=adaptive_timeout())}

LONGER = 2
"""Times the unit of other rows: three operators in a row, and it is not the machine's processors that shall be busy."""

SETTLING_NS = 3 * SECOND_NS
MOST_LEFT_OUT = 0.3
"""Of a stream that is shorter than that."""


def contests(sizes: TailSizes) -> list[Contest]:
    unit_ns = int(LONGER * sizes.unit_ms * MILLISECOND_NS)
    found = []
    for place, load in LOADS.items():
        draw = Draw(tuples=sizes.tuples, load=load, unit_ns=unit_ns, poisson=True, stalls=True)
        for name in TAILS:
            found.append(Contest(f"replay, {place} load, {name}", _turns(place, name, draw)))
    return found


def _turns(place: str, name: str, draw: Draw) -> partial[Figures]:
    return partial(_measure, f"replay_{place}_{name}", TAILS[name], draw, count(draw.seed))


def _measure(prefix: str, tail: Tail, draw: Draw, seeds: count[int]) -> Figures:
    workload = exclamation(replace(draw, seed=next(seeds)))
    outcome = run_workload(workload, workers=WORKERS, tail=tail)
    return figures(prefix, workload, outcome)


def figures(prefix: str, workload: Workload, outcome: Outcome) -> Figures:
    roots = len(outcome.latencies_ns)
    first = min(bisect_left(workload.due_ns, SETTLING_NS), int(MOST_LEFT_OUT * roots))
    latencies = latency_figures(prefix, outcome.latencies_ns[first:])
    return {**latencies, f"{prefix}_executions": len(outcome.executions) / roots}


def conclude(samples: Samples) -> Samples:
    """By how much the tail is shorter where there is room, what that costs, and what is lost where there is none."""

    def more(place: str, stem: str) -> list[float]:
        return [ratio - 1 for ratio in ratios(samples, f"replay_{place}_hedged_{stem}", f"replay_{place}_plain_{stem}")]

    return {
        "replay_p999_cut": [-change for change in more("low", "p999_ms")],
        "replay_p99_cut": [-change for change in more("low", "p99_ms")],
        "replay_extra_work": more("low", "executions"),
        "replay_high_load_loss": more("high", "p99_ms"),
        "replay_high_load_extra_work": more("high", "executions"),
    }


def table(result: Result) -> list[str]:
    return replay_table(LOADS, tuple(TAILS), result)


REPLAY = Row("replay", contests, conclude, table)
