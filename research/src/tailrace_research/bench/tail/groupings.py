"""Rows that run one stream under several groupings, live, and on the simulator beside.

The simulator has no engine, no timers and no neighbours: how far live figures are from its own is what these cost. It
alone can tell what exact knowledge of all costs would bring for the same stream. The simulation gets what
the calls of the live run really took, so that a sleep that ended late is not counted against a grouping.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count

from tailrace.clock import MICROSECOND_NS, MILLISECOND_NS, SECOND_NS
from tailrace.policy import (
    Grouping,
    full_knowledge,
    latency_balanced,
    least_work,
    osg,
    power_of_two,
    pull,
    shuffle,
)
from tailrace.policy.keys import Key
from tailrace.policy.techniques import NODE, PLAIN, Tail
from tailrace.sim import Queue, Scope, simulate
from tailrace.sim.load.policies import itself
from tailrace_research.bench.tail.run import SIMULATED, Row, Samples, TailSizes, latency_figures, ratios
from tailrace_research.bench.tail.table import groupings_table
from tailrace_research.bench.turns import Contest, Figures
from tailrace_research.bench.workloads import Draw, Outcome, Workload, content, micro, run_workload

WORKERS = 2

LINK_NS = 100 * MICROSECOND_NS
"""From task to task in the simulator: about what a hop takes between two workers, by ``bench engine``."""

OSG_WINDOW = 64
"""Instead of the paper's 1,024 for 100,000 tuples, whose first sketches would come after 10,240: a run here is over by
then. With 256 it learns for half of a stream of 10,000 tuples, and gains nothing, in the simulator neither."""

BALANCE_PERIOD_S = 0.5
"""Instead of the paper's 5: its balancing moves a hundredth of the traffic at a time, and needs half a minute to halve
the p99, by the simulator."""

SETTLING_NS = 5 * SECOND_NS
MOST_LEFT_OUT = 0.5
"""At most this share of a stream is left out: OSG collects its first sketches then, and balancing moves traffic."""

BASELINE = "shuffle"

Groupings = Mapping[str, Callable[[Key], Grouping]]
"""Groupings by name. Each is made for the key that a tuple's cost depends on."""

GROUPINGS: Groupings = {
    BASELINE: lambda key: shuffle(),
    "osg": partial(osg, window=OSG_WINDOW),
    "osg_pooled": partial(osg, window=OSG_WINDOW, pooled=True),
    "least_work": least_work,
    "power_of_two": lambda key: power_of_two(),
    "pull": lambda key: pull(),
    "node_queue": lambda key: shuffle(),
}
ORACLE = "full_knowledge"

Queues = Mapping[str, tuple[Tail, Scope]]
"""By name, for who shares queues: what is on, and what that is to the simulator."""

QUEUES: Queues = {"node_queue": (Tail(shared_queues=NODE), Scope.NODE)}
OWN = (PLAIN, Scope.OWN)

LATE_BINDING = ("pull", "node_queue")
"""Tuples wait for a task to be free, with their sender or in one queue: the better of the two is held against the
ideal."""

BALANCERS: Groupings = {
    BASELINE: GROUPINGS[BASELINE],
    "latency_balanced": lambda key: latency_balanced(period_s=BALANCE_PERIOD_S),
    "latency_balanced_fast": lambda key: latency_balanced(fast=True),
    **{name: GROUPINGS[name] for name in ("least_work", "power_of_two", "pull")},
}
SLOWNESS = (4.0, 1.0, 1.0, 1.0, 1.0)
BALANCE_LOAD = 0.25  # of all tasks together: under shuffle the slow one is busy for 85% of the time

HEADLINES = {"latency_balanced": "balance_p99_cut", "latency_balanced_fast": "balance_fast_p99_cut"}


