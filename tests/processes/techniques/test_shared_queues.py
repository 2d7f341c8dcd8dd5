"""Tasks that draw from one queue, on real tuples: each once, whoever runs it and whatever dies, and shorter waits."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

import tailrace as tr
from kit.runs import (
    add_one,
    assert_same_rows,
    finish,
    homes,
    key,
    kill,
    operator_now,
    received,
    row,
    running,
    same,
    wait_a_little,
)
from tailrace.metrics.recording import SUFFIX, read_recorded
from tailrace.sim.traces.run_trace import read_trace
from tailrace.testing.processes import wait_until

ROWS = 6_000
WORKERS = 2
SHARED = tr.Tail(shared_queues="worker")


def a_little(number: int) -> int:
    time.sleep(0.0002)
    return number


def three(number: int) -> list[int]:
    return [3 * number + part for part in range(3)]


@pytest.mark.parametrize("ring", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_every_tuple_once_though_a_worker_dies(ring: bool) -> None:
    """Bundles of several tuples, over links and by hand; tasks with threads of their own, and without."""
    sink = tr.to_list()
    topology = tr.Topology("drawn")
    numbers = topology.source("numbers", tr.from_iterable(range(ROWS // 3)), tasks=2)
    parts = numbers.flat_map("parts", three, tasks=4)
    worked = parts.map("work", a_little, tasks=6, kind="blocking").map("near", same, tasks=6, grouping=tr.local())
    worked.map("row", row, tasks=4).sink("out", sink)
    with running(topology, workers=WORKERS, tail=SHARED, max_pending=1_500, ring=ring) as run:
        wait_until(lambda: received(run, "out") >= ROWS // 10, 60, "rows at the sink")
        kill(run, 0)
        progress = finish(run)
    assert_same_rows((found["n"] for found in sink.values), range(ROWS // 3 * 3))
    assert progress["reemitted"] > 0, "nothing was under way when the worker died"


def test_coroutines_batches_and_groupings_by_load_and_a_recording_of_them(tmp_path: Path) -> None:
    """Halves of the task that was chosen hear of a tuple that another has run, or pull would stand still."""
    sink = tr.to_list()
    topology = tr.Topology("later")
    numbers = topology.source("numbers", tr.from_iterable(range(3_000)), tasks=2)
    awaited = numbers.map("awaited", wait_a_little, tasks=4, grouping=tr.least_work(key), concurrency=8)
    batched = awaited.map_batch("batched", add_one, max_size=4, max_wait_ms=1, tasks=4, grouping=tr.pull())
    batched.map("pulled", a_little, tasks=4, kind="blocking", grouping=tr.pull()).map("row", row).sink("out", sink)
    with running(topology, workers=WORKERS, tail=SHARED, record=tmp_path / "trace") as run:
        finish(run)
    assert_same_rows((found["n"] for found in sink.values), range(1, 3_001))
    assert len(read_trace(tmp_path / "trace").due_ns) == 3_000
    for file in (tmp_path / "trace").glob(f"*{SUFFIX}"):
        tuples = read_recorded(file).tuples
        assert all(came <= begun for came, begun in zip(tuples["received_ns"], tuples["begun_ns"], strict=True))


def with_thread(number: int) -> tuple[int, str]:
    time.sleep(0.003)
    return number, threading.current_thread().name


def test_tasks_whose_calls_prove_long_leave_the_shared_thread_together() -> None:
    sink = tr.to_list()
    topology = tr.Topology("moving")
    topology.source("numbers", tr.from_iterable(range(400))).map("slow", with_thread, tasks=6).sink("out", sink)
    with running(topology, workers=WORKERS, tail=SHARED) as run:
        finish(run)
    assert_same_rows((number for number, _ in sink.values), range(400))
    threads = [thread for _, thread in sorted(sink.values)]
    assert "shared" in threads
    assert set(threads[200:]) == {f"slow/{task}" for task in range(6)}


def _one_is_long(number: int) -> int:
    time.sleep(1.0 if number == 0 else 0.0)
    return number


def test_nobody_waits_behind_a_long_call() -> None:
    """Wherever the sender is: every other tuple is run before the long one ends, in the worker of its task too."""
    sink = tr.to_list()
    topology = tr.Topology("long")
    numbers = topology.source("numbers", tr.at_rate(range(60), 400), tasks=2)
    numbers.map("work", _one_is_long, tasks=4, kind="blocking").sink("out", sink, tasks=1)
    assert sorted(homes(topology, WORKERS, "work")) == [0, 0, 1, 1]
    with running(topology, workers=WORKERS, tail=SHARED) as run:
        finish(run)
    assert_same_rows(sink.values, range(60))
    assert sink.values[-1] == 0


def _very_long_later(number: int) -> int:
    if number >= 2000:
        time.sleep(0.4)
    return number


def test_a_full_queue_holds_back_its_senders() -> None:
    """How full it gets before a round ends depends on how fast calls were; the bound does not."""
    topology = tr.Topology("full")
    numbers = topology.source("numbers", tr.from_iterable(range(100_000_000)))
    numbers.map("work", _very_long_later, tasks=4, kind="blocking").sink("out", tr.to_call(same))
    with running(topology, workers=WORKERS, tail=SHARED, max_pending=1_000_000) as run:
        wait_until(lambda: _queues(run) and min(_queues(run)) > 0, 20, "tuples in both queues")
        wait_until(lambda: received(run, "numbers") > 2000 and _reads_in_a_while(run) < 50, 20, "the source to wait")
        assert max(_queues(run)) < 2 * 256 + 256, "the bound is the sum of what tasks may have each, and a frame"
        assert received(run, "work") < 4000


def _reads_in_a_while(run: tr.Run) -> int:
    before = received(run, "numbers")
    time.sleep(0.3)
    return received(run, "numbers") - before


def _queues(run: tr.Run) -> list[int]:
    operator = operator_now(run, "work")
    assert operator["queued"] == sum(queue["queued"] for queue in operator["sharedQueues"])
    return [queue["queued"] for queue in operator["sharedQueues"]]


def _refused(topology: tr.Topology, **options: Any) -> str:
    with pytest.raises(tr.OptionError) as refusal:
        topology.run(workers=WORKERS, **options)
    return str(refusal.value)


def test_a_run_without_an_operator_that_may_share_is_refused() -> None:
    topology = tr.Topology("keys")
    numbers = topology.source("numbers", tr.from_iterable(range(5)))
    numbers.map("count", same, tasks=4, grouping=tr.fields(key)).sink("out", tr.to_list(), tasks=2)
    assert _refused(topology, tail=SHARED) == (
        "no operator's tasks may draw from one queue: shared_queues='worker': count: fields sends equal keys to one "
        "task; out: it commits, and must get a re-emitted tuple in the task that knows it: could one of them be "
        "grouped by shuffle(), or should this be left out?"
    )
