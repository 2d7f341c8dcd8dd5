"""A slow sink holds everybody back, up to the source: memory stays bounded, whatever the source could produce."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count

import pytest

import tailrace as tr
from kit.runs import progress_now, received, running, same
from tailrace.testing.processes import resident_bytes, wait_until

WORKERS = 3
MAX_PENDING = 4096
MEGABYTE = 1 << 20


def kilobytes(split: int, splits: int) -> Iterator[bytes]:
    """Without end, and as fast as it is asked for."""
    return (number.to_bytes(8, "little") * 128 for number in count())


def sleepy(value: bytes) -> None:
    time.sleep(0.002)


@pytest.mark.slow
def test_a_slow_sink_bounds_memory() -> None:
    topology = tr.Topology("slow-sink")
    source = topology.source("source", tr.from_iterable(kilobytes), tasks=2)
    source.map("a", same, tasks=2).map("b", same, tasks=2).sink("out", tr.to_call(sleepy), tasks=1)
    with running(topology, workers=WORKERS, max_pending=MAX_PENDING) as run:
        wait_until(lambda: received(run, "out") > 500, 30, "the queues to fill")
        early = [resident_bytes(pid) for pid in run.workerPids().values()]
        at, deadline = received(run, "out"), time.monotonic() + 4
        most_pending = 0
        while time.monotonic() < deadline:
            time.sleep(0.25)
            most_pending = max(most_pending, progress_now(run)["pending"])
        late = [resident_bytes(pid) for pid in run.workerPids().values()]
        progress = progress_now(run)
        assert received(run, "out") > at + 500, "the sink has stood still"
    assert sum(late) - sum(early) < 30 * MEGABYTE, (early, late)
    assert 0 < most_pending <= 2 * MAX_PENDING, "each of two source tasks may have so many roots under way"
    by_name = {operator["name"]: operator for operator in progress["operators"]}
    read = by_name["source"]["received"]
    assert read - by_name["out"]["received"] <= 2 * MAX_PENDING
    blocked = {name: sum(task["blockedMs"] for task in one["tasks"]) for name, one in by_name.items()}
    assert blocked["a"] + blocked["b"] + blocked["source"] > 0, blocked


def test_a_full_queue_holds_the_source_back_before_max_pending() -> None:
    """Queues are bounded by themselves; the bound on pending roots is the second line."""
    topology = tr.Topology("full-queue")
    source = topology.source("source", tr.from_iterable(kilobytes))
    source.map("a", same).sink("out", tr.to_call(sleepy))
    with running(topology, workers=WORKERS, max_pending=10_000_000) as run:
        wait_until(lambda: received(run, "out") > 1000, 30, "the queues to fill")
        progress = progress_now(run)
        sizes = [resident_bytes(pid) for pid in run.workerPids().values()]
    assert progress["pending"] < 20_000, "the source reads on although nobody takes what it reads"
    assert max(sizes) < 300 * MEGABYTE, sizes
    queued = {operator["name"]: operator["queued"] for operator in progress["operators"]}
    assert queued["out"] > 0
