"""Pull on the stream by content, in the simulator: how near it comes to a policy that knows everything."""

from __future__ import annotations

from tailrace.clock import MICROSECOND_NS
from tailrace.policy import full_knowledge, pull
from tailrace.sim import simulate
from tailrace_research.bench.workloads import Draw, content

TRIP_NS = 100 * MICROSECOND_NS


def test_a_lone_sender_comes_near_to_full_knowledge() -> None:
    """0.93 in the simulator; by credits alone it was 0.80."""
    workload = content(Draw(tuples=4_000))
    model = workload.model(TRIP_NS)
    assert simulate(model, full_knowledge(), seed=1).mean_ns / simulate(model, pull(), seed=1).mean_ns > 0.88
