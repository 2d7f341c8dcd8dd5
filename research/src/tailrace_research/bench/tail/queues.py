"""The row about shared queues: Du's setting, a queue for each task, for those of each worker, or for all of a node.

Delay is what a tuple takes besides its execution: waiting, and the way. Erlang's formula knows no way, and takes
arrivals at each queue for random, while shuffle deals tuples out in turn, which makes queues shorter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Final

from tailrace.clock import MILLISECOND_NS
from tailrace.policy.techniques import Tail
from tailrace.sim import Queue, Scope, simulate
from tailrace.sim.load.erlang import mean_wait
from tailrace_research.bench.tail.groupings import LINK_NS, WORKERS
from tailrace_research.bench.tail.run import (
    SIMULATED,
    STEMS,
    WARM_UP,
    Result,
    Row,
    Samples,
    TailSizes,
    latency_figures,
    ratios,
)
from tailrace_research.bench.turns import Contest, Figures, aligned, range_of
from tailrace_research.bench.workloads import Draw, Outcome, Workload, run_workload
from tailrace_research.bench.workloads.content import MEAN_UNITS, exponential

NAME = "shared_queue"
A_WORKER = 4  # tasks
DRAW = Draw(load=0.78, tasks=A_WORKER * WORKERS, poisson=True)
OWN: Final = "own"
SHARED: Final = "worker"
NODE: Final = "node"
QUEUES = {
    OWN: (Tail(), Scope.OWN, 1),
    SHARED: (Tail(shared_queues=SHARED), Scope.WORKER, A_WORKER),
    NODE: (Tail(shared_queues=NODE), Scope.NODE, A_WORKER * WORKERS),
}
"""Which techniques are on, and which tasks, and how many, draw from one queue."""


def delays_ns(outcome: Outcome) -> list[int]:
    """Delays of tuples in the order in which they were due. Each tuple was executed once."""
    spent_ns = {execution.root: execution.ended_ns - execution.began_ns for execution in outcome.executions}
    return [latency_ns - spent_ns[root] for root, latency_ns in enumerate(outcome.latencies_ns)]


def measure(queues: str, draw: Draw) -> Figures:
    return figures_of(NAME, queues, exponential(draw))


def figures_of(name: str, queues: str, workload: Workload) -> Figures:
    """Figures of one live run of any stream, under shuffle, and of its simulation. Keys begin with a row's name."""
    tail, scope, _ = QUEUES[queues]
    outcome = run_workload(workload, workers=WORKERS, tail=tail)
    live = latency_figures(f"{name}_{queues}", outcome.latencies_ns)
    live[f"{name}_{queues}_delay_ms"] = _mean_ms(delays_ns(outcome))
    return live | _simulate(name, queues, scope, workload)


def _simulate(name: str, queues: str, scope: Scope, workload: Workload) -> Figures:
    model = replace(workload.model(LINK_NS), workers=WORKERS, queue=Queue(scope))
    report = simulate(model, "shuffle", seed=workload.draw.seed)
    latencies_ns = [done - due for done, due in zip(report.done_ns, report.due_ns, strict=True)]
    waits_ns = [latency - work for latency, work in zip(latencies_ns, workload.works_ns, strict=True)]
    figures = latency_figures(f"{name}{SIMULATED}{queues}", latencies_ns)
    return figures | {f"{name}{SIMULATED}{queues}_delay_ms": _mean_ms(waits_ns)}


def _mean_ms(times_ns: Sequence[int]) -> float:
    counted = times_ns[int(WARM_UP * len(times_ns)) :]
    return sum(counted) / len(counted) / MILLISECOND_NS


def contests(sizes: TailSizes) -> list[Contest]:
    draw = replace(DRAW, tuples=sizes.tuples, unit_ns=int(sizes.unit_ms * MILLISECOND_NS))
    seeds = {queues: count(draw.seed) for queues in QUEUES}
    return [
        Contest(f"{NAME}, {queues}", partial(lambda of: measure(of, replace(draw, seed=next(seeds[of]))), queues))
        for queues in QUEUES
    ]


def conclude(samples: Samples) -> Samples:
    """By which share of what it is with queues of their own each figure is lower."""
    found: Samples = {}
    for place, infix in (("", "_"), ("sim_", SIMULATED)):
        for stem in ("delay", "p99", "p999"):
            own, *shared = (f"{NAME}{infix}{queues}_{stem}_ms" for queues in QUEUES)
            for key, above in zip(CUT_BY, shared, strict=True):
                found[f"{key}_{place}{stem}_cut"] = [1 - ratio for ratio in ratios(samples, above, own)]
    return found


def erlang_ms(servers: int, unit_ms: float) -> float:
    """The mean wait by Erlang's formula."""
    rate = 1 / (MEAN_UNITS * unit_ms)
    return mean_wait(servers, DRAW.load * servers * rate, rate)


def table(result: Result) -> list[str]:
    title = f"{A_WORKER} tasks a worker, {DRAW.load:.0%} load, ms"
    names = (title, *(cell for stem in STEMS.values() for cell in (stem, "")))
    rows: list[Sequence[str]] = [(*names, "delay", "", "simulated", "Erlang C")]
    for queues, (_, _, servers) in QUEUES.items():
        keys = [f"{NAME}_{queues}_{stem}" for stem in (*STEMS, "delay_ms")]
        cells = [cell for key in keys for cell in (f"{result[key]:,.1f}", range_of(result, key, "{:,.1f}"))]
        simulated = f"{result[f'{NAME}{SIMULATED}{queues}_delay_ms']:,.1f}"
        rows.append((queues, *cells, simulated, f"{erlang_ms(servers, result['unit_ms']):,.1f}"))
    return [*aligned(rows), *(_in_words(key, queues, result) for key, queues in CUT_BY.items())]


def _in_words(key: str, queues: str, result: Result) -> str:
    cuts = ", ".join(f"{stem} {result[f'{key}_{name}_cut']:.0%}" for stem, name in CUTS.items())
    return f"lower by {queues}: {cuts}; delay in the simulator {result[f'{key}_sim_delay_cut']:.0%}"


CUTS = {"delay": "delay", "p99": "p99", "p99.9": "p999"}
CUT_BY = {NAME: SHARED, f"{NAME}_node": NODE}
"""Beginnings of the keys of figures that compare each kind of shared queue with queues of their own."""

SHARED_QUEUE = Row(NAME, contests, conclude, table)
