"""Du's three techniques (Du and Gupta 2016, and Du's thesis): replay by timeout, shared queues, balancing by latency.

What they measured on Storm is simulated here: latencies before and after, theirs beside ours, and where a technique
loses. Models are in ``models``, claims and charts in ``figures``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from random import Random
from statistics import fmean
from typing import Any

from tailrace.clock import MILLISECOND_NS as MS
from tailrace.clock import SECOND_NS
from tailrace.sim.load.forest import Forest, grow
from tailrace.sim.load.models.model import Model, Queue, Scope
from tailrace.sim.load.report import Report
from tailrace.sim.load.simulate import simulate
from tailrace_research.reproduce.du.figures import (
    CONTENT_LOADS,
    EQUAL_LOADS,
    LOADS,
    QUEUE_LOADS,
    SERVER_LOADS,
    SHARED_LOAD,
    SLOW_LOADS,
    TABLE_2_LOADS,
    TABLE_3_LOADS,
    TABLE_5_LOADS,
    UNEQUAL_LOADS,
    figure_3,
    figure_4,
    figure_5,
    figure_balance,
    figure_replay,
    table_2,
    table_3,
    table_5,
)
from tailrace_research.reproduce.du.models import EXPERIMENTS, SERVERS, TECHNIQUES
from tailrace_research.reproduce.study import Cell, Cells, Study

PARAMETERS = {"experiment": str, "at": float, "technique": str, "stream": int, "seed": int}
MEASURES = {
    "mean_ms": float,
    "p50_ms": float,
    "p90_ms": float,
    "p99_ms": float,
    "p999_ms": float,
    "wait_ms": float,  # in front of the first operator, in the mean
    "work_s": float,  # of all tasks
    "hedges": float,  # of all roots
    "won": float,  # of all hedges
    "converged_s": float,
}

WINDOW_S = 10
STEADY = 1.5
"""Latency has converged in a second from which on the mean of ten is within so many times that of the last quarter."""


def run_cell(cell: Cell) -> dict[str, Any]:
    """All techniques meet the same roots in a stream; the seed is for choices of their own."""
    experiment, technique = EXPERIMENTS[cell["experiment"]], TECHNIQUES[cell["technique"]]
    model = experiment.model(cell["at"])
    if technique.scope is not Scope.OWN:
        model = replace(model, queue=Queue(technique.scope))
    report = simulate(
        model,
        technique.grouping,
        hedge=technique.replay,
        seed=1_000 * cell["stream"] + cell["seed"],
        forest=_grown(model, cell["stream"]),
    )
    return _measured(report, experiment.warm)


def _grown(model: Model, stream: int) -> Forest:
    """Each root comes from any of the senders: in turn they would march in step, and always meet at the same tasks."""
    rng = Random(f"{stream} senders")
    return replace(grow(model, stream), senders=[rng.randrange(model.senders) for _ in range(model.tuples)])


def _measured(report: Report, warm: float) -> dict[str, Any]:
    begin = int(warm * len(report.due_ns))
    ordered = sorted(
        done_ns - due_ns for due_ns, done_ns in zip(report.due_ns[begin:], report.done_ns[begin:], strict=True)
    )
    shares = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "p999_ms": 0.999}
    return {
        "mean_ms": fmean(ordered) / MS,
        **{name: ordered[min(int(len(ordered) * share), len(ordered) - 1)] / MS for name, share in shares.items()},
        "wait_ms": report.stages[0].mean_wait_ns / MS,
        "work_s": sum(report.busy_ns) / SECOND_NS,
        "hedges": report.hedges / len(report.due_ns),
        "won": report.hedges_won / max(1, report.hedges),
        "converged_s": converged_s(report.due_ns, report.done_ns),
    }


def converged_s(due_ns: Sequence[int], done_ns: Sequence[int]) -> float:
    """The end of the first second that ``STEADY`` speaks of."""
    sums, counts = [0] * (due_ns[-1] // SECOND_NS + 1), [0] * (due_ns[-1] // SECOND_NS + 1)
    for due, done in zip(due_ns, done_ns, strict=True):
        sums[due // SECOND_NS] += done - due
        counts[due // SECOND_NS] += 1
    quarter = -(-len(sums) // 4)
    steady_ns = sum(sums[-quarter:]) / max(1, sum(counts[-quarter:]))
    for second in range(len(sums)):
        window = slice(second, second + WINDOW_S)
        if sum(sums[window]) <= STEADY * steady_ns * sum(counts[window]):
            return float(second + 1)
    return float(len(sums))


def _grid(points: Iterable[tuple[str, float, str]]) -> Cells:
    found = list(dict.fromkeys(points))

    def cells(streams: int, seeds: int) -> list[Cell]:
        return [
            dict(zip(PARAMETERS, (*point, stream, seed), strict=True))
            for point, stream, seed in product(found, range(streams), range(seeds))
        ]

    return cells


def _all(experiment: str, loads: Iterable[float], *techniques: str) -> list[tuple[str, float, str]]:
    return [(experiment, load, technique) for load, technique in product(loads, ("none", *techniques))]


def _each(loads: Mapping[str, float], *techniques: str) -> list[tuple[str, float, str]]:
    return [point for experiment, load in loads.items() for point in _all(experiment, [load], *techniques)]


TIMEOUTS = ("adaptive_timeout", "du_timeout")
BALANCERS = ("latency_balanced", "latency_balanced_fast")
REPLICATIONS = ("replicate_20", "replicate_50", "replicate_100")

DU = Study(
    name="du",
    parameters=PARAMETERS,
    measures=MEASURES,
    run_cell=run_cell,
    figures=(
        figure_3(
            _grid(
                [
                    *(("servers", servers + load, "none") for servers, load in product(SERVERS, SERVER_LOADS)),
                    *_all("bolt", [SHARED_LOAD], "shared_queue"),
                    *_all("sleeping_bolt", [SHARED_LOAD], "shared_queue"),
                ]
            )
        ),
        table_2(_grid(_all("exclamation", TABLE_2_LOADS, *TIMEOUTS, *REPLICATIONS))),
        table_3(_grid(_each(TABLE_3_LOADS, *BALANCERS))),
        figure_4(_grid(_all("sleeping_bolt", QUEUE_LOADS, "shared_queue", *TIMEOUTS))),
        figure_5(_grid(_all("scenario_c", UNEQUAL_LOADS, *BALANCERS, *TIMEOUTS))),
        table_5(
            _grid(
                [
                    *_each(TABLE_5_LOADS["timeouts"], *TIMEOUTS),
                    *_each(TABLE_5_LOADS["queues"], "shared_queue"),
                    *_each(TABLE_5_LOADS["unequal"], *BALANCERS),
                ]
            )
        ),
        figure_replay(_grid([*_all("stalls", LOADS, *TIMEOUTS), *_all("content", CONTENT_LOADS, *TIMEOUTS)])),
        figure_balance(
            _grid([*_all("slow_task", SLOW_LOADS, *BALANCERS), *_all("equal_tasks", EQUAL_LOADS, *BALANCERS)])
        ),
    ),
    modules=("tailrace_research.reproduce.du.study", "tailrace_research.reproduce.du.models"),
)
