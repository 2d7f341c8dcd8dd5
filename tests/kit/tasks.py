"""Tasks of the core without a worker: a small plan, and tasks that are assembled from it as in worker 0."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import xor
from random import Random
from typing import Any

from tailrace.clock import Clock
from tailrace.connector import Reader
from tailrace.core.assembly import Bodies, WorkerContext, assemble
from tailrace.core.bundles import new_bundle
from tailrace.core.plan.plan import Plan
from tailrace.core.plan.planner import make_plan
from tailrace.core.protocol.ledger import LedgerLimits
from tailrace.core.protocol.messages import Position
from tailrace.core.tasks.base import Task
from tailrace.core.tasks.source import SourceTask
from tailrace.metrics.counters import TaskCounters
from tailrace.sim.faults.topologies import SimSink, SimSource
from tailrace.testing import ManualClock
from tailrace.topology import Stream, Topology

LIMITS = LedgerLimits(9, 1_000)


def plan_of(declare: Callable[[Stream], Stream], sinks: int = 1) -> Plan:
    """A source with one task, the operators that ``declare`` adds, and a committing sink, for one worker."""
    topology = Topology("t")
    declare(topology.source("s", SimSource("s", 5), tasks=1)).sink("out", SimSink(), tasks=sinks)
    return make_plan(topology, 1)


def context_of(
    plan: Plan, clock: Clock | None = None, limits: LedgerLimits = LIMITS, seed: int = 1, **others: Any
) -> WorkerContext:
    """What all tasks of worker 0 share in its first epoch."""
    return WorkerContext(plan, 0, 1, limits, clock or ManualClock(1), Random(seed), **others)


def task_of(context: WorkerContext, number: int = 1, function: Callable[[Any], Any] | None = None) -> Task:
    """A task that transforms tuples: with this function, or with that of its operator. Nothing is durable yet."""
    body = function or context.plan.operators[context.plan.operator_of[number]].operator.body
    return assemble(number, Bodies({number: body}, {}, {}, {0: Position(0, None)}), context)


def source_of(context: WorkerContext, reader: Reader, durable: int = 0) -> SourceTask:
    """The source task of a plan with one split, of which this many records are durable."""
    task = assemble(0, Bodies({}, {}, {0: reader}, {0: Position(durable, None)}), context)
    assert isinstance(task, SourceTask)
    return task


class OneTask:
    """One task of the operator that a test declares, between a source and a committing sink."""

    def __init__(self, declare: Callable[[Stream], Stream]) -> None:
        self.clock = ManualClock(1)
        self.plan = plan_of(declare)
        self.task = task_of(context_of(self.plan, self.clock, limits=LedgerLimits(3, 1_000)))
        self.salt = self.plan.edges[1].salt

    def bundle(self, ack: int, values: list[Any], lineages: list[int]) -> None:
        self.task.receive([new_bundle(50, 0, 9, ack, lineages, values)])

    @property
    def counters(self) -> TaskCounters:
        self.task.wiring.settle()  # type: ignore[attr-defined]
        return self.task.counters[0]

    def sent(self) -> list[tuple[Any, int]]:
        found = []
        for lane in self.task.lanes:
            for *_, lineages, values, _, _ in lane.bundles:
                assert lineages is not None
                found += zip(values, lineages, strict=True)
        return found

    def owed(self, *acks: int) -> int:
        """What the ledger must hear if these bundles are done: their ids, and those of all that was sent."""
        made = [bundle[3] for lane in self.task.lanes for bundle in lane.bundles]
        return reduce(xor, (*acks, *made), 0)

    @property
    def told(self) -> int:
        return self.task.acks[0].both.get(50, 0)