@dataclass(frozen=True)
class Study:
    """A stream and the groupings that share it out. What follows from its figures has keys with a prefix."""

    name: str
    make: Callable[[Draw], Workload]
    draw: Draw
    groupings: Groupings
    prefix: str
    settling_ns: int = 0  # from the beginning of a stream, left out
    queues: Queues = field(default_factory=dict)

    def contests(self, sizes: TailSizes) -> list[Contest]:
        draw = replace(self.draw, tuples=sizes.tuples, unit_ns=int(sizes.unit_ms * MILLISECOND_NS))
        live = [
            Contest(f"{self.name}, {policy}", _turns(partial(self.measure, policy), draw)) for policy in self.groupings
        ]
        ideal = partial(self._simulate, ORACLE, full_knowledge(), Scope.OWN)
        return [*live, Contest(f"{self.name}, {ORACLE}", _turns(lambda draw: ideal(self.make(draw)), draw))]

    def measure(self, policy: str, draw: Draw) -> Figures:
        """Figures of one live run and of its simulation."""
        workload = self.make(draw)
        tail, scope = self.queues.get(policy, OWN)
        outcome = run_workload(workload, self.groupings[policy](workload.key), workers=WORKERS, tail=tail)
        live = self._figures(f"{self.name}_{policy}", workload, outcome.latencies_ns)
        live |= feedback_figures(f"{self.name}_{policy}", outcome)
        ideal = self._simulate(ORACLE, full_knowledge(), Scope.OWN, as_run(workload, outcome))
        live[f"{self.name}_{policy}_ideal_ms"] = ideal[f"{self.name}{SIMULATED}{ORACLE}_mean_ms"]
        return live | self._simulate(policy, self.groupings[policy](itself), scope, workload)

    def _simulate(self, policy: str, grouping: Grouping, scope: Scope, workload: Workload) -> Figures:
        model = workload.model(LINK_NS)
        if scope is not Scope.OWN:
            model = replace(model, workers=WORKERS, queue=Queue(scope))
        report = simulate(model, grouping, seed=workload.draw.seed)
        latencies_ns = [done - due for done, due in zip(report.done_ns, report.due_ns, strict=True)]
        return self._figures(f"{self.name}{SIMULATED}{policy}", workload, latencies_ns)

    def _figures(self, prefix: str, workload: Workload, latencies_ns: Sequence[int]) -> Figures:
        settled = bisect_left(workload.due_ns, self.settling_ns)
        return latency_figures(prefix, latencies_ns[min(settled, int(MOST_LEFT_OUT * len(latencies_ns))) :])

    def conclude(self, samples: Samples) -> Samples:
        """Ratios to shuffle, live and simulated; live to simulated; and what share of the ideal a live run reaches."""
        found: Samples = {}
        for policy in self.groupings:
            live, simulated = f"{self.name}_{policy}", f"{self.name}{SIMULATED}{policy}"
            for stem in ("mean", "p99"):
                for place, key in (("", live), ("sim_", simulated)):
                    base = f"{key.removesuffix(policy)}{BASELINE}_{stem}_ms"
                    found[f"{self.prefix}{place}{policy}_{stem}_ratio"] = ratios(samples, f"{key}_{stem}_ms", base)
            found[f"{self.prefix}{policy}_vs_full"] = ratios(samples, f"{live}_ideal_ms", f"{live}_mean_ms")
            found[f"{self.prefix}{policy}_agreement"] = ratios(samples, f"{live}_mean_ms", f"{simulated}_mean_ms")
        return found

    def row(self, title: str, conclude: Callable[[Samples], Samples]) -> Row:
        table = partial(groupings_table, self.name, self.prefix, tuple(self.groupings), title)
        return Row(self.name, self.contests, conclude, table)


def as_run(workload: Workload, outcome: Outcome) -> Workload:
    """The same stream with what each call really took, at a task of slowness 1."""
    works_ns = list(workload.works_ns)
    slowness = workload.draw.slowness or (1.0,) * workload.draw.tasks
    for execution in outcome.executions:
        works_ns[execution.root] = int((execution.ended_ns - execution.began_ns) / slowness[execution.task])
    return replace(workload, works_ns=tuple(works_ns))


def feedback_figures(prefix: str, outcome: Outcome) -> Figures:
    """Feedback time a tuple in the worker that spends most: 10 us are 1% of a core at 1,000 tuples a second."""
    costs = [worker["feedback"] for worker in outcome.progress.get("workers", ())]
    tuples = len(outcome.latencies_ns)
    return {
        f"{prefix}_feedback_us": max((1000 * cost["ms"] / tuples for cost in costs), default=0.0),
        f"{prefix}_feedback_bytes": max((cost["bytes"] / tuples for cost in costs), default=0.0),
    }


def _turns(measure: Callable[[Draw], Figures], draw: Draw) -> Callable[[], Figures]:
    """Each turn with the next seed."""
    seeds = count(draw.seed)
    return lambda: measure(replace(draw, seed=next(seeds)))


BY_CONTENT = Study("grouping", content, Draw(load=0.95), GROUPINGS, "", SETTLING_NS, QUEUES)


def with_late_binding(samples: Samples) -> Samples:
    """Besides: what share of the ideal late binding reaches."""
    found = BY_CONTENT.conclude(samples)
    late = [found[f"{policy}_vs_full"] for policy in LATE_BINDING]
    better = [max(both) for both in zip(*late, strict=True)]
    return found | {"pull_only_vs_full": found["pull_vs_full"], "pull_vs_full": better}


GROUPING = BY_CONTENT.row("costs by content, 95% load", with_late_binding)

SLOW_TASK = Study(
    "balance",
    micro,
    Draw(load=BALANCE_LOAD, poisson=True, slowness=SLOWNESS),
    BALANCERS,
    "balance_",
    settling_ns=SETTLING_NS,
)


def _with_cuts(samples: Samples) -> Samples:
    """Besides: by which share of shuffle's the p99 is lower."""
    found = SLOW_TASK.conclude(samples)
    for policy in BALANCERS:
        found[f"balance_{policy}_p99_cut"] = [1 - ratio for ratio in found[f"balance_{policy}_p99_ratio"]]
    return found | {key: found[f"balance_{policy}_p99_cut"] for policy, key in HEADLINES.items()}


BALANCE = SLOW_TASK.row("one task of five 4 times slower", _with_cuts)
