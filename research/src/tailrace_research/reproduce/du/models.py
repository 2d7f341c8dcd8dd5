"""Du's settings as models: what each experiment runs, at a load or in a scenario.

The paper names topologies, task counts and rates, not how long its operators took nor what made tuples late. Where it
is silent the models say: durations scatter exponentially, and where timeouts are studied one execution in a hundred
takes fifty times as long. Loads are shares of what the tasks of the busiest operator can do; the balancing experiments
run slower than theirs, because a simulated second costs as much as its tuples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tailrace.clock import MILLISECOND_NS as MS
from tailrace.clock import SECOND_NS
from tailrace.policy.groupings.api import Grouping
from tailrace.policy.groupings.latency_balanced import latency_balanced
from tailrace.policy.groupings.shuffle import shuffle
from tailrace.policy.hedging.adaptive import adaptive_timeout
from tailrace.policy.hedging.api import HedgeRule
from tailrace.policy.hedging.du import du_timeout
from tailrace.policy.hedging.replicate import replicate
from tailrace.sim.load.models.arrivals import Poisson
from tailrace.sim.load.models.model import Model, Node, Queue, Scope, Stage, Stalls
from tailrace.sim.load.models.service import Constant, Exponential

STALLS = Stalls(share=0.01, factor=50)
HICCUPS = Stalls(share=0.001, factor=20)
"""Stalls of the shared queue's bolts. The paper's p99.9 of 83 ms beside a p99 of 16 ms says that there were some."""

FULL, HALF = Node(), Node(0.5)
LARGE_AND_SMALL = (FULL, FULL, FULL, FULL, HALF)
"""Four machines with two processors and one with one."""


@dataclass(frozen=True)
class Technique:
    """A change against the default: shuffle grouping, a queue for each task, no hedging."""

    grouping: Grouping = shuffle()  # noqa: RUF009, a frozen value
    replay: HedgeRule | None = None
    scope: Scope = Scope.OWN


TECHNIQUES: dict[str, Technique] = {
    "none": Technique(),
    "adaptive_timeout": Technique(replay=adaptive_timeout()),
    "du_timeout": Technique(replay=du_timeout()),
    "replicate_20": Technique(replay=replicate(0.2)),
    "replicate_50": Technique(replay=replicate(0.5)),
    "replicate_100": Technique(replay=replicate(1.0)),
    "shared_queue": Technique(scope=Scope.WORKER),
    "latency_balanced": Technique(grouping=latency_balanced()),
    "latency_balanced_fast": Technique(grouping=latency_balanced(fast=True)),
}


@dataclass(frozen=True)
class Experiment:
    """A model for each point, and from which share of the roots on latencies count."""

    model: Callable[[float], Model]
    warm: float = 0.1


# -- queues (Fig. 3 and Sec. 5.1.2)

SERVICE_NS = SECOND_NS // 450
SERVERS = (1, 2, 4, 8)


def _servers(point: float) -> Model:
    """Servers before the point, utilisation behind it: 4.8 is four servers at 0.8."""
    servers, load = int(point), round(point % 1, 6)
    return Model(
        Poisson(load=load), Exponential(SERVICE_NS), tuples=60_000, tasks=servers, workers=1, queue=Queue(Scope.WORKER)
    )


def _bolt(load: float) -> Model:
    """One spout, one bolt with 20 executors, four in each worker, tuples dealt in turn."""
    return Model(Poisson(load=load), Exponential(SERVICE_NS), tuples=50_000, tasks=20, workers=5, senders=5)


def _sleeping_bolt(load: float) -> Model:
    return replace(_bolt(load), service=Constant(SERVICE_NS), stalls=HICCUPS)


# -- timeouts


def _roots(load: float) -> int:
    """More where queues empty rarely, and one long queue is the tail of a whole run."""
    return 40_000 if load < 0.85 else 120_000


def _stalls(load: float) -> Model:
    return Model(Poisson(load=load), Constant(MS), tuples=_roots(load), stalls=STALLS)


def _content(load: float) -> Model:
    """Nothing stalls: tuples are slow because of what is in them, and would be a second time."""
    return Model(Poisson(load=load), Exponential(MS), tuples=_roots(load))


def _exclamation(load: float) -> Model:
    """Operators with five tasks each: a spout and three bolts. Work that gives the default about their p99."""
    bolts = tuple(Stage(name) for name in ("exclaim", "again", "out"))
    return Model(Poisson(load=load), Constant(MS // 3), tuples=40_000, senders=5, stages=bolts, stalls=STALLS)


# -- balancing

SECONDS = 200
"""Length of a run. Latencies count from 120 s on, when the paper's rule has had time for 24 moves."""
WARM = 0.6


def _lasting(load: float, work_ns: int, model: Model) -> Model:
    """``model`` with executions of ``work_ns`` in the mean, and as many roots as come in ``SECONDS``."""
    capacity = min(model.capacity(stage) for stage in model.operators)
    roots = int(SECONDS * load * capacity * SECOND_NS / work_ns)
    return replace(model, arrivals=Poisson(load=load), service=Exponential(work_ns), tuples=roots)


