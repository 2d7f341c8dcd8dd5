"""Halves that hear of everything late, in any order, and of new memberships at different times: each tuple once."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from random import Random
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tailrace.connector import SplitStart
from tailrace.core.assembly import Bodies, WorkerContext, assemble
from tailrace.core.plan.planner import make_plan
from tailrace.core.protocol.ledger import LedgerLimits
from tailrace.core.protocol.messages import Members, Position, Recover
from tailrace.core.tasks.base import ObservedTask, Task
from tailrace.core.tasks.source import SourceTask
from tailrace.policy import Grouping, least_work, local, osg, partial_key, power_of_two, pull
from tailrace.sim.faults.topologies import SimSink, SimSource, key
from tailrace.testing import ManualClock
from tailrace.topology import Topology

SENDERS, TASKS, ROOTS = 2, 3, 8
GROUPINGS: list[Grouping] = [
    pull(),
    osg(key, window=2, tolerance=10.0),
    least_work(key),
    power_of_two(),
    partial_key(key),
]


class _Written:
    """A sink's writer that only remembers."""

    def __init__(self, rows: list[Any]) -> None:
        self.write = rows.append


class Pipeline:
    """Sources, tasks with a sink fused to each, and what is on its way between them, in order for each pair."""

    def __init__(self, grouping: Grouping, held_limit: int, seed: int) -> None:
        topology = Topology("t")
        source = topology.source("s", SimSource("s", ROOTS), tasks=SENDERS)
        worked = source.map("work", lambda value: value, tasks=TASKS, grouping=grouping)
        worked.sink("out", SimSink(committing=False), grouping=local(), tasks=TASKS)
        plan = make_plan(topology, 1)
        self.clock = ManualClock(1)
        self.held_limit = held_limit
        limits = LedgerLimits(100, 1_000_000_000)
        context = WorkerContext(plan, 0, 1, limits, self.clock, Random(seed), held_limit=held_limit)
        self.rows: list[Any] = []
        positions = {split.index: Position(0, None) for split in plan.splits}
        self.tasks: dict[int, Task] = {}
        for leader, members in plan.units(0):
            readers = {
                split.index: plan.operators[0].operator.body.open(SplitStart(split.name))
                for split in plan.splits_of(leader)
            }
            functions = {leader: plan.operators[plan.operator_of[leader]].operator.body}
            writers = {member: _Written(self.rows) for member in members if member != leader}
            self.tasks[leader] = assemble(leader, Bodies(functions, writers, readers, positions), context)  # type: ignore[arg-type]
        self.sources = [task for task in self.tasks.values() if isinstance(task, SourceTask)]
        self.workers = [task for task in self.tasks.values() if isinstance(task, ObservedTask)]
        self.down: dict[tuple[int, int], deque[Any]] = {}
        self.up: dict[tuple[int, int], deque[Any]] = {}
        self.versions = dict.fromkeys(self.tasks, 0)
        for source_task in self.sources:
            source_task.handle(Recover())

    # -- what may happen

    def emit(self, number: int) -> None:
        source = self.sources[number % SENDERS]
        if not source.held_full and source.ready_ns is not None:
            source.read(1 + number % 3)
            assert all(len(line.held) <= self.held_limit + 3 for line in source.feedback_edges.values())
        self.carry(source)

    def arrive(self, number: int) -> None:
        self.pick(self.down, number, lambda target, what: self.tasks[target].receive([what]))

    def hear(self, number: int) -> None:
        self.pick(self.up, number, lambda target, what: self.tasks[target].hear([what]))

    def run(self, number: int) -> None:
        task = self.workers[number % TASKS]
        assert task.feedback_receiver is not None
        task.feedback_receiver.process_pending()
        self.clock.advance(1 + number % 5)
        task.run(0)
        self.carry(task)

    def renew(self, number: int) -> None:
        """One task hears of the next membership; nobody is more than two ahead."""
        leader = sorted(self.tasks)[number % len(self.tasks)]
        if self.versions[leader] < min(self.versions.values()) + 2:
            self.versions[leader] += 1
            self.tasks[leader].handle(Members(self.versions[leader], {}, {}))
            self.carry(self.tasks[leader])

    def carry(self, task: Task) -> None:
        for lane in task.lanes:
            self.down.setdefault((task.number, lane.target), deque()).extend(lane.take())
        if task.feedback_receiver is not None:
            for sender, notes in task.feedback_receiver.outbox.items():
                self.up.setdefault((task.number, sender), deque()).extend(notes)
            task.feedback_receiver.outbox = {}
        for owner, fold in task.acks.items():
            ledger = self.tasks[owner]
            assert isinstance(ledger, SourceTask)
            ledger.apply(*fold.take())

    def pick(self, links: dict[tuple[int, int], deque[Any]], number: int, deliver: Any) -> None:
        waiting = [link for link in sorted(links) if links[link]]
        if waiting:
            link = waiting[number % len(waiting)]
            deliver(link[1], links[link].popleft())
            self.carry(self.tasks[link[1]])

    # -- the end

    def finish(self) -> None:
        newest = max(self.versions.values())
        for leader, task in self.tasks.items():
            if self.versions[leader] < newest:
                task.handle(Members(newest, {}, {}))
                self.carry(task)
        for step in range(4_000):
            for act in (self.emit, self.arrive, self.hear, self.run):
                act(step)
            if not self.open and not any(map(len, (*self.down.values(), *self.up.values()))):
                return
        raise AssertionError(f"never at rest: {self.open} roots are open")

    @property
    def open(self) -> int:
        return sum(task.ledger.pending + (not task.exhausted) for task in self.sources)


ACTIONS = (Pipeline.emit, Pipeline.arrive, Pipeline.hear, Pipeline.run, Pipeline.renew)
STEPS = st.lists(st.tuples(st.sampled_from(range(len(ACTIONS))), st.integers(0, 29)), max_size=120)


@settings(max_examples=150)
@given(st.sampled_from([0, 0, 0, 0, *range(len(GROUPINGS))]), st.sampled_from([1, 3, 100]), STEPS)
@example(0, 1, [(0, 0)] * 4 + [(4, 0)] * 2 + [(0, 1)] * 4)
def test_every_tuple_is_run_once_and_acknowledged(
    which: int, held_limit: int, steps: Sequence[tuple[int, int]]
) -> None:
    pipeline = Pipeline(GROUPINGS[which], held_limit, len(steps))
    for action, number in steps:
        ACTIONS[action](pipeline, number)
    pipeline.finish()
    expected = Counter(("s", str(split), offset) for split in range(SENDERS) for offset in range(ROOTS))
    assert Counter(pipeline.rows) == expected
    assert not any(line.held for source in pipeline.sources for line in source.feedback_edges.values())
    for task in pipeline.workers:
        assert task.feedback_receiver is not None
        task.feedback_receiver.process_pending()
        assert not task.feedback_receiver.queued, "halves were told of other tuples than came"
