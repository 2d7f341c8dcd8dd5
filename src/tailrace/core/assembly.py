"""Assembly builds the tasks of a worker from the plan and the user's opened functions, readers and writers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from random import Random
from typing import Any, cast

from tailrace.clock import MILLISECOND_NS, Clock
from tailrace.connector import CommittingWriter, Reader, Writer
from tailrace.core.feedback.budget import FeedbackBudget
from tailrace.core.feedback.receiver import FeedbackReceiver
from tailrace.core.feedback.sender import MAX_HELD, FeedbackSender
from tailrace.core.hedging.cancelled import CancelledEmissions
from tailrace.core.plan.plan import EdgePlan, OperatorPlan, Plan
from tailrace.core.protocol.ledger import Ledger, LedgerLimits
from tailrace.core.protocol.messages import Position
from tailrace.core.protocol.sightings import Sightings
from tailrace.core.protocol.sink_log import SinkLog
from tailrace.core.queues.shared import SharedQueue
from tailrace.core.routing.router import (
    DisjointHalvesEdge,
    FeedbackLane,
    Lane,
    LaneEdge,
    OutEdge,
    RoundRobinEdge,
    Unroutable,
)
from tailrace.core.tasks.base import ObservedTask, PlainTask, Task
from tailrace.core.tasks.commit_sink import CommitSinkStage
from tailrace.core.tasks.deferred import AsyncTask, BatchTask
from tailrace.core.tasks.empty_results import EmptyResults, Say, say_nothing
from tailrace.core.tasks.observer import TaskObserver
from tailrace.core.tasks.source import SourceTask
from tailrace.core.tasks.stages import (
    CallSinkStage,
    FilterStage,
    FlatMapStage,
    FusedEdge,
    MapStage,
    OperatorStage,
    Wiring,
)
from tailrace.metrics.counters import TaskCounters
from tailrace.policy.groupings.shuffle import Shuffle
from tailrace.policy.techniques import NODE, PLAIN, Tail
from tailrace.topology import Port, Role


@dataclass(frozen=True)
class Bodies:
    """The user's opened objects that the tasks of a unit call, by task number."""

    functions: Mapping[int, Callable[[Any], Any]]  # transforms
    writers: Mapping[int, Writer]  # sinks
    readers: Mapping[int, Reader]  # sources, by split index
    positions: Mapping[int, Position]  # prefixes of all splits


@dataclass(frozen=True)
class WorkerContext:
    """Everything that all tasks of a worker share."""

    plan: Plan
    worker: int
    epoch: int
    limits: LedgerLimits
    clock: Clock
    rng: Random
    observer: TaskObserver | None = None
    held_limit: int = MAX_HELD  # tuples that may be held on one load-aware edge
    guard: Callable[[], AbstractContextManager[Any]] = nullcontext  # makes the lock of a shared queue
    queues: dict[int, SharedQueue[Task]] = field(default_factory=dict)  # the shared queues, by operator
    tail: Tail = PLAIN
    cancelled: CancelledEmissions = field(default_factory=CancelledEmissions)
    feedback_budget: FeedbackBudget = field(default_factory=FeedbackBudget)
    say: Say = say_nothing
    sightings: Sightings = field(default_factory=Sightings)


def assemble(leader: int, bodies: Bodies, context: WorkerContext) -> Task:
    """The task object for the unit that this task leads."""
    task = _assemble(leader, bodies, context)
    task.feedback_budget = context.feedback_budget
    task.separate_hedges(context.tail)
    return task


def _assemble(leader: int, bodies: Bodies, context: WorkerContext) -> Task:
    plan = context.plan
    operator = plan.operators[plan.operator_of[leader]]
    role = operator.operator.role
    builder = _Builder(bodies, context)
    if role is Role.SOURCE:
        task: Task = builder.source(leader)
    elif operator.is_async:
        task = AsyncTask(plan, leader, context.clock, role, bodies.functions[leader])
    elif role is Role.MAP_BATCH:
        options = operator.operator.options
        task = BatchTask(
            plan,
            leader,
            context.clock,
            bodies.functions[leader],
            options["max_size"],
            int(options["max_wait_ms"] * MILLISECOND_NS),
            operator.operator.idempotent,
        )
    else:
        plain = (ObservedTask if builder.feedback_into(operator) else PlainTask)(plan, leader, context.clock)
        builder.add_tap(plain, operator)
        plain.cancelled = context.cancelled
        plain.stage = builder.stage(plain, leader)
        builder.add_feedback_receiver(plain, operator)
        return plain
    assert isinstance(task, SourceTask | AsyncTask | BatchTask)
    builder.add_tap(task, operator)
    task.cancelled = context.cancelled
    task.wiring = builder.wiring(task, leader)
    if isinstance(task, SourceTask):
        task.switch(context.tail)
    if context.observer is not None:
        if isinstance(task, SourceTask):
            task.ledger.observer = context.observer.roots(leader)
        else:
            task.observer = context.observer.calls(task, leader)
    builder.add_feedback_receiver(task, operator)
    return task


