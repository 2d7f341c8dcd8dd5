"""The placement problem of a plan, from its structure before a run, or from measurements during one.

Tasks that are joined by ``local`` edges must be on one worker, as in the plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tailrace.core.plan.plan import EdgePlan, Plan
from tailrace.errors import OptionError
from tailrace.policy.placement.api import PlacementProblem
from tailrace.policy.placement.problem import placement_problem


def structure_problem(plan: Plan, nodes: Mapping[str, int], **constraints: Any) -> PlacementProblem:
    """Before a run: the traffic between tasks if every operator emits one tuple for each that it receives.

    Each source emits at rate 1, divided among its tasks. Each pair of tasks on an edge gets an equal part of the edge's
    traffic, and every task costs the same.
    """
    rate = [0.0] * len(plan.operators)
    fed = {edge.downstream for edge in plan.edges}
    traffic: dict[tuple[int, int], float] = {}
    for operator in plan.operators:  # in topological order
        if operator.index not in fed:
            rate[operator.index] = 1.0
        for edge in plan.edges:
            if edge.upstream == operator.index:
                rate[edge.downstream] += _add_edge(plan, edge, rate[operator.index], traffic)
    return _problem(plan, nodes, traffic, None, constraints)


def measured_problem(
    plan: Plan,
    nodes: Mapping[str, int],
    sent: Mapping[tuple[int, int], float],
    cpu: Sequence[float],
    **constraints: Any,
) -> PlacementProblem:
    """During a run: how much each task sent to each other, and the CPU that it used, over the same time."""
    return _problem(plan, nodes, sent, cpu, constraints)


def _add_edge(plan: Plan, edge: EdgePlan, rate: float, traffic: dict[tuple[int, int], float]) -> float:
    """Add the traffic of an edge. Returns how much that is."""
    up, down = plan.operators[edge.upstream], plan.operators[edge.downstream]
    if edge.local:
        pairs = [(up.first_task + index, down.first_task + index) for index in range(up.tasks)]
        each = rate / up.tasks
    else:
        pairs = [(up.first_task + a, down.first_task + b) for a in range(up.tasks) for b in range(down.tasks)]
        each = rate / up.tasks / (1 if edge.grouping.name == "broadcast" else down.tasks)
    for pair in pairs:
        traffic[pair] = traffic.get(pair, 0.0) + each
    return each * len(pairs)


def _problem(
    plan: Plan,
    nodes: Mapping[str, int],
    traffic: Mapping[tuple[int, int], float],
    cpu: Sequence[float] | None,
    constraints: dict[str, Any],
) -> PlacementProblem:
    if sum(nodes.values()) != plan.workers:
        raise OptionError(f"the plan has another number of workers: workers={plan.workers} nodes={dict(nodes)}")
    joined = [
        (plan.label(up.first_task + index), plan.label(down.first_task + index))
        for edge in plan.edges
        if edge.local
        for up, down in [(plan.operators[edge.upstream], plan.operators[edge.downstream])]
        for index in range(up.tasks)
    ]
    together = [*joined, *constraints.pop("together", ())]
    operators = {operator.name: operator.tasks for operator in plan.operators}
    return placement_problem(operators, nodes, traffic=traffic, cpu=cpu, together=together, **constraints)
