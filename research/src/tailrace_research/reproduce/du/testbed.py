"""Du's testbed figures on live workers: Tables 2, 3 and 5, Figs. 4 and 5, and the shared queue of Sec. 5.1.2.

Experiments, loads and claims are those of the simulated figures. Theirs ran on five machines with two processors each,
ours on one: work is sleep, which costs no processor time, and two workers stand for five. What the engine takes for a
tuple and an operator is about a third of a millisecond of processor time at these rates; so experiments are stretched
in time, which leaves loads and cuts as they are, and what is measured is divided by the stretch again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from tailrace.chart import Chart
from tailrace.clock import MILLISECOND_NS as MS
from tailrace.clock import SECOND_NS
from tailrace.policy.groupings.latency_balanced import latency_balanced
from tailrace.policy.techniques import Tail
from tailrace.sim.load.models.model import Scope
from tailrace_research.bench.tail.queues import delays_ns
from tailrace_research.bench.turns import Figures, percentile
from tailrace_research.bench.workloads import (
    Draw,
    Outcome,
    Workload,
    exclamation,
    micro,
    page_load,
    processing,
    run_workload,
)
from tailrace_research.bench.workloads.content import MEAN_UNITS, PLAIN_UNITS, exponential
from tailrace_research.bench.workloads.pages import UNITS
from tailrace_research.reproduce.du.figures import (
    SHARED_LOAD,
    TABLE_2_LOADS,
    TABLE_3_LOADS,
    TABLE_5_LOADS,
    shared_queue_claims,
)
from tailrace_research.reproduce.du.models import HICCUPS, SERVICE_NS, TECHNIQUES, Technique
from tailrace_research.reproduce.du.study import BALANCERS, DU, REPLICATIONS, TIMEOUTS
from tailrace_research.reproduce.study import Claim, Row
from tailrace_research.reproduce.testbed.study import LiveFigure, LiveStudy, Trial

WORKERS = 2
A_WORKER = 4  # tasks of an operator, where queues are shared
SPOUTS = 5
QUEUE_LOADS = (0.36, 0.58, 0.78, 0.9)
UNEQUAL_LOADS = (0.2, 0.41, 0.57, 0.89)

PERIOD_S = 0.2
"""The period of the paper's balancing, whose own is 5 s: a run lasts seconds here, and theirs lasted minutes."""

LIVE: Mapping[str, Technique] = TECHNIQUES | {
    "latency_balanced": Technique(grouping=latency_balanced(period_s=PERIOD_S))
}


