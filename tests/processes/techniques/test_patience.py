"""A source that is not woken for acks reports the same latencies, and its run ends as soon."""

from __future__ import annotations

import time

import tailrace as tr
from kit.runs import finish, running
from tailrace.testing.processes import wait_until

ROWS, PER_SECOND = 24, 24
SHORT_S, LONG_S = 0.001, 0.005
BOTH_MS = 1e3 * (SHORT_S + LONG_S)


def short(number: int) -> int:
    time.sleep(SHORT_S)
    return number


def long(number: int) -> int:
    time.sleep(LONG_S)
    return number


def test_acks_that_are_read_late_and_in_any_order_count_from_when_they_were_sent() -> None:
    """A root's two acks lie in a ring and in the source's mail until the next root is due, much later."""
    topology = tr.Topology("patience")
    rows = tr.to_list()
    numbers = topology.source("numbers", tr.at_rate(range(ROWS), PER_SECOND))
    numbers.map("short", short, tasks=2, kind="blocking").map("long", long, tasks=2, kind="blocking").sink("out", rows)
    with running(topology, workers=2) as run:
        wait_until(lambda: len(rows.values) == ROWS, 30, "all rows")
        begun = time.monotonic()
        progress = finish(run)
        ending_s = time.monotonic() - begun
    complete = progress["latencyMs"]["complete"]
    assert complete["count"] == len(rows.values) == ROWS
    assert complete["mean"] > BOTH_MS and min(bound for bound, _ in progress["latencyHistogram"]) >= BOTH_MS
    assert complete["p50"] < 2 * BOTH_MS, "a root counts until its acks were sent, not until the source next works"
    assert ending_s < 5, "the last acks wake the source"
