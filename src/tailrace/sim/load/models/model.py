"""A topology on a cluster, as a value: sources, the stages that tuples go through, and where their tasks live."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property

from tailrace.errors import OptionError, did_you_mean
from tailrace.policy.groupings.api import Grouping
from tailrace.sim.load.models.arrivals import Arrivals
from tailrace.sim.load.models.service import Service

APART = -1
"""The node of a sender that shares a node with no task."""

SOURCE = "source"
"""The name under which stages receive from the model's senders."""


class Scope(Enum):
    """Which tasks draw from one queue."""

    OWN = "own"
    WORKER = "worker"
    NODE = "node"


class Order(Enum):
    """Which tuple of a queue is next."""

    FIFO = "fifo"
    SHORTEST = "shortest"  # by expected duration, learnt by content, less ``aging`` times the wait


@dataclass(frozen=True)
class Queue:
    """The discipline in front of tasks."""

    scope: Scope = Scope.OWN
    order: Order = Order.FIFO
    aging: float = 0.1

    def __post_init__(self) -> None:
        if self.aging < 0:
            raise OptionError(f"a queue that favours the young lets the old starve: aging={self.aging}")


@dataclass(frozen=True)
class Slowdown:
    """From one moment to another everything on a node takes ``factor`` times as long."""

    begin_ns: int
    end_ns: int
    factor: float

    def __post_init__(self) -> None:
        if not 0 <= self.begin_ns < self.end_ns or self.factor <= 0:
            raise OptionError(f"not a slowdown: begin_ns={self.begin_ns} end_ns={self.end_ns} factor={self.factor}")


@dataclass(frozen=True)
class Node:
    """A machine. Overlapping slowdowns multiply."""

    speed: float = 1.0
    slowdowns: tuple[Slowdown, ...] = ()

    def __post_init__(self) -> None:
        if self.speed <= 0:
            raise OptionError(f"a node that gets nowhere: speed={self.speed}")


@dataclass(frozen=True)
class Link:
    """From node to node. Tuples of one link follow each other if it has a bandwidth."""

    latency_ns: int = 0
    bytes_per_s: float | None = None

    def __post_init__(self) -> None:
        if self.latency_ns < 0 or (self.bytes_per_s is not None and self.bytes_per_s <= 0):
            raise OptionError(f"not a link: latency_ns={self.latency_ns} bytes_per_s={self.bytes_per_s}")


@dataclass(frozen=True)
class Stalls:
    """Executions that take ``factor`` times as long, by chance: a pause, a slow disk, a neighbour.

    Drawn for each execution, so a second incarnation of a tuple that stalled may well go through.
    """

    share: float  # of all executions
    factor: float

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1 or self.factor < 1:
            raise OptionError(
                f"stalls hit a share of executions and prolong them: share={self.share} factor={self.factor}"
            )


@dataclass(frozen=True)
class Stage:
    """An operator: the tasks that do one step of the work. What it leaves open is as the model says."""

    name: str
    service: Service | None = None
    tasks: int = 0
    inputs: tuple[str, ...] = ()  # the stages it receives from; empty: the one before it, or the source
    grouping: str | Grouping | None = None  # None: the one under study
    fan_out: float | tuple[int, int] = 1.0  # tuples that one becomes, on each way out: a mean, or evenly between two
    queue: Queue | None = None
    stalls: Stalls | None = None
    workers: tuple[int, ...] = ()  # that its tasks go round robin over; empty: all

    def __post_init__(self) -> None:
        if not self.name or self.name == SOURCE:
            raise OptionError(f"a stage needs a name of its own: name={self.name!r}")
        if isinstance(self.inputs, str):
            raise OptionError(
                f"inputs are a list: stage={self.name} inputs={self.inputs}: did you mean [{self.inputs!r}]?"
            )
        low, high = self.fan_out if isinstance(self.fan_out, tuple) else (self.fan_out, self.fan_out)
        if not 0 <= low <= high:
            raise OptionError(f"a tuple becomes none or more: stage={self.name} fan_out={self.fan_out}")


