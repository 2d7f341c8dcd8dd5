"""The plan: how many tasks each operator has, which are fused, and which worker is home to which task.

A plan is made once, on the driver, and holds for the whole run. Tasks are numbered through all operators, in
topological order. Operators joined by ``local`` edges share a *unit*: their i-th tasks live in one place, and are
run by one thread without a queue between them wherever the receiving operator takes tuples one by one and has no
other input. A unit is therefore a tree: tuples enter at its leader only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from tailrace.core.plan.queue_sharing import widest_scopes
from tailrace.core.protocol.lineage import edge_salt, split_salt
from tailrace.core.source_checks import split_names
from tailrace.errors import TopologyError
from tailrace.policy.groupings.api import Grouping
from tailrace.policy.groupings.feedback import has_feedback
from tailrace.policy.techniques import NODE, WORKER
from tailrace.topology import Edge, OnError, Operator, Port, Role, Topology, is_async


@dataclass(frozen=True)
class OperatorPlan:
    """An operator with its number of tasks settled."""

    index: int
    operator: Operator
    tasks: int
    first_task: int  # the number of its task 0
    widest: str | None = None  # whose tasks may draw from one queue: those of a "worker", of a "node", or nobody's

    @property
    def name(self) -> str:
        return self.operator.name

    @property
    def is_async(self) -> bool:
        return is_async(self.operator.body)

    @property
    def committing(self) -> bool:
        return self.operator.role is Role.SINK and bool(self.operator.body.committing)

    def scope(self, wanted: str | None) -> str | None:
        """Whose tasks draw from one queue where this is wanted: one that may not by node does by worker."""
        return None if wanted is None or self.widest is None else min(wanted, self.widest, key=(WORKER, NODE).index)


@dataclass(frozen=True)
class EdgePlan:
    """An edge with what the router needs to know of it."""

    index: int
    upstream: int
    downstream: int
    grouping: Grouping
    port: Port
    salt: int
    local: bool
    fused: bool  # local, and the receiver is called directly
    lineages: bool  # a committing sink lies downstream, so tuples carry their lineages
    by_lineage: bool  # leads to a committing sink: two incarnations must meet in one task
    feedback: bool = False  # its tasks report to the senders, which choose by that

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
        """A task's place among the tasks of its operator."""
        return task - self.operators[self.operator_of[task]].first_task

    def label(self, task: int) -> str:
        return f"{self.operators[self.operator_of[task]].name}/{self.task_index(task)}"

    def units(self, worker: int) -> Iterator[tuple[int, tuple[int, ...]]]:
        """The units at home on a worker: each leader with all tasks of its unit, in topological order."""
        members: dict[int, list[int]] = {}
        for task, leader in enumerate(self.unit_of):
            if self.home[task] == worker:
                members.setdefault(leader, []).append(task)
        for leader, tasks in members.items():
            yield leader, tuple(tasks)

    def shares(self, task: int, wanted: str | None) -> bool:
        """Whether a task that leads a unit draws from one queue with others, where this is wanted.

        One that is alone in its worker does by node: there may be others on its machine.
        """
        operator = self.operators[self.operator_of[task]]
        scope = operator.scope(wanted)
        return scope == NODE or (scope == WORKER and self.homes(operator).count(self.home[task]) > 1)

    def homes(self, operator: OperatorPlan) -> tuple[int, ...]:
        """The worker of each task of an operator."""
        return self.home[operator.first_task : operator.first_task + operator.tasks]

    def sends_beside(self, task: int) -> bool:
        """Whether a task leads a unit that may send to other workers, beside another of its operator in its worker."""
        operator = self.operators[self.operator_of[task]]
        first = operator.first_task
        inside = [self.operator_of[member] for member, leader in enumerate(self.unit_of) if leader == task]
        far = any(edge.upstream in inside and not edge.local for edge in self.edges) and self.workers > 1
        beside = self.home[first : first + operator.tasks].count(self.home[task]) > 1
        return self.unit_of[task] == task and far and beside

    def splits_of(self, task: int) -> tuple[SplitPlan, ...]:
        return tuple(split for split in self.splits if split.owner == task)


def make_plan(topology: Topology, workers: int, *, name_all: bool = False) -> Plan:
    """Settle task counts, fusion, splits and homes. The topology has been validated.

    ``name_all``: tuples carry their lineages on every edge, for whoever records them.
    """
    operators = _plan_operators(topology, workers)
    edges = _plan_edges(topology, operators, name_all)
    scopes = widest_scopes(operators, edges)
    operators = tuple(replace(operator, widest=scopes[operator.name]) for operator in operators)
    leaders, units = _plan_units(operators, edges)
    return Plan(
        name=topology.name,
        workers=workers,
        operators=operators,
        edges=edges,
        splits=_plan_splits(operators),
        unit_of=units,
        home=_round_robin(leaders, workers),
    )


