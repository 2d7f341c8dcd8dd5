"""Tasks of several workers that draw from one queue in shared memory: each tuple once, whoever dies holding what."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tailrace as tr
from kit.runs import (
    Script,
    add_one,
    assert_none_left,
    assert_same_rows,
    finish,
    homes,
    key,
    operator_now,
    restarts,
    row,
    running,
    same,
    wait_a_little,
)
from tailrace.metrics.recording import SUFFIX, read_recorded
from tailrace.ring.segment import FOLDER
from tailrace.sim.traces.run_trace import read_trace
from tailrace.testing.processes import wait_until

NODE = tr.Tail(shared_queues="node")


def three(number: int) -> list[int]:
    return [3 * number + part for part in range(3)]


def held_once(folder: Path, which: tuple[int, ...], number: int) -> int:
    """The first time that one of these is run it does not end. Its file says in which process that is."""
    file = folder / str(number)
    if number in which and not file.exists():
        file.write_text(str(os.getpid()))
        time.sleep(60)
    time.sleep(0.0002)
    return number


def segments(run_id: str) -> list[str]:
    return [path.name for path in FOLDER.glob(f"tailrace-{run_id}-*")]


def queues(run: tr.Run, operator: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = operator_now(run, operator)["sharedQueues"]
    return found


def _holding(folder: Path, which: tuple[int, ...], rows: int) -> tuple[tr.Topology, Any]:
    """Bundles of three, short calls and long ones, something fused, and several tasks a worker."""
    sink = tr.to_list()
    topology = tr.Topology("held")
    numbers = topology.source("numbers", tr.from_iterable(range(rows)), tasks=2)
    parts = numbers.flat_map("parts", three, tasks=4)
    held = parts.map("work", partial(held_once, folder, which), tasks=6, kind="blocking")
    held.map("near", same, tasks=6, grouping=tr.local()).map("row", row, tasks=4).sink("out", sink)
    return topology, sink


@pytest.mark.parametrize("which", [(300,), (300, 301, 302, 303)], ids=["one", "all at once"])
def test_every_tuple_once_though_those_who_hold_one_are_killed(tmp_path: Path, which: tuple[int, ...]) -> None:
    topology, sink = _holding(tmp_path, which, 800)
    with running(topology, workers=3, tail=NODE, max_pending=600) as run:
        wait_until(lambda: len(list(tmp_path.iterdir())) == len(which), 30, "workers that hold a tuple")
        wait_until(lambda: [queue["workers"] for queue in queues(run, "work")] == [[0, 1, 2]], 10, "news of the queue")
        assert not segments(run.id), "all have mapped the queues, and their names are still there"
        for pid in {int(file.read_text()) for file in tmp_path.iterdir()}:
            os.kill(pid, signal.SIGKILL)
        progress = finish(run)
    assert_same_rows((found["n"] for found in sink.values), range(2_400))
    assert sum(restarts(progress)) >= 1
    assert not segments(run.id)


@pytest.mark.soak
def test_a_worker_that_is_stopped_holds_up_the_others_only_until_it_is_replaced(tmp_path: Path) -> None:
    """It may have been stopped anywhere, at its turn at the ring too, and is killed only much later."""
    topology, sink = _holding(tmp_path, (300,), 1_200)
    with running(topology, workers=3, tail=NODE, max_pending=600, heartbeat_timeout_s=0.6) as run:
        wait_until(lambda: (tmp_path / "300").exists(), 30, "a worker that holds a tuple")
        os.kill(int((tmp_path / "300").read_text()), signal.SIGSTOP)
        finish(run)
    assert_same_rows((found["n"] for found in sink.values), range(3_600))


def _three_are_long(number: int) -> int:
    time.sleep(1.0 if number < 3 else 0.0)
    return number


def test_nobody_waits_though_a_worker_has_only_long_calls() -> None:
    """Three of four tasks are busy, so one worker at least has no free one; the fourth runs all the others."""
    sink = tr.to_list()
    topology = tr.Topology("long")
    numbers = topology.source("numbers", tr.at_rate(range(60), 300), tasks=1)
    numbers.map("work", _three_are_long, tasks=4, kind="blocking").sink("out", sink, tasks=1)
    assert sorted(homes(topology, 2, "work")) == [0, 0, 1, 1]
    with running(topology, workers=2, tail=NODE) as run:
        finish(run)
    assert_same_rows(sink.values, range(60))
    assert set(sink.values[-3:]) == {0, 1, 2}


def test_coroutines_batches_hedges_and_a_recording_of_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An operator behind an edge by load shares in each worker instead, and the run says so."""
    sink = tr.to_list()
    topology = tr.Topology("later")
    numbers = topology.source("numbers", tr.from_iterable(range(1_500)), tasks=2)
    awaited = numbers.map("awaited", wait_a_little, tasks=4, concurrency=8)
    batched = awaited.map_batch("batched", add_one, max_size=4, max_wait_ms=1, tasks=4)
    near = batched.map("balanced", same, tasks=4, grouping=tr.least_work(key))
    near.map("row", row, tasks=2).sink("out", sink)
    tail = tr.Tail(shared_queues="node", hedge=tr.fixed_timeout(5))
    with running(topology, workers=2, tail=tail, record=tmp_path / "trace") as run:
        finish(run)
    assert_same_rows((found["n"] for found in sink.values), range(1, 1_501))
    assert "tasks of operator balanced draw from one queue in each worker" in caplog.text
    assert len(read_trace(tmp_path / "trace").due_ns) == 1_500
    for file in (tmp_path / "trace").glob(f"*{SUFFIX}"):
        tuples = read_recorded(file).tuples
        assert all(came <= begun for came, begun in zip(tuples["received_ns"], tuples["begun_ns"], strict=True))