class _Builder:
    def __init__(self, bodies: Bodies, context: WorkerContext) -> None:
        self._bodies = bodies
        self._context = context
        self._plan = context.plan

    def wiring(self, task: Task, number: int) -> Wiring:
        plan = self._plan
        operator = plan.operators[plan.operator_of[number]]
        index = plan.task_index(number)
        counters = TaskCounters(operator.name, index, self._context.worker)
        wiring = Wiring(operator.name, index, operator.operator.on_error, counters, self._context.clock)
        task.wirings.append(wiring)
        outgoing = [edge for edge in plan.edges if edge.upstream == operator.index]
        main = [self._out(task, index, edge, counters) for edge in outgoing if edge.port is Port.MAIN]
        wiring.outs = tuple(main)
        if operator.operator.role in (Role.MAP, Role.MAP_BATCH):
            wiring.outs = (EmptyResults(wiring, self._context.say), *main)
        letters = [edge for edge in outgoing if edge.port is Port.DEAD_LETTERS]
        wiring.letters = tuple(self._out(task, index, edge, counters) for edge in letters)
        for out in main:
            if isinstance(out, LaneEdge):
                out.unroutable = _unroutable(wiring, plan.operators[out.edge.downstream].name)
        return wiring

    def feedback_into(self, operator: OperatorPlan) -> list[EdgePlan]:
        return [edge for edge in self._plan.edges if edge.downstream == operator.index and edge.feedback]

    def add_feedback_receiver(self, task: Task, operator: OperatorPlan) -> None:
        edges = self.feedback_into(operator)
        if edges:
            counters, context = task.counters[0], self._context
            task.feedback_receiver = FeedbackReceiver(
                self._plan, task.number, edges, counters, context.feedback_budget, context.clock, context.rng
            )

    def add_tap(self, task: Task, operator: OperatorPlan) -> None:
        """Make the shared queue of the operator, if its tasks may share one, and let the task draw from it if they
        share now. The task's queue must be empty."""
        context = self._context
        if self._plan.shares(task.number, NODE):
            queue = context.queues.get(operator.index)
            if queue is None:
                queue = context.queues[operator.index] = SharedQueue(context.rng, context.clock, context.guard())
            if self._plan.shares(task.number, context.tail.shared_queues):
                task.draw_from(queue)

    def source(self, number: int) -> SourceTask:
        splits = [split.index for split in self._plan.splits_of(number)]
        starts = {
            split: first_offset(self._plan, split, self._bodies.positions[split], self._context.epoch)
            for split in splits
        }
        readers = {split: self._bodies.readers[split] for split in splits}
        ledger = Ledger(starts, self._context.limits, self._context.rng)
        return SourceTask(self._plan, number, self._context.clock, ledger, readers, self._context.rng)

    def _out(self, task: Task, index: int, edge: EdgePlan, counters: TaskCounters) -> OutEdge:
        downstream = self._plan.operators[edge.downstream]
        if edge.fused:
            return FusedEdge(edge, self.stage(task, downstream.first_task + index))
        if edge.local:
            targets = [downstream.first_task + index]
        else:
            targets = [downstream.first_task + other for other in range(downstream.tasks)]
        if edge.feedback:
            return self._feedback_out(task, index, edge, targets, counters)
        lanes = [Lane(edge.index, target) for target in targets]
        task.lanes.extend(lanes)
        if isinstance(task, SourceTask) and task.leads(edge) and takes_turns(edge) and len(lanes) > 1:
            return RoundRobinEdge(edge, lanes, None, self._context.rng)
        chooser = None if edge.local else edge.grouping.bind(len(targets), self._context.rng)
        if takes_turns(edge) and len(lanes) > 1 and passes_one(self._plan, edge):
            return DisjointHalvesEdge(edge, lanes, chooser, self._context.rng)
        return LaneEdge(edge, lanes, chooser, self._context.rng)

    def _feedback_out(
        self, task: Task, index: int, edge: EdgePlan, targets: list[int], counters: TaskCounters
    ) -> OutEdge:
        context = self._context
        lanes = [FeedbackLane(edge.index, target) for target in targets]
        task.lanes.extend(lanes)
        out = FeedbackSender(
            edge, lanes, index, counters, context.feedback_budget, context.clock, context.rng, context.held_limit
        )
        task.feedback_edges[edge.index] = out
        return out

    def stage(self, task: Task, number: int) -> OperatorStage:
        operator = self._plan.operators[self._plan.operator_of[number]]
        wiring = self.wiring(task, number)
        if operator.operator.role is Role.SINK:
            stage = self._sink(task, operator, self._bodies.writers[number], wiring)
        else:
            stage = _STAGES[operator.operator.role](self._bodies.functions[number], wiring)
        observer = self._context.observer
        return stage if observer is None else observer.stage(task, number, stage, wiring)

    def _sink(self, task: Task, operator: OperatorPlan, writer: Writer, wiring: Wiring) -> OperatorStage:
        if not operator.committing:
            return CallSinkStage(writer.write, wiring)
        committing = cast(CommittingWriter, writer)
        log = open_log(committing, self._plan, self._bodies.positions, self._context.sightings)
        stage = CommitSinkStage(committing, log, task.acks, self._plan, self._context.rng, wiring)
        task.sinks.append(stage)
        return stage


