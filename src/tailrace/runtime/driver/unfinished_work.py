"""What a run that was given up leaves undone, as far as its last progress tells."""

from __future__ import annotations

from typing import Any

from tailrace.core.plan.plan import EdgePlan, Plan
from tailrace.topology import Port


def remains(plan: Plan, progress: dict[str, Any] | None) -> str:
    """``pending=400 waiting=work:399,out:1``: roots that are not durable, and tuples that operators have not run."""
    if progress is None:
        return "pending=unknown"
    told = {operator["name"]: operator for operator in progress["operators"]}
    waiting = {operator.name: _waiting(plan, operator.index, told) for operator in plan.operators}
    listed = ",".join(f"{name}:{count}" for name, count in waiting.items() if count)
    return f"pending={progress['pending']} waiting={listed or 'none'}"


def _waiting(plan: Plan, index: int, told: dict[str, Any]) -> int:
    """What was sent to an operator and not run. A task that hangs no longer counts its queue, but others count on."""
    operator = plan.operators[index]
    now = told[operator.name]
    sent = sum(_sent(plan, edge, told) for edge in plan.edges if edge.downstream == index)
    return max(int(now["queued"]), sent - int(now["received"]), 0)


def _sent(plan: Plan, edge: EdgePlan, told: dict[str, Any]) -> int:
    upstream = told[plan.operators[edge.upstream].name]
    tuples = upstream["deadLetters"] if edge.port is Port.DEAD_LETTERS else upstream["emitted"]
    return int(tuples) * (plan.operators[edge.downstream].tasks if edge.grouping.name == "broadcast" else 1)
