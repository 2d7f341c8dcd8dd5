"""Which operators' tasks may share a queue: those of which any task may run any tuple.

Where a tuple must be run by a certain task, each task keeps its own queue. So do tasks that take turns on one thread
anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tailrace.errors import OptionError
from tailrace.policy.techniques import NODE, WORKER
from tailrace.topology import Kind, Role

if TYPE_CHECKING:
    from tailrace.core.plan.plan import EdgePlan, OperatorPlan, Plan


def widest_scopes(operators: Sequence[OperatorPlan], edges: Sequence[EdgePlan]) -> dict[str, str | None]:
    """By name: how far an operator's tasks may share a queue, whether or not that is asked for."""
    found: dict[str, str | None] = {}
    for operator in operators:
        if why_not_shared(operator, operators, edges):
            found[operator.name] = None
        else:
            found[operator.name] = WORKER if why_not_by_machine(operator, edges) else NODE
    return found


def check_sharing(plan: Plan, wanted: str | None) -> None:
    """Raise OptionError, with the reasons, if sharing is asked for and no operator's tasks may."""
    if wanted is None or any(operator.scope(wanted) == wanted for operator in plan.operators):
        return
    reasons: list[str] = []
    for operator in plan.operators:
        if operator.operator.role is not Role.SOURCE:
            why = why_not_shared(operator, plan.operators, plan.edges) or why_not_by_machine(operator, plan.edges)
            reasons.append(f"{operator.name}: {why}")
    raise OptionError(
        f"no operator's tasks may draw from one queue: shared_queues={wanted!r}: {'; '.join(reasons)}: could one of "
        "them be grouped by shuffle(), or should this be left out?"
    )


def why_not_shared(operator: OperatorPlan, operators: Sequence[OperatorPlan], edges: Sequence[EdgePlan]) -> str | None:
    """Why an operator's tasks must have a queue each; None if they may share one."""
    if operator.operator.role is Role.SOURCE:
        return "a source has no input"
    if operator.tasks == 1:
        return "it has one task"
    if operator.operator.kind is Kind.CPU:
        return "tasks of kind='cpu' take turns on one thread"
    for edge in edges:
        if edge.downstream == operator.index:
            if edge.grouping.keyed:
                return f"{edge.grouping.name} sends equal keys to one task"
            if edge.grouping.name == "partial_key":
                return "partial_key sends equal keys to two tasks"
            if edge.local:
                return "what comes by a local edge stays where it is"
            if edge.grouping.name == "broadcast":
                return "every task gets every tuple"
    for near in _by_local_edges(operator, operators, edges):
        name = "it" if near is operator else near.name
        if near.operator.stateful and not near.operator.mergeable:
            return f"{name} keeps state"
        if near.committing:
            return f"{name} commits, and must get a re-emitted tuple in the task that knows it"
    return None


def why_not_by_machine(operator: OperatorPlan, edges: Sequence[EdgePlan]) -> str | None:
    """Why tasks that may share a queue within their worker may not share one with other workers."""
    for edge in edges:
        if edge.downstream == operator.index and edge.feedback:
            return f"{edge.grouping.name} chooses by load, and who is to hear how long a tuple took may be elsewhere"
    return None


def _by_local_edges(
    operator: OperatorPlan, operators: Sequence[OperatorPlan], edges: Sequence[EdgePlan]
) -> list[OperatorPlan]:
    """An operator, and all that local edges lead to from it."""
    found = [operator]
    for near in found:
        found += [operators[edge.downstream] for edge in edges if edge.local and edge.upstream == near.index]
    return found