def _unroutable(wiring: Wiring, downstream: str) -> Unroutable:
    """``on_error`` of the sender decides about a tuple that a grouping cannot place. The error names the receiver
    too."""

    def unroutable(
        emission: int, split: int, offset: int, value: Any, lineage: int | None, error: BaseException
    ) -> int:
        error.add_note(f"while choosing a task of operator {downstream}")
        return wiring.failed(emission, split, offset, value, lineage, error)

    return unroutable


def takes_turns(edge: EdgePlan) -> bool:
    """Whether any task of the edge may get any tuple."""
    return isinstance(edge.grouping, Shuffle) and not edge.by_lineage


def passes_one(plan: Plan, edge: EdgePlan) -> bool:
    """Whether at most one tuple of an emission takes this edge, by the shape of the topology."""
    operator = plan.operators[edge.upstream].operator
    if operator.role is Role.SOURCE:
        return True
    before = [other for other in plan.edges if other.downstream == edge.upstream]
    one = len(before) == 1 and operator.role in (Role.MAP, Role.FILTER) and before[0].grouping.name != "broadcast"
    return one and passes_one(plan, before[0])


EPOCH_OFFSETS = 40
"""How many bits of offsets each epoch of a source without stable positions gets: more than it will ever read."""


def first_offset(plan: Plan, split: int, position: Position, epoch: int) -> int:
    """The offset at which a reader of this split begins.

    A source without stable positions cannot read anything twice. Its roots get offsets that no earlier epoch can have
    used, because sinks would take new rows for copies of the lost ones otherwise.
    """
    if plan.operators[plan.splits[split].source].operator.body.replayable:
        return position.offset
    return max(position.offset, epoch << EPOCH_OFFSETS)


def open_log(writer: CommittingWriter, plan: Plan, positions: Mapping[int, Position], sightings: Sightings) -> SinkLog:
    """Shut out lower epochs of a sink task, and read back the entries that they had committed above the prefixes."""
    prefixes = {split: position.offset for split, position in positions.items()}
    index = {split.key: split.index for split in plan.splits}
    entries = writer.recover({split.key: prefixes[split.index] for split in plan.splits})
    marks = [(index[entry.split], entry.offset, entry.lineage) for entry in entries if entry.split in index]
    sightings.read_back(marks)
    return SinkLog(prefixes, marks)


_STAGES: dict[Role, Callable[[Callable[[Any], Any], Wiring], OperatorStage]] = {
    Role.MAP: MapStage,
    Role.FLAT_MAP: FlatMapStage,
    Role.FILTER: FilterStage,
}