LARGE, TOO_LARGE = 20_000, 600_000
"""Bytes of a tuple: fifty fill a queue; and more than fits."""


def heavy(number: int) -> bytes:
    return number.to_bytes(4) + b"x" * (TOO_LARGE if number % 100 == 7 else LARGE)


def number_of(value: bytes) -> int:
    time.sleep(0.004)
    return int.from_bytes(value[:4])


def test_a_full_queue_holds_back_its_senders_and_too_large_a_tuple_goes_around_it() -> None:
    sink = tr.to_list()
    topology = tr.Topology("heavy")
    heavies = topology.source("numbers", tr.from_iterable(range(1_000)), tasks=1).map("heavy", heavy, tasks=2)
    heavies.map("work", number_of, tasks=4, kind="blocking").sink("out", sink, tasks=1)
    most = 0
    with running(topology, workers=2, tail=NODE, max_pending=100_000) as run:
        while run.isActive:
            most = max([most, *(queue["queued"] for queue in queues(run, "work"))])
            time.sleep(0.01)
        progress = finish(run)
    assert_same_rows(sink.values, range(1_000))
    assert 20 < most < 80, "a queue of a megabyte"
    makers = next(one for one in progress["operators"] if one["name"] == "heavy")["tasks"]
    assert sum(task["blockedMs"] for task in makers) > 0, "who makes tuples goes on though nobody takes them"


DRIVER = """
import time
import tailrace as tr

def slowly(number):
    time.sleep(0.01)
    return number

if __name__ == "__main__":
    topology = tr.Topology("orphaned")
    numbers = topology.source("numbers", tr.from_iterable(range(100_000)), tasks=2)
    numbers.map("work", slowly, tasks=4, kind="blocking").sink("out", tr.to_call(slowly))
    run = topology.run(workers=2, tail=tr.Tail(shared_queues="node"))
    print("started", run.id, flush=True)
    run.awaitTermination()
"""


def test_nothing_is_left_when_the_driver_is_killed(tmp_path: Path, mark: str) -> None:
    """A segment has a name until all that share it have mapped it. Whoever dies later can leave none."""
    with Script(tmp_path, DRIVER) as driver:
        run_id = driver.line_with("started").split()[1]
        deadline = time.monotonic() + 30
        while not segments(run_id):  # without a pause: there are names for a tenth of a second
            assert time.monotonic() < deadline, "no segment was ever seen"
        driver.kill()
    assert_none_left(mark)
    assert not segments(run_id), "the workers have left, and names are still there"


def test_without_an_operator_that_may_share_or_shared_memory_a_run_is_refused() -> None:
    topology = tr.Topology("by_load")
    numbers = topology.source("numbers", tr.from_iterable(range(5)))
    numbers.map("work", same, tasks=4, grouping=tr.pull()).sink("out", tr.to_list(), tasks=1)
    with pytest.raises(tr.OptionError) as refusal:
        topology.run(workers=2, tail=NODE)
    assert str(refusal.value) == (
        "no operator's tasks may draw from one queue: shared_queues='node': work: pull chooses by load, and who is to "
        "hear how long a tuple took may be elsewhere; out: it has one task: could one of them be grouped by shuffle(), "
        "or should this be left out?"
    )
    with pytest.raises(tr.OptionError, match="a node's queue is in shared memory: shared_queues='node' ring=False: "):
        topology.run(workers=2, tail=NODE, ring=False)


def test_a_worker_alone_shares_among_its_tasks() -> None:
    sink = tr.to_list()
    topology = tr.Topology("alone")
    numbers = topology.source("numbers", tr.from_iterable(range(500)), tasks=1)
    numbers.map("work", same, tasks=3).sink("out", sink, tasks=1)
    with running(topology, workers=1, tail=NODE) as run:
        finish(run)
    assert_same_rows(sink.values, range(500))
