"""The limits of the calls of a plan."""

from __future__ import annotations

from tailrace.calls.limit import Limit
from tailrace.core.plan.plan import OperatorPlan, Plan


def limits_of(plan: Plan) -> list[Limit]:
    """The limit of each operator that has one."""
    return [limit for operator in plan.operators if (limit := _limit(operator)) is not None]


def tasks_of(plan: Plan, limit: Limit) -> int:
    """How many tasks share a limit."""
    names = [(_limit(operator), operator.tasks) for operator in plan.operators]
    return sum(tasks for other, tasks in names if other is not None and other.name == limit.name)


def _limit(operator: OperatorPlan) -> Limit | None:
    calls = operator.operator.calls
    return None if calls is None else calls.limit
