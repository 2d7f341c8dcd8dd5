"""One of twelve tasks bursts, on live workers: what the order of sending does to its queue."""

from __future__ import annotations

import pytest

import tailrace as tr
from tailrace_research.bench.tail.send.bursts import MOST_TUPLES, TASKS, draw_bursts, run_bursts


@pytest.mark.soak
def test_a_task_that_bursts_falls_least_behind_under_largest_backlog_first() -> None:
    """It stays among the others, where round robin has its queue fill up, and holds it back. Wants a machine that is
    not busy: a sender that is kept from the processor fills its queues under any order."""
    bursts = draw_bursts(seed=4, tuples=900, slot_ns=800_000)  # one burst
    largest, blocked = {}, {}
    for scheduler in (tr.lbf(), tr.round_robin()):
        outcome = run_bursts(bursts, tr.Tail(send=scheduler))
        largest[scheduler.name], blocked[scheduler.name] = max(outcome.largest), sum(outcome.blocked_ms)
        assert len(outcome.latencies_ns) == TASKS
    assert largest["round_robin"] >= MOST_TUPLES
    assert largest["lbf"] < largest["round_robin"]
    assert blocked["lbf"] < blocked["round_robin"]
