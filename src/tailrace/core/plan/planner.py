"""The planner makes the plan of a topology for a number of workers: task counts, fusion, splits, workers of tasks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from tailrace.core.plan.plan import EdgePlan, OperatorPlan, Plan, SplitPlan
from tailrace.core.plan.queue_sharing import widest_scopes
from tailrace.core.protocol.lineage import edge_salt, split_salt
from tailrace.core.source_checks import split_names
from tailrace.errors import TopologyError
from tailrace.policy.groupings.feedback import has_feedback
from tailrace.topology import Edge, OnError, Role, Topology


def make_plan(topology: Topology, workers: int, *, name_all: bool = False) -> Plan:
    """The plan of a topology, which must be valid.

    ``name_all``: tuples carry their lineages on every edge, because the run is recorded.
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
    needs_lineage = _needing_lineage(topology, operators)
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
    """Whether tuples need lineages because they may become dead letters, also when they fail only at sending."""
    return operator.operator.on_error is OnError.DEAD_LETTER and operator.name in needs_lineage


def _takes_one_by_one(operator: OperatorPlan) -> bool:
    return operator.operator.role is not Role.MAP_BATCH and not operator.is_async


def _needing_lineage(topology: Topology, operators: tuple[OperatorPlan, ...]) -> set[str]:
    """Names of operators whose tuples must carry lineages: committing sinks and operators with a journal, which know
    tuples by them, and all from which one of these can be reached."""
    reaching = {plan.name for plan in operators if plan.committing or plan.has_journal}
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
    """Two numbers for every task: the leader of the tasks on its worker that it must stay with, and that of its unit.

    Local edges keep tasks on one worker. Fused edges make them one unit as well.
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
    """The worker of each task: leaders go to the workers in turn, and the tasks that must stay with one follow it."""
    homes: list[int] = []
    dealt = 0
    for task, leader in enumerate(places):
        if leader == task:
            homes.append(dealt % workers)
            dealt += 1
        else:
            homes.append(homes[leader])
    return tuple(homes)
