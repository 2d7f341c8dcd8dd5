"""Under overload each sender gets its share of a task, whether it is in the task's own worker or in another."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any

import pytest

import tailrace as tr
from kit.runs import running
from tailrace.testing.processes import wait_until

OTHER = 10_000_000
WINDOW, EVERY, WINDOWS = 1000, 100, 4
"""Rows. A window starts anywhere in a turn, and a row may be late by one commit of the sink: that is some 20 rows, of
500 that a worker has in a window. Windows overlap."""


class Telling:
    """Says which task has run a number, and of which source it was."""

    def open(self, context: Any) -> None:
        self.task = context.task

    def told(self, number: int) -> tuple[int, bool]:
        return self.task, number >= OTHER


class Later(Telling):
    async def process(self, number: int) -> tuple[int, bool]:
        await asyncio.sleep(0.004)
        return self.told(number)


class Slowly(Telling):
    def process(self, number: int) -> tuple[int, bool]:
        time.sleep(0.001)
        return self.told(number)


class Batches(Telling):
    def process(self, numbers: list[int]) -> list[tuple[int, bool]]:
        time.sleep(0.005)
        return [self.told(number) for number in numbers]


@pytest.mark.parametrize("kind", ["async", "blocking", "cpu", "batch", "shared"])
def test_a_sender_in_another_worker_gets_as_much_as_the_one_beside_the_task(kind: str) -> None:
    rows = tr.to_list()
    topology = tr.Topology("fair")
    here = topology.source("here", tr.from_iterable(range(OTHER)))
    there = topology.source("there", tr.from_iterable(range(OTHER, 2 * OTHER)))
    both = tr.union(here, there)
    if kind == "batch":
        told = both.map_batch("work", Batches, tasks=2, max_size=8)
    elif kind == "async":
        told = both.map("work", Later, tasks=2, concurrency=4)
    elif kind == "shared":
        told = both.map("work", Slowly, tasks=4, kind="blocking")
    else:
        told = both.map("work", Slowly, tasks=2, kind=kind)
    told.sink("out", rows, tasks=2)
    tail = tr.Tail(shared_queues="worker" if kind == "shared" else None)
    with running(topology, workers=2, max_pending=20_000, tail=tail) as run:
        wait_until(lambda: len(rows.values) >= WINDOWS * WINDOW or not run.isActive, 60, "rows")
        found = list(rows.values)
    assert len(found) >= WINDOWS * WINDOW
    for first in range(WINDOW, (WINDOWS - 1) * WINDOW + 1, EVERY):  # in the first one, links are made
        shares = Counter(found[first : first + WINDOW])
        for worker in (0, 1):
            one, other = (
                sum(shares[task, which] for task in range(4) if task % 2 == worker) for which in (False, True)
            )
            assert abs(one - other) <= 0.1 * (one + other), f"worker {worker} took {one} and {other} of the senders"
