"""Queues that are shared, and then not, while tuples wait in them: each tuple once, and nothing is restarted."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tailrace as tr
from kit.runs import (
    add_one,
    assert_same_rows,
    finish,
    kill,
    operator_now,
    progress_now,
    received,
    restarts,
    row,
    running,
    same,
    wait_a_little,
)
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
    topology, sink = everything(1_500)
    with running(topology, workers=2, max_pending=600) as run, flipping(run, 0.03) as switched:
        progress = finish(run)
    assert len(switched) > len(SCOPES), "the run was over too soon"
    assert_same_rows((found["n"] for found in sink.values), range(1, 4_501))
    assert progress["reemitted"] == 0 and progress["recoveries"] == 0


def test_every_tuple_once_though_a_worker_dies_meanwhile() -> None:
    topology, sink = everything(1_500)
    with running(topology, workers=2, max_pending=600) as run, flipping(run, 0.03) as switched:
        wait_until(lambda: received(run, "out") >= 500, 60, "rows at the sink")
        kill(run, 0)
        progress = finish(run)
    assert len(switched) > len(SCOPES), "the run was over too soon"
    assert_same_rows((found["n"] for found in sink.values), range(1, 4_501))
    assert sum(restarts(progress)) == 1 and progress["reemitted"] > 0


def heavy(number: int) -> bytes:
    return number.to_bytes(4) + b"x" * 30_000


class Held:
    """A heavy value's number, so slowly that queues fill until there is a file of this name."""

    def __init__(self, gate: Path) -> None:
        self._gate = gate

    def __call__(self, value: bytes) -> int:
        time.sleep(0.002 if self._gate.exists() else 0.1)
        return int.from_bytes(value[:4])


def test_what_a_full_node_s_queue_had_no_room_for_is_not_forgotten_when_it_is_switched_off(tmp_path: Path) -> None:
    gate = tmp_path / "open"
    sink = tr.to_list()
    topology = tr.Topology("heavy")
    heavies = topology.source("numbers", tr.from_iterable(range(700)), tasks=1).map("heavy", heavy, tasks=2)
    heavies.map("work", Held(gate), tasks=4, kind="blocking").sink("out", sink, tasks=1)
    with running(topology, workers=2, tail=tr.Tail(shared_queues="node"), recovery_timeout_s=30) as run:
        wait_until(lambda: _queued(run, "work") > 20, 15, "a queue that is full")
        run.tail(shared_queues=None)
        gate.touch()
        progress = finish(run)
    assert_same_rows(sink.values, range(700))
    assert progress["reemitted"] == 0


def _queued(run: tr.Run, operator: str) -> int:
    return int(operator_now(run, operator)["queued"])


def who_reads(number: int) -> tuple[int, bool]:
    """In which process, and whether there is a thread that reads for all tasks of an operator."""
    time.sleep(0.002)
    return os.getpid(), "work intake" in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize(("at_start", "later"), [(None, "worker"), ("worker", None)])
def test_a_worker_that_is_started_again_does_as_the_others(at_start: str | None, later: str | None) -> None:
    sink = tr.to_list()
    topology = tr.Topology("again")
    numbers = topology.source("numbers", tr.from_iterable(range(100_000)))
    numbers.map("work", who_reads, tasks=4, kind="blocking").sink("out", sink)
    with running(topology, workers=2, tail=tr.Tail(shared_queues=at_start), max_pending=200) as run:
        wait_until(lambda: received(run, "out") >= 50, 30, "rows at the sink")
        assert {reads for _, reads in sink.values} == {at_start is not None}
        assert run.tail(shared_queues=later).shared_queues == later == run.tail().shared_queues
        kill(run, 0)
        pid = run.workerPids()[0]
        wait_until(lambda: any(by == pid for by, _ in sink.values), 30, "rows of the new process")
        assert {reads for by, reads in sink.values if by == pid} == {later is not None}
        progress = progress_now(run)
        shared = next(one for one in progress["operators"] if one["name"] == "work")["sharedQueues"]
        assert progress["tail"]["shared_queues"] == later and bool(shared) == (later is not None)


LONG = 60


def one_is_long(number: int) -> int:
    time.sleep(1.0 if number == LONG else 0.0)
    return number


def test_once_switched_on_nobody_waits_behind_a_long_call() -> None:
    """In the worker of the task that the long one was meant for, too: it is the last of all that comes out."""
    sink = tr.to_list()
    topology = tr.Topology("long")
    numbers = topology.source("numbers", tr.at_rate(range(120), 200), tasks=2)
    numbers.map("work", one_is_long, tasks=4, kind="blocking").sink("out", sink, tasks=1)
    with running(topology, workers=2) as run:
        run.tail(shared_queues="worker")
        finish(run)
    assert_same_rows(sink.values, range(120))
    assert sink.values[-1] == LONG


def test_what_no_operator_could_follow_is_refused_as_at_the_start() -> None:
    topology = tr.Topology("by_load")
    numbers = topology.source("numbers", tr.from_iterable(range(1_000_000)))
    numbers.map("work", same, tasks=4, grouping=tr.pull()).sink("out", tr.to_call(same), tasks=1)
    with running(topology, workers=1) as run:
        assert run.tail(shared_queues="worker").shared_queues == "worker"
        with pytest.raises(tr.OptionError) as refusal:
            run.tail(shared_queues="node")
        assert str(refusal.value) == (
            "no operator's tasks may draw from one queue: shared_queues='node': work: pull chooses by load, and who is "
            "to hear how long a tuple took may be elsewhere; out: it has one task: could one of them be grouped by "
            "shuffle(), or should this be left out?"
        )
        with pytest.raises(tr.OptionError, match="not a way to share queues: shared_queues='rack'"):
            run.tail(shared_queues="rack")
        assert run.tail().shared_queues == "worker"
