"""Queues that are shared, and then not, while tuples wait in them: each tuple once, and nothing is restarted."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kit import add_one, assert_same_rows, finish, kill, received, restarts, row, running, same, wait_a_little

import tailrace as tr
from tailrace.testing.processes import wait_until

SCOPES = ("worker", "node", None, "node", "worker", None)
"""Every change from one to another."""


def uneven(number: int) -> int:
    time.sleep(0.003 if number % 40 == 0 else 0.0001)
    return number


def three(number: int) -> list[int]:
    return [3 * number + part for part in range(3)]


def everything(rows: int) -> tuple[tr.Topology, Any]:
    """Short calls, long ones, coroutines, batches, an edge by load, something fused; several senders and workers."""
    sink = tr.to_list()
    topology = tr.Topology("switched")
    parts = topology.source("numbers", tr.from_iterable(range(rows)), tasks=2).flat_map("parts", three, tasks=4)
    long = parts.map("long", uneven, tasks=4, kind="blocking").map("near", same, tasks=4, grouping=tr.local())
    awaited = long.map("awaited", wait_a_little, tasks=4, concurrency=8)
    batched = awaited.map_batch("batched", add_one, max_size=4, max_wait_ms=1, tasks=4)
    batched.map("pulled", same, tasks=4, grouping=tr.pull()).map("row", row, tasks=4).sink("out", sink)
    return topology, sink


@contextmanager
def flipping(run: tr.Run, every_s: float) -> Iterator[list[str | None]]:
    """Switch again and again until the end of the block. Says what was switched to."""
    over = threading.Event()
    done: list[str | None] = []

    def flip() -> None:
        for scope in itertools.cycle(SCOPES):
            if over.wait(every_s) or not run.isActive:
                return
            run.tail(shared_queues=scope)
            done.append(scope)

    thread = threading.Thread(target=flip)
    thread.start()
    try:
        yield done
    finally:
        over.set()
        thread.join()


def test_every_tuple_once_though_queues_change_hands_and_nothing_is_emitted_again() -> None:
    topology, sink = everything(2_500)
    with running(topology, workers=2, max_pending=600) as run, flipping(run, 0.05) as switched:
        progress = finish(run)
    assert len(switched) > len(SCOPES), "the run was over too soon"
    assert_same_rows((found["n"] for found in sink.values), range(1, 7_501))
    assert progress["reemitted"] == 0 and progress["recoveries"] == 0


def test_every_tuple_once_though_a_worker_dies_meanwhile_and_its_successor_does_as_the_others() -> None:
    topology, sink = everything(3_000)
    with running(topology, workers=2, max_pending=600) as run:
        with flipping(run, 0.04):
            wait_until(lambda: received(run, "out") >= 500, 60, "rows at the sink")
            kill(run, 0)
            wait_until(lambda: received(run, "out") >= 3_000, 60, "rows at the sink")
        run.tail(shared_queues="node")
        if run.isActive:
            progress = finish(run)
    assert_same_rows((found["n"] for found in sink.values), range(1, 9_001))
    assert sum(restarts(progress)) == 1
