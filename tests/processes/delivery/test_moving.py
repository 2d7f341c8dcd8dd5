"""Tasks that move to a thread of their own in the middle of their work, and sources that give records slowly."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tailrace as tr
from kit.runs import assert_same_rows, durable, finish, read_jsonl, received, running, stop
from tailrace.testing.processes import wait_until


def slow(number: int) -> tuple[int, str]:
    time.sleep(0.0025)
    return number, threading.current_thread().name


def itself(number: int) -> int:
    return number


def test_a_fused_sink_moves_with_its_task(tmp_path: Path) -> None:
    """It commits about as often as it is called, so that two threads at once would be noticed."""
    topology = tr.Topology("moving")
    numbers = topology.source("numbers", tr.from_iterable(range(600)))
    slowed = numbers.map("slow", slow, tasks=10, grouping=tr.fields(itself))
    slowed.sink("out", tr.to_jsonl(tmp_path / "out", roll_seconds=0.004), tasks=10, grouping=tr.local())
    topology.run(workers=2).awaitTermination(120)
    rows = read_jsonl(tmp_path / "out")
    assert_same_rows((number for number, _ in rows), range(600))
    threads = {thread for _, thread in rows}
    assert "shared" in threads and any(thread.startswith("slow/") for thread in threads), "some have moved"


def trickle(split: int, splits: int) -> Iterator[int]:
    for number in range(1_000_000):
        time.sleep(0.05)
        yield number


def test_a_generator_that_trickles_is_read_as_it_comes() -> None:
    out = tr.to_list()
    topology = tr.Topology("trickle")
    topology.source("numbers", tr.from_iterable(trickle)).map("m", itself).sink("out", out)
    with running(topology, workers=2) as run:
        wait_until(lambda: len(out.values) >= 5, 30, "the first rows")
        progress = stop(run)
    assert received(run, "numbers") < 200, "they did not wait for a full batch"
    assert progress["latencyMs"]["complete"]["p50"] < 1000
    assert out.values == list(range(len(out.values)))


def test_a_letter_that_cannot_be_pickled_on_the_way_to_a_sink_without_lineages() -> None:
    letters = tr.to_list()
    topology = tr.Topology("letters")
    made = topology.source("numbers", tr.from_iterable(range(40))).map("make", generators, on_error="dead_letter")
    made.sink("main", tr.to_call(itself), tasks=3)
    made.dead_letters.sink("letters", letters)
    topology.run(workers=3).awaitTermination(60)
    assert all(letter["operator"] == "make" for letter in letters.values)
    assert len(letters.values) in range(1, 11), "those that stay in one worker are not pickled"


def generators(number: int) -> object:
    return (x for x in ()) if number % 4 == 0 else number


class GatedWriter:
    """Commits once a file is there."""

    def __init__(self, writer: Any, gate: Path) -> None:
        self._writer = writer
        self._gate = gate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)

    def commit(self, entries: Any) -> None:
        while not self._gate.exists():
            time.sleep(0.01)
        self._writer.commit(entries)


class GatedSink:
    committing = True

    def __init__(self, sink: Any, gate: Path) -> None:
        self._sink = sink
        self._gate = gate

    def open(self, context: Any) -> GatedWriter:
        return GatedWriter(self._sink.open(context), self._gate)


def test_a_commit_that_takes_long_holds_nobody_up_not_even_its_own_sink(tmp_path: Path) -> None:
    topology = tr.Topology("gated")
    numbers = topology.source("numbers", tr.at_rate(range(3000), 1000))
    gate = tmp_path / "gate"
    numbers.sink("call", tr.to_call(itself))
    numbers.sink("out", GatedSink(tr.to_jsonl(tmp_path / "out", roll_seconds=0.2), gate), kind="auto")
    with running(topology, workers=1) as run:
        wait_until(lambda: _complete(run) > 2000, 30, "roots that are complete, while none is durable")
        assert durable(run) == 0
        gate.touch()
        finish(run)
    assert_same_rows(read_jsonl(tmp_path / "out"), range(3000))


def _complete(run: tr.Run) -> int:
    progress = run.lastProgress
    return 0 if progress is None else progress["latencyMs"]["complete"]["count"]


def never_returns(number: int) -> int:
    if number == 50:
        time.sleep(10_000)
    return number


def test_a_call_that_does_not_return_stops_neither_the_source_nor_the_sinks_of_its_worker() -> None:
    out = tr.to_list()
    topology = tr.Topology("never")
    numbers = topology.source("numbers", tr.at_rate(range(1_000_000), 200))
    numbers.map("never", never_returns, tasks=3).sink("out", out)
    with running(topology, workers=1, max_pending=100_000) as run:
        wait_until(lambda: len(out.values) > 400, 60, "rows of the tasks beside it")
        wait_until(lambda: _busy(run, "never") > 0.9, 30, "the stuck task to be shown as busy")


def _busy(run: tr.Run, operator: str) -> float:
    progress = run.lastProgress
    tasks = [] if progress is None else next(one for one in progress["operators"] if one["name"] == operator)["tasks"]
    return max((task["busyRatio"] for task in tasks), default=0.0)