@dataclass(frozen=True)
class Model:
    """What is simulated. Tasks of every stage go round robin over workers, and workers over nodes.

    ``service``, ``tasks``, ``queue`` and ``stalls`` hold for every stage that says nothing else. Without any stages,
    there is one.
    """

    arrivals: Arrivals
    service: Service | None = None
    tuples: int = 100_000  # that the source emits: roots
    tasks: int = 5
    senders: int = 1
    workers: int = 0  # 0: one for each task of the largest stage
    nodes: tuple[Node, ...] = (Node(),)
    sender_nodes: tuple[int, ...] = ()  # empty: all of them apart from the tasks
    link: Link = field(default_factory=Link)  # between nodes
    local: Link = field(default_factory=Link)  # within one
    tuple_bytes: int = 100
    queue: Queue = field(default_factory=Queue)
    stages: tuple[Stage, ...] = ()
    stalls: Stalls | None = None

    def __post_init__(self) -> None:
        for name in ("tuples", "tasks", "senders", "tuple_bytes"):
            if getattr(self, name) < 1:
                raise OptionError(f"a model needs at least one: {name}={getattr(self, name)}")
        if not self.nodes or self.workers < 0:
            raise OptionError(f"a model needs nodes and workers: nodes={len(self.nodes)} workers={self.workers}")
        if self.sender_nodes and len(self.sender_nodes) != self.senders:
            raise OptionError(f"a node for each sender, or none: senders={self.senders} given={len(self.sender_nodes)}")
        if any(not APART <= node < len(self.nodes) for node in self.sender_nodes):
            raise OptionError(f"no such node: sender_nodes={self.sender_nodes} nodes={len(self.nodes)}")
        _check_stages(self.operators, self.worker_count)

    @cached_property
    def operators(self) -> tuple[Stage, ...]:
        """The stages with nothing left open but the grouping."""
        stages = self.stages or (Stage("stage"),)
        before = [SOURCE, *(stage.name for stage in stages)]
        return tuple(
            replace(
                stage,
                service=stage.service or self.service,
                tasks=stage.tasks or self.tasks,
                inputs=stage.inputs or (before[position],),
                queue=stage.queue or self.queue,
                stalls=stage.stalls or self.stalls,
            )
            for position, stage in enumerate(stages)
        )

    @cached_property
    def worker_count(self) -> int:
        return self.workers or max(stage.tasks for stage in self.operators)

    def worker_of(self, stage: Stage, task: int) -> int:
        return stage.workers[task % len(stage.workers)] if stage.workers else task % self.worker_count

    def node_of(self, stage: Stage, task: int) -> int:
        return self.worker_of(stage, task) % len(self.nodes)

    def sender_node(self, sender: int) -> int:
        return self.sender_nodes[sender] if self.sender_nodes else APART

    def capacity(self, stage: Stage) -> float:
        """Seconds of work that all tasks of a stage do in a second, slowdowns aside."""
        return sum(self.nodes[self.node_of(stage, task)].speed for task in range(stage.tasks))


def _check_stages(stages: tuple[Stage, ...], workers: int) -> None:
    known = [SOURCE]
    for stage in stages:
        if stage.name in known:
            raise OptionError(f"two stages of one name: stage={stage.name}")
        for name in stage.inputs:
            if name not in known:
                raise OptionError(
                    f"a stage receives from stages before it: stage={stage.name} inputs={', '.join(stage.inputs)}: "
                    f"{did_you_mean(name, known)}"
                )
        if len(set(stage.inputs)) < len(stage.inputs):
            raise OptionError(f"an input twice: stage={stage.name} inputs={', '.join(stage.inputs)}")
        if stage.tasks < 1:
            raise OptionError(f"a stage needs at least one task: stage={stage.name} tasks={stage.tasks}")
        if any(not 0 <= worker < workers for worker in stage.workers):
            raise OptionError(f"no such worker: stage={stage.name} workers={stage.workers} of={workers}")
        known.append(stage.name)
