"""A stage of a topology on a cluster, as a value: senders, the tasks they feed, and where these live."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from tailrace.errors import OptionError
from tailrace.sim.arrivals import Arrivals
from tailrace.sim.service import Service

APART = -1
"""The node of a sender that shares a node with no task."""


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
class Model:
    """What is simulated. Tasks go round robin over workers, and workers over nodes."""

    arrivals: Arrivals
    service: Service
    tuples: int = 100_000
    tasks: int = 5
    senders: int = 1
    workers: int = 0  # 0: one for each task
    nodes: tuple[Node, ...] = (Node(),)
    sender_nodes: tuple[int, ...] = ()  # empty: all of them apart from the tasks
    link: Link = field(default_factory=Link)  # between nodes
    local: Link = field(default_factory=Link)  # within one
    tuple_bytes: int = 100
    queue: Queue = field(default_factory=Queue)

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

    def worker_of(self, task: int) -> int:
        return task % (self.workers or self.tasks)

    def node_of(self, task: int) -> int:
        return self.worker_of(task) % len(self.nodes)

    def sender_node(self, sender: int) -> int:
        return self.sender_nodes[sender] if self.sender_nodes else APART

    def capacity(self) -> float:
        """Seconds of work that all tasks do in a second, slowdowns aside."""
        return sum(self.nodes[self.node_of(task)].speed for task in range(self.tasks))