@dataclass(frozen=True)
class Experiment:
    """A stream for each load, and what its latencies are divided by."""

    make: Callable[[Draw], Workload]
    draw: Draw
    work_ns: int  # of a tuple in an operator
    units: int  # that this is
    seconds: float  # that a stream lasts
    stretch: float = 1.0
    warm: float = 0.1  # from which share of the roots on latencies count
    one_operator: bool = False

    def workload(self, load: float, repeat: int, length: float) -> Workload:
        draw = replace(self.draw, seed=repeat + 1, load=load, unit_ns=self.work_ns // self.units)
        roots = length * self.seconds * load * draw.capacity * SECOND_NS / self.work_ns
        return self.make(replace(draw, tuples=max(1, round(roots))))


# -- timeouts: they need to see latencies before they replay

WARM_TIMEOUTS = 0.3
STALLING = Draw(poisson=True, sources=SPOUTS, stalls=True)

# -- queues

QUEUEING = Draw(poisson=True, tasks=A_WORKER * WORKERS)
HICCUPPING = replace(QUEUEING, stalls=True, stall_share=HICCUPS.share, stall_factor=HICCUPS.factor)
DOUBLE = 2

# -- balancing

WARM_BALANCERS = 0.5
UNEQUAL = Draw(poisson=True, sources=SPOUTS, slowness=(1.0, 1.0, 1.0, 1.0, 2.0))
TWO_SLOW = replace(UNEQUAL, slowness=(1.0, 1.0, 1.0, 2.0, 2.0))
CROWDED = replace(UNEQUAL, tasks=3, slowness=(1.5, 1.5, 1.0))

EXPERIMENTS: Mapping[str, Experiment] = {
    "exclamation": Experiment(exclamation, STALLING, 2 * MS, UNITS, 6.0, stretch=6.0, warm=WARM_TIMEOUTS),
    "bolt": Experiment(exponential, QUEUEING, DOUBLE * SERVICE_NS, MEAN_UNITS, 14.0, stretch=DOUBLE, one_operator=True),
    "sleeping_bolt": Experiment(
        micro, HICCUPPING, DOUBLE * SERVICE_NS, PLAIN_UNITS, 14.0, stretch=DOUBLE, warm=WARM_TIMEOUTS, one_operator=True
    ),
    "scenario_a": Experiment(exclamation, CROWDED, 4 * MS, UNITS, 8.0, warm=WARM_BALANCERS),
    "scenario_b": Experiment(exclamation, TWO_SLOW, 4 * MS, UNITS, 8.0, warm=WARM_BALANCERS),
    "scenario_c": Experiment(exclamation, UNEQUAL, 4 * MS, UNITS, 8.0, warm=WARM_BALANCERS),
    **{
        f"{name}_{setting}": Experiment(make, draw, work_ns, UNITS, seconds, stretch, warm)
        for (name, make), (setting, draw, work_ns, seconds, stretch, warm) in product(
            (("page_load", page_load), ("processing", processing)),
            (
                ("timeouts", STALLING, 5 * MS // 2, 4.0, 3.0, WARM_TIMEOUTS),
                ("queues", replace(QUEUEING, sources=SPOUTS), 16 * MS, 4.0, 16 * 0.83, 0.1),
                ("unequal", UNEQUAL, 8 * MS, 6.0, 1.0, WARM_BALANCERS),
            ),
        )
    },
}


def measure(trial: Trial, repeat: int, length: float) -> Figures:
    experiment, technique = EXPERIMENTS[trial.experiment], LIVE[trial.technique]
    workload = experiment.workload(trial.at, repeat, length)
    tail = Tail(technique.replay, "worker" if technique.scope is Scope.WORKER else None)
    outcome = run_workload(workload, technique.grouping, workers=WORKERS, tail=tail)
    figures = measures(workload, outcome, experiment.warm, experiment.stretch)
    if experiment.one_operator and technique.replay is None:
        figures["wait_ms"] = _mean_ms(delays_ns(outcome), experiment.warm, experiment.stretch)
    return figures


def measures(workload: Workload, outcome: Outcome, warm: float, stretch: float) -> Figures:
    """``work_s`` leaves stalls out: one more or less of them is more than a replay costs."""
    latencies_ns = outcome.latencies_ns
    ordered = sorted(latencies_ns[int(warm * len(latencies_ns)) :])
    shares = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "p999_ms": 0.999}
    work_ns = sum(workload.works_ns[execution.root] for execution in outcome.executions)
    return {
        "mean_ms": _mean_ms(latencies_ns, warm, stretch),
        **{name: percentile(ordered, share) / MS / stretch for name, share in shares.items()},
        "work_s": work_ns / SECOND_NS / stretch,
    }


def _mean_ms(times_ns: Sequence[int], warm: float, stretch: float) -> float:
    counted = times_ns[int(warm * len(times_ns)) :]
    return sum(counted) / len(counted) / MS / stretch


def _trials(experiment: str, loads: Iterable[float], *techniques: str) -> list[Trial]:
    return [Trial(experiment, load, technique) for load, technique in product(loads, ("none", *techniques))]


def _each(loads: Mapping[str, float], *techniques: str) -> list[Trial]:
    return [trial for experiment, load in loads.items() for trial in _trials(experiment, [load], *techniques)]


def _claims(of: Callable[[Sequence[Row]], Sequence[Claim]]) -> Callable[[Sequence[Row]], list[Claim]]:
    """Those of a simulated figure, with keys that tell them apart."""
    return lambda rows: [replace(claim, key=f"testbed_{claim.key}") for claim in of(rows)]


def _charts(name: str) -> Callable[[Sequence[Row]], dict[str, Chart]]:
    def charts(rows: Sequence[Row]) -> dict[str, Chart]:
        drawn = DU.figure(name).charts(rows)
        return {
            part: replace(chart, title=f"{chart.title}, live", notes=["points: medians of repeats", *chart.notes])
            for part, chart in drawn.items()
        }

    return charts


def _figure(name: str, title: str, trials: Sequence[Trial], scaled: Sequence[str], length: float = 1.0) -> LiveFigure:
    return LiveFigure(name, title, trials, _claims(DU.figure(name).claims), _charts(name), scaled, length=length)


ON_TWO = "Scaled to two cores: 2 workers instead of 5 machines; work is sleep, which costs no processor time."
STALLS = "One execution in a hundred is made to take fifty times as long: the paper does not say what made tuples late."
QUEUES = (
    ON_TWO,
    "8 tasks, 4 a worker, instead of 20; everything takes twice as long, and ms are divided by 2.",
    "Constant durations: one in a thousand takes twenty times as long.",
)
BALANCING = f"Balanced every {PERIOD_S} s instead of 5 s; latencies of the second half of a stream."

TESTBED = LiveStudy(
    study="du",
    default="none",
    measure=measure,
    seconds=lambda trial: EXPERIMENTS[trial.experiment].seconds,
    figures=(
        _figure(
            "table2",
            "timeouts and replication on the Exclamation topology, live",
            _trials("exclamation", TABLE_2_LOADS, *TIMEOUTS, *REPLICATIONS),
            (ON_TWO, STALLS, "Operators take 2 ms, six times what gives the paper's latencies; ms are divided by 6."),
        ),
        _figure(
            "table3",
            "balancing among unequal tasks, live",
            _each(TABLE_3_LOADS, *BALANCERS),
            (
                ON_TWO,
                "Slow machines are tasks that sleep longer: 1.5 times (a), twice (b, c). Operators take 4 ms.",
                "In (a) one task of three is fast in every bolt; theirs had one fast machine.",
                BALANCING,
            ),
        ),
        LiveFigure(
            "shared_queue",
            "one queue for four tasks, Sec. 5.1.2, live",
            [*_trials("bolt", [SHARED_LOAD], "shared_queue"), *_trials("sleeping_bolt", [SHARED_LOAD], "shared_queue")],
            _claims(shared_queue_claims),
            lambda rows: {},
            (*QUEUES, "The delay is all but the execution: waiting, and the way."),
        ),
        _figure(
            "4",
            "timeouts and shared queues by utilisation; 8 executors, 4 a worker, live",
            _trials("sleeping_bolt", QUEUE_LOADS, "shared_queue", *TIMEOUTS),
            QUEUES,
            length=0.3,
        ),
        _figure(
            "5",
            "balancing and timeouts by load, one task of five at half speed, live",
            _trials("scenario_c", UNEQUAL_LOADS, *BALANCERS, *TIMEOUTS),
            (
                ON_TWO,
                "The slow machine is a task in every bolt that sleeps twice as long. Operators take 4 ms.",
                BALANCING,
            ),
            length=0.45,
        ),
        _figure(
            "table5",
            "Yahoo's two topologies, live",
            [
                *_each(TABLE_5_LOADS["timeouts"], *TIMEOUTS),
                *_each(TABLE_5_LOADS["queues"], "shared_queue"),
                *_each(TABLE_5_LOADS["unequal"], *BALANCERS),
            ],
            (
                ON_TWO,
                STALLS,
                "Timeouts: operators take 2.5 ms, ms are divided by 3.",
                "Queues: operators take 16 ms, ms are divided by 13; 8 tasks, 4 in each worker.",
                "Balancing: operators take 8 ms, one task of five twice as long.",
                BALANCING,
            ),
        ),
    ),
    modules=("tailrace_research.reproduce.du.testbed", "tailrace_research.reproduce.du.models"),
)
