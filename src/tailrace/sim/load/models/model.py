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
    """Which tasks of a stage draw from one queue: each has its own, or those of a worker or of a node share one.

    Example:
        >>> from tailrace.sim import Queue, Scope
        >>> Queue(Scope.WORKER).scope.value
        'worker'
    """

    OWN = "own"
    WORKER = "worker"
    NODE = "node"


class Order(Enum):
    """Which tuple of a queue is next: the oldest, or the one with the shortest expected duration.

    Expected durations are learnt by content. ``aging`` times its wait is taken off each, so that none waits for ever.

    Example:
        >>> from tailrace.sim import Order, Queue
        >>> Queue(order=Order.SHORTEST, aging=0.2).order.value
        'shortest'
    """

    FIFO = "fifo"
    SHORTEST = "shortest"  # by expected duration, learnt by content, less ``aging`` times the wait


@dataclass(frozen=True)
class Queue:
    """The queue in front of tasks.

    Args:
        scope: which tasks draw from one queue.
        order: which tuple is next.
        aging: how much of its wait is taken off a tuple's expected duration, for ``Order.SHORTEST``.

    Example:
        >>> from tailrace.sim import Exponential, Model, Poisson, Queue, Scope, simulate
        >>> model = Model(Poisson(load=0.8), Exponential(1_000_000), tuples=1000, workers=1, queue=Queue(Scope.WORKER))
        >>> simulate(model).executed[0] > 0
        True
    """

    scope: Scope = Scope.OWN
    order: Order = Order.FIFO
    aging: float = 0.1

    def __post_init__(self) -> None:
        if self.aging < 0:
            raise OptionError(f"a queue that favours the young lets the old starve: aging={self.aging}")


@dataclass(frozen=True)
class Slowdown:
    """Everything on a node takes longer between two moments.

    Args:
        begin_ns: when it begins.
        end_ns: when it ends.
        factor: how many times as long everything takes.

    Example:
        >>> from tailrace.sim import Node, Slowdown
        >>> Node(slowdowns=(Slowdown(0, 1_000_000_000, factor=2.0),)).speed
        1.0
    """

    begin_ns: int
    end_ns: int
    factor: float

    def __post_init__(self) -> None:
        if not 0 <= self.begin_ns < self.end_ns or self.factor <= 0:
            raise OptionError(f"not a slowdown: begin_ns={self.begin_ns} end_ns={self.end_ns} factor={self.factor}")


@dataclass(frozen=True)
class Node:
    """A machine in a simulation.

    Args:
        speed: how fast it is; tasks of speed 2 take half as long.
        slowdowns: times in which it is slower. Those that overlap multiply.

    Example:
        >>> from tailrace.sim import Node
        >>> Node(speed=0.8)
        Node(speed=0.8, slowdowns=())
    """

    speed: float = 1.0
    slowdowns: tuple[Slowdown, ...] = ()

    def __post_init__(self) -> None:
        if self.speed <= 0:
            raise OptionError(f"a node that gets nowhere: speed={self.speed}")


@dataclass(frozen=True)
class Uplink:
    """The network out of a node, or within one, as a latency and a bandwidth.

    Args:
        latency_ns: how long a tuple is under way.
        bytes_per_s: its bandwidth, which tuples take in turn. ``None``: no limit.

    Example:
        >>> from tailrace.sim import Uplink
        >>> Uplink(latency_ns=200_000, bytes_per_s=125e6).latency_ns
        200000
    """

    latency_ns: int = 0
    bytes_per_s: float | None = None

    def __post_init__(self) -> None:
        if self.latency_ns < 0 or (self.bytes_per_s is not None and self.bytes_per_s <= 0):
            raise OptionError(f"not an uplink: latency_ns={self.latency_ns} bytes_per_s={self.bytes_per_s}")


Link = Uplink
"""The name that ``tailrace.sim`` has had for it. A link is a connection everywhere else."""


@dataclass(frozen=True)
class Stalls:
    """Some executions take longer by chance: a pause, a slow disk, a neighbour.

    They are drawn for each execution, so a hedge of a tuple that stalled may well go through.

    Args:
        share: the share of all executions that stall.
        factor: how many times as long these take.

    Example:
        >>> from tailrace.sim import Exponential, Model, Poisson, Stalls, simulate
        >>> model = Model(Poisson(load=0.5), Exponential(1_000_000), tuples=1000, stalls=Stalls(share=0.01, factor=50))
        >>> simulate(model, hedge=tr.fixed_timeout(20)).hedges > 0
        True
    """

    share: float
    factor: float

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1 or self.factor < 1:
            raise OptionError(
                f"stalls hit a share of executions and prolong them: share={self.share} factor={self.factor}"
            )


@dataclass(frozen=True)
class Stage:
    """An operator in a simulation. What it leaves open is as the model says.

    Args:
        name: its name, unique in the model.
        service: how long tuples take.
        tasks: how many tasks it has.
        inputs: the stages it receives from. Empty: the stage before it, or the source.
        grouping: which task each tuple goes to, by name or as an object. ``None``: the policy under study.
        fan_out: how many tuples one becomes, on each way out: a mean, or evenly between two numbers.
        queue: the queue in front of its tasks.
        stalls: executions that take longer by chance.
        workers: the workers that its tasks go round robin over. Empty: all.

    Example:
        >>> from tailrace.sim import Constant, Exponential, Model, Poisson, Stage, simulate
        >>> stages = (Stage("split", Constant(100_000), fan_out=3.0), Stage("count", Exponential(500_000)))
        >>> report = simulate(Model(Poisson(load=0.5), tuples=100, stages=stages))
        >>> [(stage.name, sum(stage.executed)) for stage in report.stages]
        [('split', 100), ('count', 300)]
    """

    name: str
    service: Service | None = None
    tasks: int = 0
    inputs: tuple[str, ...] = ()
    grouping: str | Grouping | None = None
    fan_out: float | tuple[int, int] = 1.0
    queue: Queue | None = None
    stalls: Stalls | None = None
    workers: tuple[int, ...] = ()

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
    """A topology, its load and its machines, to be simulated.

    Tasks of every stage go round robin over workers, and workers over nodes. ``service``, ``tasks``, ``queue`` and
    ``stalls`` hold for every stage that says nothing else. Without stages, there is one.

    Args:
        arrivals: when roots are due.
        service: how long tuples take.
        tuples: how many roots the source emits.
        tasks: how many tasks a stage has.
        senders: how many tasks the source has.
        workers: how many workers there are. 0: one for each task of the largest stage.
        nodes: the machines.
        sender_nodes: the number of the node of each sender. Empty: senders are apart from all tasks.
        link: the network between nodes.
        local: the network within a node.
        tuple_bytes: how large a tuple is.
        queue: the queue in front of tasks.
        stages: the operators behind the source.
        stalls: executions that take longer by chance.

    Example:
        >>> from tailrace.sim import Exponential, Model, Poisson, simulate
        >>> model = Model(Poisson(load=0.8), Exponential(1_000_000), tuples=2000, tasks=5)
        >>> simulate(model, "pull").mean_ns < simulate(model, "shuffle").mean_ns
        True
    """

    arrivals: Arrivals
    service: Service | None = None
    tuples: int = 100_000
    tasks: int = 5
    senders: int = 1
    workers: int = 0
    nodes: tuple[Node, ...] = (Node(),)
    sender_nodes: tuple[int, ...] = ()
    link: Uplink = field(default_factory=Uplink)
    local: Uplink = field(default_factory=Uplink)
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