def _plan_operators(topology: Topology, workers: int) -> tuple[OperatorPlan, ...]:
    plans: list[OperatorPlan] = []
    first = 0
    for index, operator in enumerate(topology.topological_order()):
        tasks = workers if operator.tasks is None else operator.tasks
        plans.append(OperatorPlan(index, operator, tasks, first))
        first += tasks
    return tuple(plans)


def _plan_edges(topology: Topology, operators: tuple[OperatorPlan, ...], name_all: bool) -> tuple[EdgePlan, ...]:
    by_name = {plan.name: plan for plan in operators}
    needs_lineage = _reaches_committing_sink(topology, operators)
    inputs = Counter(edge.downstream for edge in topology.edges)
    seen: dict[tuple[str, str, str], int] = {}
    plans: list[EdgePlan] = []
    for edge in topology.edges:
        upstream, downstream = by_name[edge.upstream], by_name[edge.downstream]
        key = (edge.upstream, edge.downstream, edge.port.value)
        ordinal = seen.get(key, 0)
        seen[key] = ordinal + 1
        local, everywhere = edge.grouping.name == "local", edge.grouping.name == "broadcast"
        if local and upstream.tasks != downstream.tasks:
            raise TopologyError(
                f"a local edge needs equally many tasks on both sides: {upstream.name}={upstream.tasks} "
                f"{downstream.name}={downstream.tasks}; did you leave tasks= out on one of them?"
            )
        plans.append(
            EdgePlan(
                index=len(plans),
                upstream=upstream.index,
                downstream=downstream.index,
                grouping=edge.grouping,
                port=edge.port,
                salt=edge_salt(*key, ordinal),
                local=local,
                fused=local and inputs[edge.downstream] == 1 and _takes_one_by_one(downstream),
                lineages=name_all or downstream.name in needs_lineage or _letters_need_lineage(upstream, needs_lineage),
                by_lineage=downstream.committing and not edge.grouping.keyed and not local and not everywhere,
                feedback=has_feedback(edge.grouping) and downstream.tasks > 1,
            )
        )
    return tuple(plans)


def _letters_need_lineage(operator: OperatorPlan, needs_lineage: set[str]) -> bool:
    """A tuple may turn into a dead letter only when it is to be sent; then it must have its lineage with it."""
    return operator.operator.on_error is OnError.DEAD_LETTER and operator.name in needs_lineage


def _takes_one_by_one(operator: OperatorPlan) -> bool:
    return operator.operator.role is not Role.MAP_BATCH and not operator.is_async


def _reaches_committing_sink(topology: Topology, operators: tuple[OperatorPlan, ...]) -> set[str]:
    """Names of operators from which a committing sink can be reached, the sinks themselves among them."""
    reaching = {plan.name for plan in operators if plan.committing}
    upstreams: dict[str, list[Edge]] = {}
    for edge in topology.edges:
        upstreams.setdefault(edge.downstream, []).append(edge)
    for plan in reversed(operators):
        if plan.name in reaching:
            reaching.update(edge.upstream for edge in upstreams.get(plan.name, ()))
    return reaching


def _plan_units(
    operators: tuple[OperatorPlan, ...], edges: tuple[EdgePlan, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two numbers for every task: the leader of the place it shares, and the leader of its unit.

    Local edges put tasks into one place. Fused edges make them one unit as well.
    """
    tasks = sum(plan.tasks for plan in operators)
    place, unit = list(range(tasks)), list(range(tasks))
    for edge in edges:
        if edge.local:
            for index in range(operators[edge.upstream].tasks):
                pair = operators[edge.upstream].first_task + index, operators[edge.downstream].first_task + index
                _join(place, *pair)
                if edge.fused:
                    _join(unit, *pair)
    return tuple(_find(place, task) for task in range(tasks)), tuple(_find(unit, task) for task in range(tasks))


def _find(leaders: list[int], task: int) -> int:
    while leaders[task] != task:
        task = leaders[task]
    return task


def _join(leaders: list[int], a: int, b: int) -> None:
    low, high = sorted((_find(leaders, a), _find(leaders, b)))
    leaders[high] = low


def _plan_splits(operators: tuple[OperatorPlan, ...]) -> tuple[SplitPlan, ...]:
    plans: list[SplitPlan] = []
    for plan in operators:
        if plan.operator.role is Role.SOURCE:
            for position, name in enumerate(split_names(plan.name, plan.operator.body.splits(plan.tasks))):
                owner = plan.first_task + position % plan.tasks
                plans.append(
                    SplitPlan(
                        index=len(plans),
                        name=name,
                        key=f"{plan.name}/{name}",
                        source=plan.index,
                        owner=owner,
                        salt=split_salt(plan.name, name),
                    )
                )
    return tuple(plans)


def _round_robin(places: tuple[int, ...], workers: int) -> tuple[int, ...]:
    """Homes of all tasks: places in order, dealt out like cards; what shares a place follows its leader."""
    homes: list[int] = []
    dealt = 0
    for task, leader in enumerate(places):
        if leader == task:
            homes.append(dealt % workers)
            dealt += 1
        else:
            homes.append(homes[leader])
    return tuple(homes)
