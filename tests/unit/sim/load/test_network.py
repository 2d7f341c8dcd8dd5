"""Links of the simulator: what is sent first arrives first, a tuple or a message."""

from __future__ import annotations

import pytest

from tailrace.clock import SECOND_NS
from tailrace.sim.load.models.model import Uplink
from tailrace.sim.load.network import Lane

LATENCY_NS = 100


@pytest.mark.parametrize("bytes_per_s", [None, 1e9])
def test_a_message_overtakes_no_tuple(bytes_per_s: float | None) -> None:
    lane = Lane(Uplink(LATENCY_NS, bytes_per_s), 50, [0.0])
    tuples_ns = [lane.arrival_ns(1_000) for _ in range(3)]
    assert lane.message_ns(1_000) == tuples_ns[-1]
    assert lane.message_ns(SECOND_NS) == SECOND_NS + LATENCY_NS, "it takes no time of its own"
    assert lane.arrival_ns(SECOND_NS) - SECOND_NS - LATENCY_NS == (50 if bytes_per_s else 0)
