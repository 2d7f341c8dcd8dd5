"""Rows that run one stream under several groupings, live, and on the simulator beside.

The simulator has no engine, no timers and no neighbours: how far live figures are from its own is what these cost. It
alone can tell what exact knowledge of all costs would bring for the same stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

from tailrace.bench.tail import SIMULATED, Row, Samples, TailSizes, latency_figures, ratios
from tailrace.bench.tail_table import groupings_table
from tailrace.bench.turns import Contest, Figures
from tailrace.bench.workloads import Draw, Workload, content, micro, run_workload
from tailrace.clock import MICROSECOND_NS, MILLISECOND_NS
from tailrace.policy import Grouping, full_knowledge, least_work, osg, power_of_two, pull, shuffle
from tailrace.policy.keys import Key
from tailrace.sim import simulate
from tailrace.sim.policies import itself

WORKERS = 2

LINK_NS = 100 * MICROSECOND_NS
"""From task to task in the simulator: about what a hop takes between two workers, by ``bench engine``."""

OSG_WINDOW = 256
"""Instead of the paper's 1,024: its first sketches would come after 10,240 tuples, when a run here is over."""

BASELINE = "shuffle"

Groupings = Mapping[str, Callable[[Key], Grouping]]
"""By name, made for what a tuple's cost depends on."""

GROUPINGS: Groupings = {
    BASELINE: lambda key: shuffle(),
    "osg": partial(osg, window=OSG_WINDOW),
    "osg_pooled": partial(osg, window=OSG_WINDOW, pooled=True),
    "least_work": least_work,
    "power_of_two": lambda key: power_of_two(),
    "pull": lambda key: pull(),
}
ORACLE = "full_knowledge"

BALANCERS: Groupings = {name: GROUPINGS[name] for name in (BASELINE, "least_work", "power_of_two", "pull")}
SLOWNESS = (4.0, 1.0, 1.0, 1.0, 1.0)
BALANCE_LOAD = 0.25  # of all tasks together: under shuffle the slow one is busy for 85% of the time

HEADLINES = {"least_work": "balance_fast_p99_cut"}
"""It is fast because it moves with every tuple; Du's balancing moves a hundredth of the traffic every five seconds."""


@dataclass(frozen=True)
class Study:
    """A stream and the groupings that share it out. What follows from its figures has keys with a prefix."""

    name: str
    make: Callable[[Draw], Workload]
    draw: Draw
    groupings: Groupings
    prefix: str

    def contests(self, sizes: TailSizes) -> list[Contest]:
        draw = replace(self.draw, tuples=sizes.tuples, unit_ns=int(sizes.unit_ms * MILLISECOND_NS))
        live = [
            Contest(f"{self.name}, {policy}", _turns(partial(self.measure, policy), draw)) for policy in self.groupings
        ]
        ideal = partial(self._simulate, ORACLE, full_knowledge())
        return [*live, Contest(f"{self.name}, {ORACLE}", _turns(lambda draw: ideal(self.make(draw)), draw))]

    def measure(self, policy: str, draw: Draw) -> Figures:
        """Figures of one live run and of its simulation."""
        workload = self.make(draw)
        outcome = run_workload(workload, self.groupings[policy](workload.key), workers=WORKERS)
        live = latency_figures(f"{self.name}_{policy}", outcome.latencies_ns)
        return live | self._simulate(policy, self.groupings[policy](itself), workload)

    def _simulate(self, policy: str, grouping: Grouping, workload: Workload) -> Figures:
        report = simulate(workload.model(LINK_NS), grouping, seed=workload.draw.seed)
        latencies_ns = [done - due for done, due in zip(report.done_ns, report.due_ns, strict=True)]
        return latency_figures(f"{self.name}{SIMULATED}{policy}", latencies_ns)

    def conclude(self, samples: Samples) -> Samples:
        """Ratios to shuffle, live and simulated; live to simulated; and what share of the ideal a live run reaches."""
        found: Samples = {}
        for policy in self.groupings:
            live, simulated = f"{self.name}_{policy}", f"{self.name}{SIMULATED}{policy}"
            for stem in ("mean", "p99"):
                for place, key in (("", live), ("sim_", simulated)):
                    base = f"{key.removesuffix(policy)}{BASELINE}_{stem}_ms"
                    found[f"{self.prefix}{place}{policy}_{stem}_ratio"] = ratios(samples, f"{key}_{stem}_ms", base)
            ideal = f"{self.name}{SIMULATED}{ORACLE}_mean_ms"
            found[f"{self.prefix}{policy}_vs_full"] = ratios(samples, ideal, f"{live}_mean_ms")
            found[f"{self.prefix}{policy}_agreement"] = ratios(samples, f"{live}_mean_ms", f"{simulated}_mean_ms")
        return found

    def row(self, title: str, conclude: Callable[[Samples], Samples]) -> Row:
        table = partial(groupings_table, self.name, self.prefix, tuple(self.groupings), title)
        return Row(self.name, self.contests, conclude, table)


def _turns(measure: Callable[[Draw], Figures], draw: Draw) -> Callable[[], Figures]:
    """Each turn with the next seed."""
    seeds = count(draw.seed)
    return lambda: measure(replace(draw, seed=next(seeds)))


BY_CONTENT = Study("grouping", content, Draw(load=0.95), GROUPINGS, "")
GROUPING = BY_CONTENT.row("costs by content, 95% load", BY_CONTENT.conclude)

SLOW_TASK = Study("balance", micro, Draw(load=BALANCE_LOAD, poisson=True, slowness=SLOWNESS), BALANCERS, "balance_")


def _with_cuts(samples: Samples) -> Samples:
    """Besides: by which share of shuffle's the p99 is lower."""
    found = SLOW_TASK.conclude(samples)
    for policy in BALANCERS:
        found[f"balance_{policy}_p99_cut"] = [1 - ratio for ratio in found[f"balance_{policy}_p99_ratio"]]
    return found | {key: found[f"balance_{policy}_p99_cut"] for policy, key in HEADLINES.items()}


BALANCE = SLOW_TASK.row("one task of five 4 times slower", _with_cuts)
