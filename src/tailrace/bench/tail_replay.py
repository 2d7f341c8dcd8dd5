"""The row about replay: streams with stalls, with and without hedging, where there is room and where there is not.

One execution in a hundred takes fifty times as long. One operator is where hedging does best; in a chain of three, the
further ones get the second copy wherever it happens to go. A rule needs to see latencies and load before it hedges, so
the first seconds are left out, for both sides.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

from tailrace.bench.tail import Result, Row, Samples, TailSizes, latency_figures, ratios
from tailrace.bench.tail_table import replay_table
from tailrace.bench.turns import Contest, Figures
from tailrace.bench.workloads import Draw, Outcome, Workload, exclamation, micro, run_workload
from tailrace.clock import MILLISECOND_NS, SECOND_NS
from tailrace.policy import Tail, adaptive_timeout

WORKERS = 2


@dataclass(frozen=True)
class Setting:
    """A stream at a load."""

    title: str
    make: Callable[[Draw], Workload]
    load: float


SETTINGS: Mapping[str, Setting] = {
    "low": Setting("one operator, 20% load", micro, 0.2),
    "high": Setting("one operator, 90% load", micro, 0.9),
    "chain": Setting("three in a row, 20% load", exclamation, 0.2),
}
"""At 30% load one root in nine is stuck behind a stall. A rule that calls nine in ten quick then comes late."""

TAILS: Mapping[str, Tail] = {"plain": Tail(), "hedged": Tail(replay=adaptive_timeout())}

LONGER = 2
"""Times the unit of other rows: it is not the machine's processors that shall be busy."""

SETTLING_NS = 3 * SECOND_NS
MOST_LEFT_OUT = 0.3
"""Of a stream that is shorter than that."""


def contests(sizes: TailSizes) -> list[Contest]:
    return [
        Contest(f"replay, {setting.title}, {name}", _turns(sizes, place, name))
        for place, setting in SETTINGS.items()
        for name in TAILS
    ]


def _turns(sizes: TailSizes, place: str, name: str) -> Callable[[], Figures]:
    unit_ns = int(LONGER * sizes.unit_ms * MILLISECOND_NS)
    draw = Draw(tuples=sizes.tuples, load=SETTINGS[place].load, unit_ns=unit_ns, poisson=True, stalls=True)
    return partial(_measure, place, name, draw, count(draw.seed))


def _measure(place: str, name: str, draw: Draw, seeds: count[int]) -> Figures:
    workload = SETTINGS[place].make(replace(draw, seed=next(seeds)))
    outcome = run_workload(workload, workers=WORKERS, tail=TAILS[name])
    return figures(f"replay_{place}_{name}", workload, outcome)


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
        "replay_chain_p999_cut": [-change for change in more("chain", "p999_ms")],
        "replay_chain_extra_work": more("chain", "executions"),
    }


def table(result: Result) -> list[str]:
    return replay_table({place: setting.title for place, setting in SETTINGS.items()}, tuple(TAILS), result)


REPLAY = Row("replay", contests, conclude, table)
