"""Describes the work that an abandoned run leaves unfinished, according to its last progress."""

from __future__ import annotations

from typing import Any

from tailrace.core.plan.plan import EdgePlan, Plan
from tailrace.topology import Port


def describe_unfinished(plan: Plan, progress: dict[str, Any] | None) -> str:
    """Such as ``pending=400 waiting=work:399,out:1``: roots that are not durable, and waiting tuples by operator."""
    if progress is None:
        return "pending=unknown"
    reported = {operator["name"]: operator for operator in progress["operators"]}
    waiting = {operator.name: _waiting(plan, operator.index, reported) for operator in plan.operators}
    listed = ",".join(f"{name}:{count}" for name, count in waiting.items() if count)
    return f"pending={progress['pending']} waiting={listed or 'none'}"


def _waiting(plan: Plan, index: int, reported: dict[str, Any]) -> int:
    """Tuples sent to an operator and not yet run.

    A hanging task no longer reports its queue, so this also compares what was sent with what was received.
    """
    operator = plan.operators[index]
    now = reported[operator.name]
    sent = sum(_sent(plan, edge, reported) for edge in plan.edges if edge.downstream == index)
    return max(int(now["queued"]), sent - int(now["received"]), 0)


def _sent(plan: Plan, edge: EdgePlan, reported: dict[str, Any]) -> int:
    upstream = reported[plan.operators[edge.upstream].name]
    tuples = upstream["deadLetters"] if edge.port is Port.DEAD_LETTERS else upstream["emitted"]
    return int(tuples) * (plan.operators[edge.downstream].tasks if edge.grouping.name == "broadcast" else 1)
