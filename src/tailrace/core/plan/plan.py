"""The plan: how many tasks each operator has, which tasks are fused, and on which worker each task runs.

A plan is made once, on the driver, and holds for the whole run. Tasks are numbered through all operators, in
topological order. The i-th tasks of operators that are joined by ``local`` edges run on the same worker. If the
receiving operator takes tuples one by one and has no other input, its task is *fused* to the sender's: one thread runs
both without a queue between them. Tasks that are fused form a *unit*, which is a tree: tuples enter at its leader only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from tailrace.policy.groupings.api import Grouping
from tailrace.policy.techniques import NODE, WORKER
from tailrace.topology import Operator, Port, Role, is_async


@dataclass(frozen=True)
class OperatorPlan:
    """An operator and its tasks."""

    index: int
    operator: Operator
    tasks: int
    first_task: int  # the number of its task 0
    widest: str | None = None  # how far its tasks may share a queue: within a "worker", a "node", or not at all

    @property
    def name(self) -> str:
        return self.operator.name

    @property
    def is_async(self) -> bool:
        """Whether its tasks have several calls under way at once, in an event loop."""
        return self.operator.calls is not None or is_async(self.operator.body)

    @property
    def committing(self) -> bool:
        return self.operator.role is Role.SINK and bool(self.operator.body.committing)

    @property
    def has_journal(self) -> bool:
        """Whether it keeps the results of its calls."""
        return self.operator.calls is not None and self.operator.calls.journal is not None

    def scope(self, wanted: str | None) -> str | None:
        """How far its tasks share a queue if ``wanted`` is asked for: within a worker, if it may not within a node."""
        return None if wanted is None or self.widest is None else min(wanted, self.widest, key=(WORKER, NODE).index)


@dataclass(frozen=True)
class EdgePlan:
    """An edge, and how tuples travel along it."""

    index: int
    upstream: int
    downstream: int
    grouping: Grouping
    port: Port
    salt: int
    local: bool
    fused: bool  # local, and the receiver is called directly
    lineages: bool  # a committing sink or a journal lies downstream, so tuples carry their lineages
    by_lineage: bool  # leads to a committing sink: two incarnations of a tuple must meet in one task
    feedback: bool = False  # load-aware: receiving tasks report to the senders, which choose by that

    @property
    def ends(self) -> tuple[int, int]:
        return self.upstream, self.downstream


@dataclass(frozen=True)
class SplitPlan:
    """A split of a source and the task that reads it."""

    index: int
    name: str  # the source's own name for it
    key: str  # unique within the run, and stable across restarts
    source: int  # operator index
    owner: int  # task number
    salt: int


@dataclass(frozen=True)
class Plan:
    """Everything about a run that does not change while it lasts."""

    name: str
    workers: int
    operators: tuple[OperatorPlan, ...]
    edges: tuple[EdgePlan, ...]
    splits: tuple[SplitPlan, ...]
    unit_of: tuple[int, ...]  # task number -> number of the task that leads its unit
    home: tuple[int, ...]  # task number -> worker

    @cached_property
    def operator_of(self) -> tuple[int, ...]:
        """Task number -> operator index."""
        return tuple(op.index for op in self.operators for _ in range(op.tasks))

    @cached_property
    def owners(self) -> tuple[int, ...]:
        """Split index -> number of the source task that keeps its ledger."""
        return tuple(split.owner for split in self.splits)

    def task_index(self, task: int) -> int:
        """The index of a task within its operator."""
        return task - self.operators[self.operator_of[task]].first_task

    def label(self, task: int) -> str:
        return f"{self.operators[self.operator_of[task]].name}/{self.task_index(task)}"

    def units(self, worker: int) -> Iterator[tuple[int, tuple[int, ...]]]:
        """The units of a worker: each leader with all tasks of its unit, in topological order."""
        members: dict[int, list[int]] = {}
        for task, leader in enumerate(self.unit_of):
            if self.home[task] == worker:
                members.setdefault(leader, []).append(task)
        for leader, tasks in members.items():
            yield leader, tuple(tasks)

    def shares(self, task: int, wanted: str | None) -> bool:
        """Whether a task that leads a unit shares its queue, if ``wanted`` is asked for.

        Within a node, also a task that is alone in its worker shares: there may be others on its machine.
        """
        operator = self.operators[self.operator_of[task]]
        scope = operator.scope(wanted)
        return scope == NODE or (scope == WORKER and self.homes(operator).count(self.home[task]) > 1)

    def homes(self, operator: OperatorPlan) -> tuple[int, ...]:
        """The worker of each task of an operator."""
        return self.home[operator.first_task : operator.first_task + operator.tasks]

    def sends_beside(self, task: int) -> bool:
        """Whether a task leads a unit that may send to other workers, and its worker has more tasks of its operator."""
        operator = self.operators[self.operator_of[task]]
        first = operator.first_task
        inside = [self.operator_of[member] for member, leader in enumerate(self.unit_of) if leader == task]
        far = any(edge.upstream in inside and not edge.local for edge in self.edges) and self.workers > 1
        beside = self.home[first : first + operator.tasks].count(self.home[task]) > 1
        return self.unit_of[task] == task and far and beside

    def splits_of(self, task: int) -> tuple[SplitPlan, ...]:
        return tuple(split for split in self.splits if split.owner == task)
