"""Progress of edges with load-aware groupings: shares of their tasks, tuples held, and quality of cost estimates.

The size of an edge's progress is bounded: shares are listed one by one only if the tasks are few.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tailrace.clock import MILLISECOND_NS
from tailrace.metrics.counters import EdgeState, TaskSnapshot

MOST_SHARES = 16
"""Shares are listed up to this many tasks."""


class WatchedEdge(NamedTuple):
    """An edge whose grouping is load-aware."""

    upstream: str
    downstream: str
    grouping: str


def edge_progress(
    edge: WatchedEdge,
    states: Sequence[EdgeState],
    earlier: Sequence[TaskSnapshot],
    now: Sequence[TaskSnapshot],
) -> dict[str, Any]:
    """The progress of one edge, from the states of its senders, and its receivers at the last build and now."""
    estimates, estimated_ns = sum(state.estimates for state in states), sum(state.estimated_ns for state in states)
    executed, busy_ns = sum(task.received for task in now), sum(task.busy_ns for task in now)
    return {
        "from": edge.upstream,
        "to": edge.downstream,
        "grouping": edge.grouping,
        "held": sum(state.held for state in states),
        "credits": sum(state.credits for state in states),
        "estimateMs": _mean_ms(estimated_ns, estimates),
        "measuredMs": _mean_ms(busy_ns, executed),
        **_shares(earlier, now),
    }


def _shares(earlier: Sequence[TaskSnapshot], now: Sequence[TaskSnapshot]) -> dict[str, Any]:
    """Each task's share of the tuples received since the last build; null if there were none."""
    before = {task.key: task.received for task in earlier}
    received = [task.received - before.get(task.key, 0) for task in now]
    whole = sum(received)
    if not whole:
        return {"leastShare": None, "mostShare": None, "shares": []}
    shares = [round(some / whole, 4) for some in received]
    return {
        "leastShare": min(shares),
        "mostShare": max(shares),
        "shares": shares if len(shares) <= MOST_SHARES else [],
    }


def _mean_ms(total_ns: int, count: int) -> float | None:
    return round(total_ns / count / MILLISECOND_NS, 6) if count else None
