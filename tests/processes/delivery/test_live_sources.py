"""A source without stable positions: at most once across its own crash, and never a new row taken for an old one."""

from __future__ import annotations

import itertools
import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

import tailrace as tr
from kit.runs import await_recovery, homes, kill, received, running, same, stop
from tailrace.connector import Reader, Record, SplitStart
from tailrace.testing.processes import wait_until


class TickReader:
    """Ticks of the clock: what was missed is gone."""

    done = False

    def __init__(self, start: SplitStart) -> None:
        self._offsets = itertools.count(start.offset)
        self.ready_ns = 0

    def poll(self, limit: int, now_ns: int) -> Sequence[Record]:
        if now_ns < self.ready_ns:
            return []
        self.ready_ns = now_ns + 1_000_000
        return [Record(next(self._offsets), 0, time.time_ns())]

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class Ticks:
    replayable: bool = False

    def splits(self, tasks: int) -> Sequence[str]:
        return [str(index) for index in range(tasks)]

    def open(self, start: SplitStart) -> Reader:
        return TickReader(start)


def test_a_source_that_cannot_be_replayed(caplog: pytest.LogCaptureFixture) -> None:
    out = tr.to_list()
    topology = tr.Topology("ticks")
    topology.source("ticks", Ticks()).map("m", same, tasks=2).sink("out", out, tasks=2)
    (worker,) = homes(topology, 3, "ticks")
    with caplog.at_level(logging.WARNING), running(topology, workers=3, max_pending=200) as run:
        assert "source ticks cannot be replayed" in caplog.text
        wait_until(lambda: received(run, "out") > 100, 30, "rows at the sink")
        kill(run, worker)
        killed_ns = time.time_ns()
        await_recovery(run)
        least = len(out.values) + 200
        wait_until(lambda: len(out.values) >= least, 30, "rows after the recovery")
        stop(run)
    assert max(Counter(out.values).values()) == 1
    after = sum(tick > killed_ns for tick in out.values)
    assert after >= 200, "new rows were taken for copies of the lost ones"


def quiet_topic(split: int, splits: int) -> Iterator[int]:
    yield from range(5)
    while True:
        time.sleep(60)  # nothing comes: a quiet topic


def test_a_generator_that_waits_holds_up_neither_its_worker_nor_the_end(capfd: pytest.CaptureFixture[str]) -> None:
    live, beside = tr.to_list(), tr.to_list()
    topology = tr.Topology("live")
    topology.source("live", tr.from_iterable(quiet_topic)).sink("a", live)
    topology.source("ticks", tr.at_rate(range(1_000_000), 200)).map("same", same).sink("b", beside)
    with running(topology, workers=1) as run:
        wait_until(lambda: len(live.values) == 5, 30, "what the generator gave")
        least = len(beside.values) + 50
        wait_until(lambda: len(beside.values) >= least, 30, "rows of the task beside it")
        run.stop(timeout=30)
        assert run.exception() is None
    assert live.values == list(range(5))
    assert "live/0: an iterator still waits for its next record, and is left alone" in capfd.readouterr().out


class WaitingReader:
    """Its poll waits for a record."""

    done = False
    ready_ns = 0

    def __init__(self, start: SplitStart) -> None:
        self._next = start.offset

    def poll(self, limit: int, now_ns: int) -> Sequence[Record]:
        time.sleep(0.5)
        self._next += 1
        return [Record(self._next - 1, 0, self._next - 1)]

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class Waiting:
    replayable: bool = True

    def splits(self, tasks: int) -> Sequence[str]:
        return ["only"]

    def open(self, start: SplitStart) -> Reader:
        return WaitingReader(start)


def test_a_source_that_is_declared_blocking_has_a_thread_of_its_own() -> None:
    slow, beside = tr.to_list(), tr.to_list()
    topology = tr.Topology("waiting")
    topology.source("waiting", Waiting(), kind="blocking").sink("a", slow)
    topology.source("ticks", tr.at_rate(range(1_000_000), 200)).sink("b", beside)
    with running(topology, workers=1) as run:
        wait_until(lambda: len(slow.values) >= 2, 30, "two records")
        stop(run)
    assert slow.values[:2] == [0, 1] and len(beside.values) > 20
