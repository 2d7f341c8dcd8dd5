"""A workload is a value: tuples, what each costs, when each is due, and the topology that they go through.

Law: everything in it follows from its ``Draw``. Runs that are compared draw the same, so that they differ by nothing
but what is compared; a simulation of the same workload gets the same tuples, costs and times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Protocol

from tailrace.clock import SECOND_NS
from tailrace.errors import OptionError
from tailrace.policy import Grouping, local, shuffle
from tailrace.runtime.connectors import to_call
from tailrace.sim import Model, Node, Paced, Poisson, Recorded, Trace, Uplink
from tailrace.topology import Stream, Topology
from tailrace_research.bench.workloads.spending import Means, Sleeping, Stalls
from tailrace_research.bench.workloads.timetable import Item, Timetable
from tailrace_research.bench.workloads.working import Ending, Speeds, Work, Working

UNIT_NS = 250_000
"""A unit of work. The papers' unit is a millisecond; a quarter of it makes a run four times as short."""


@dataclass(frozen=True)
class Draw:
    """The parameters from which a workload is drawn."""

    seed: int = 1
    tuples: int = 10_000
    load: float = 0.95  # share of what the tasks can sustain; of the paper's rate where tuples cost nothing
    unit_ns: int = UNIT_NS
    tasks: int = 5  # of each operator
    sources: int = 1  # tasks of the source, which take turns
    poisson: bool = False  # otherwise evenly spaced
    slowness: tuple[float, ...] = ()  # of each task; empty: all 1
    later: tuple[float, ...] = ()  # the same from the middle of the stream on; empty: as before
    stalls: bool = False  # some executions take many times as long
    stall_share: float = 0.01
    stall_factor: float = 50.0

    def __post_init__(self) -> None:
        for name in ("tuples", "load", "unit_ns", "tasks", "sources"):
            if getattr(self, name) <= 0:
                raise OptionError(f"a workload needs more than nothing: {name}={getattr(self, name)}")
        for name in ("slowness", "later"):
            slow = getattr(self, name)
            if slow and (len(slow) != self.tasks or min(slow) <= 0):
                raise OptionError(f"a slowness above zero for each task, or none: {name}={slow} tasks={self.tasks}")

    def rng(self, what: str) -> Random:
        """The same for the same seed in every process; of its own for everything that is drawn."""
        return Random(f"{self.seed} {what}")

    @property
    def stall(self) -> Stalls | None:
        return Stalls(self.seed, self.stall_share, self.stall_factor) if self.stalls else None

    @property
    def capacity(self) -> float:
        """Seconds of work that the tasks of an operator do in a second."""
        speed = sum(1 / slow for slow in self.slowness) if self.slowness else float(self.tasks)
        return speed / (self.stall.mean_factor if self.stall else 1.0)

    def due_ns(self, rate_per_s: float) -> tuple[int, ...]:
        arrivals = Poisson(rate_per_s=rate_per_s) if self.poisson else Paced(rate_per_s=rate_per_s)
        return tuple(arrivals.times_ns(self.tuples, rate_per_s, self.rng("arrivals")))

    def due_by_load_ns(self, works_ns: Sequence[int]) -> tuple[int, ...]:
        """Due times at a rate that keeps tasks busy for the share ``load`` of the time, given what tuples cost."""
        return self.due_ns(self.load * self.capacity * SECOND_NS * len(works_ns) / sum(works_ns))


@dataclass(frozen=True)
class Setup:
    """How a workload is run, which changes nothing about what is run."""

    folder: str  # for notes
    grouping: Grouping = field(default_factory=shuffle)  # of the edges under study
    means: Means = field(default_factory=Sleeping)


class Build(Protocol):
    """From the stream of the source on, declare the rest of a topology."""

    def __call__(self, stream: Stream, declare: Declare) -> None: ...


def itself(body: Any) -> Any:
    return body


def whole(body: Any) -> int:
    """The part of a root that all of its results are."""
    return 0


def _key(key_of: Callable[[Any], int], item: Item) -> int:
    return key_of(item[2])


@dataclass(frozen=True)
class Workload:
    """Tuples in the order in which they are due. The edge under study leads from the source to an operator that costs.

    ``keys`` are what costs depend on, as groupings can see it; ``key_of`` reads it off a body.
    """

    name: str
    draw: Draw
    bodies: tuple[Any, ...] = field(repr=False)
    keys: tuple[int, ...] = field(repr=False)
    works_ns: tuple[int, ...] = field(repr=False)  # at a task of slowness 1, stalls aside; empty: they cost nothing
    due_ns: tuple[int, ...] = field(repr=False)
    build: Build = field(repr=False, compare=False)
    key_of: Callable[[Any], int] = itself

    @property
    def key(self) -> Callable[[Item], int]:
        """For groupings."""
        return partial(_key, self.key_of)

    def topology(self, setup: Setup) -> Topology:
        topology = Topology(self.name)
        stream = topology.source("source", Timetable(self.bodies, self.due_ns), tasks=self.draw.sources)
        self.build(stream, Declare(self.draw, setup))
        return topology

    def model(self, link_ns: int = 0) -> Model:
        """The source, the edge under study and the operator behind it, for the simulator."""
        if not self.works_ns:
            raise OptionError(f"tuples that cost nothing have no queue to simulate: workload={self.name}")
        draw = self.draw
        if draw.later:
            raise OptionError(f"speeds that change midway have no model: workload={self.name} later={draw.later}")
        nodes = tuple(Node(1 / slow) for slow in draw.slowness) or (Node(),)
        service, due = Trace(self.keys, self.works_ns), Recorded(self.due_ns)
        return Model(due, service, draw.tuples, draw.tasks, draw.sources, nodes=nodes, link=Uplink(link_ns))


@dataclass(frozen=True)
class Declare:
    """Declares operators and sinks as a draw and a setup want them."""

    draw: Draw
    setup: Setup

    def work(self, cost_ns: Callable[[Any], int], result: Callable[[Any], Any]) -> Work:
        draw, setup = self.draw, self.setup
        speeds = Speeds(draw.slowness, draw.later, draw.tuples // 2)
        return Work(cost_ns, result, setup.folder, setup.means, speeds, draw.stall)

    def map(
        self, stream: Stream, name: str, cost_ns: Callable[[Any], int], result: Callable[[Any], Any] = itself
    ) -> Stream:
        """An operator that costs, behind an edge under study."""
        body = partial(Working, self.work(cost_ns, result))
        return stream.map(name, body, tasks=self.draw.tasks, grouping=self.setup.grouping, kind=self.setup.means.kind)

    def end(self, stream: Stream, name: str = "end", part_of: Callable[[Any], int] = whole) -> None:
        stream.sink(name, to_call(partial(Ending, self.setup.folder, part_of)), grouping=local())