def _single(load: float, nodes: tuple[Node, ...]) -> Model:
    return _lasting(load, 5 * MS, Model(Poisson(load=load), Exponential(MS), nodes=nodes))


def _slow_task(load: float) -> Model:
    return _single(load, (Node(0.25), FULL, FULL, FULL, FULL))


def _equal_tasks(load: float) -> Model:
    return _single(load, (FULL,))


def _chain(load: float, nodes: tuple[Node, ...]) -> Model:
    bolts = tuple(Stage(name) for name in ("first", "second", "third"))
    return _lasting(load, 20 * MS, Model(Poisson(load=load), Exponential(MS), senders=5, stages=bolts, nodes=nodes))


def _scenario_a(load: float) -> Model:
    """Bolts with three tasks each: four machines with two processors have three tasks, the fifth has two."""
    crowded = Node(2 / 3)
    bolts = tuple(
        Stage(name, tasks=3, workers=workers)
        for name, workers in (("first", (0, 1, 2)), ("second", (3, 4, 0)), ("third", (1, 2, 3)))
    )
    nodes = (crowded, crowded, crowded, crowded, FULL)
    model = Model(Poisson(load=load), Exponential(MS), senders=5, workers=5, stages=bolts, nodes=nodes)
    return _lasting(load, 20 * MS, model)


def _scenario_b(load: float) -> Model:
    """A compressor takes one of the two processors of two machines."""
    return _chain(load, (FULL, FULL, FULL, HALF, HALF))


def _scenario_c(load: float) -> Model:
    return _chain(load, LARGE_AND_SMALL)


# -- Yahoo's topologies (Table 5)

PAGE_LOAD = tuple(Stage(name) for name in ("transform", "filter", "join", "filter2", "aggregate", "sink"))
PROCESSING = (
    Stage("transform"),
    Stage("filter", inputs=("transform",)),
    Stage("join1", inputs=("filter",)),
    Stage("sink1", inputs=("join1",)),
    Stage("join2", inputs=("transform",)),
    Stage("normalise", inputs=("join2",)),
    Stage("sink2", inputs=("normalise",)),
)


def _with_timeouts(stages: tuple[Stage, ...]) -> Callable[[float], Model]:
    """Each spout task emits 240 tuples/s; at the load given that makes operators of this speed."""

    def model(load: float) -> Model:
        work_ns = round(load * 5 / 1_200 * SECOND_NS / (1 + STALLS.share * (STALLS.factor - 1)))
        return Model(
            Poisson(rate_per_s=1_200), Constant(work_ns), tuples=20_000, senders=5, stages=stages, stalls=STALLS
        )

    return model


def _with_four_a_worker(stages: tuple[Stage, ...]) -> Callable[[float], Model]:
    """All four tasks of a bolt in one worker; sinks have five tasks on five workers. A task does 830 tuples/s."""

    def model(load: float) -> Model:
        placed = tuple(
            stage if stage.name.startswith("sink") else replace(stage, tasks=4, workers=(position % 5,))
            for position, stage in enumerate(stages)
        )
        return Model(
            Poisson(rate_per_s=load * 4 * 830),
            Exponential(SECOND_NS // 830),
            tuples=20_000,
            senders=5,
            workers=5,
            stages=placed,
            nodes=(FULL,) * 5,
        )

    return model


def _on_unequal_nodes(stages: tuple[Stage, ...]) -> Callable[[float], Model]:
    def model(load: float) -> Model:
        model = Model(Poisson(load=load), Exponential(MS), senders=5, stages=stages, nodes=LARGE_AND_SMALL)
        return _lasting(load, 40 * MS, model)

    return model


EXPERIMENTS: dict[str, Experiment] = {
    "servers": Experiment(_servers),
    "bolt": Experiment(_bolt),
    "sleeping_bolt": Experiment(_sleeping_bolt),
    "stalls": Experiment(_stalls),
    "content": Experiment(_content),
    "exclamation": Experiment(_exclamation),
    "slow_task": Experiment(_slow_task, WARM),
    "equal_tasks": Experiment(_equal_tasks, WARM),
    "scenario_a": Experiment(_scenario_a, WARM),
    "scenario_b": Experiment(_scenario_b, WARM),
    "scenario_c": Experiment(_scenario_c, WARM),
    "page_load_timeouts": Experiment(_with_timeouts(PAGE_LOAD)),
    "processing_timeouts": Experiment(_with_timeouts(PROCESSING)),
    "page_load_queues": Experiment(_with_four_a_worker(PAGE_LOAD)),
    "processing_queues": Experiment(_with_four_a_worker(PROCESSING)),
    "page_load_unequal": Experiment(_on_unequal_nodes(PAGE_LOAD), WARM),
    "processing_unequal": Experiment(_on_unequal_nodes(PROCESSING), WARM),
}
