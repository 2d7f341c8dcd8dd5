"""The row about replay: streams with stalls, with and without hedging, where there is room and where there is not.

One execution in a hundred takes fifty times as long. One operator is where hedging does best; in a chain of three, the
further ones get the second copy wherever it happens to go. A rule needs to see latencies and load before it hedges, so
the first seconds are left out, for both sides.

The simulator runs the same arrivals under the same rule. Each run draws for itself which executions stall, live or
simulated, with and without hedging: repeats tell how much that matters.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

from tailrace.clock import MILLISECOND_NS, SECOND_NS
from tailrace.policy import Tail, adaptive_timeout
from tailrace.sim import Model, Stage, Stalls, simulate
from tailrace_research.bench.tail.groupings import LINK_NS, WORKERS
from tailrace_research.bench.tail.run import SIMULATED, Result, Row, Samples, TailSizes, latency_figures, ratios
from tailrace_research.bench.tail.table import replay_table
from tailrace_research.bench.turns import Contest, Figures
from tailrace_research.bench.workloads import Draw, Workload, exclamation, micro, run_workload


@dataclass(frozen=True)
class Setting:
    """A stream at a load."""

    title: str
    make: Callable[[Draw], Workload]
    load: float
    operators: int = 1
    times: int = 1  # as many tuples as elsewhere: so many that it takes about as long

    def model(self, workload: Workload) -> Model:
        stall = workload.draw.stall
        stages = tuple(Stage(f"operator{number}") for number in range(self.operators))
        stalls = Stalls(stall.share, stall.factor) if stall else None
        return replace(workload.model(LINK_NS), stages=stages, stalls=stalls)


SETTINGS: Mapping[str, Setting] = {
    "low": Setting("one operator, 30% load", micro, 0.3),
    "middle": Setting("one operator, 40% load", micro, 0.4),
    "high": Setting("one operator, 80% load", micro, 0.8, times=3),
    "chain": Setting("three in a row, 30% load", exclamation, 0.3, operators=3),
}
TAILS: Mapping[str, Tail] = {"plain": Tail(), "hedged": Tail(hedge=adaptive_timeout())}

LONGER = 2
"""Times the unit of other rows: it is not the machine's processors that shall be busy."""

SETTLING_NS = 6 * SECOND_NS
MOST_LEFT_OUT = 0.5
"""At most this share of a stream is left out."""


def contests(sizes: TailSizes) -> list[Contest]:
    return [
        Contest(f"replay, {setting.title}, {name}", _turns(sizes, place, name))
        for place, setting in SETTINGS.items()
        for name in TAILS
    ]


def _turns(sizes: TailSizes, place: str, name: str) -> Callable[[], Figures]:
    setting, unit_ns = SETTINGS[place], int(LONGER * sizes.unit_ms * MILLISECOND_NS)
    tuples = setting.times * sizes.tuples
    draw = Draw(tuples=tuples, load=setting.load, unit_ns=unit_ns, poisson=True, stalls=True)
    return partial(_measure, place, name, draw, count(draw.seed))


def _measure(place: str, name: str, draw: Draw, seeds: count[int]) -> Figures:
    """Figures of one live run and of its simulation."""
    setting = SETTINGS[place]
    workload = setting.make(replace(draw, seed=next(seeds)))
    outcome = run_workload(workload, workers=WORKERS, tail=TAILS[name])
    live = figures(f"replay_{place}_{name}", workload, outcome.latencies_ns, len(outcome.executions))
    report = simulate(setting.model(workload), hedge=TAILS[name].hedge, seed=workload.draw.seed)
    latencies_ns = [done - due for done, due in zip(report.done_ns, report.due_ns, strict=True)]
    return live | figures(f"replay{SIMULATED}{place}_{name}", workload, latencies_ns, sum(report.executed))


def figures(prefix: str, workload: Workload, latencies_ns: Sequence[int], executions: int) -> Figures:
    roots = len(latencies_ns)
    first = min(bisect_left(workload.due_ns, SETTLING_NS), int(MOST_LEFT_OUT * roots))
    latencies = latency_figures(prefix, latencies_ns[first:])
    return {**latencies, f"{prefix}_executions": executions / roots}


def conclude(samples: Samples) -> Samples:
    """By how much the tail is shorter where there is room, what that costs, and what is lost where there is little.

    The same of the simulator, and how far it is from the live runs.
    """

    def more(infix: str, place: str, stem: str) -> list[float]:
        hedged, plain = (f"replay{infix}{place}_{name}_{stem}" for name in ("hedged", "plain"))
        return [ratio - 1 for ratio in ratios(samples, hedged, plain)]

    found: Samples = {}
    for prefix, infix in (("replay_", "_"), ("replay_sim_", SIMULATED)):
        found |= {
            f"{prefix}p999_cut": [-change for change in more(infix, "low", "p999_ms")],
            f"{prefix}p99_cut": [-change for change in more(infix, "low", "p99_ms")],
            f"{prefix}extra_work": more(infix, "low", "executions"),
            f"{prefix}middle_p999_cut": [-change for change in more(infix, "middle", "p999_ms")],
            f"{prefix}middle_extra_work": more(infix, "middle", "executions"),
            f"{prefix}high_load_loss": more(infix, "high", "p99_ms"),
            f"{prefix}high_load_extra_work": more(infix, "high", "executions"),
            f"{prefix}chain_p999_cut": [-change for change in more(infix, "chain", "p999_ms")],
            f"{prefix}chain_extra_work": more(infix, "chain", "executions"),
        }
    for place in SETTINGS:
        for name in TAILS:
            live, simulated = (f"replay{infix}{place}_{name}_p999_ms" for infix in ("_", SIMULATED))
            found[f"replay_{place}_{name}_agreement"] = ratios(samples, live, simulated)
    return found


def table(result: Result) -> list[str]:
    return replay_table({place: setting.title for place, setting in SETTINGS.items()}, tuple(TAILS), result)


REPLAY = Row("replay", contests, conclude, table)
