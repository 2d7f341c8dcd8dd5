"""Any worker may be killed or suspended at any moment: every row comes out, and none twice."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tailrace as tr
from kit.runs import (
    assert_prefixes,
    await_recovery,
    finish,
    homes,
    kill,
    read_jsonl,
    read_parquet,
    received,
    recoveries,
    restarts,
    row,
    running,
    same,
    stop,
)
from tailrace.testing.processes import is_alive, is_stopped, wait_until

ENDLESS = range(10_000_000)
PER_SECOND = 3000
WORKERS = 3
MAX_PENDING = 2000  # little, so that a source that was replaced has soon caught up, and a stop is short

Read = Callable[[], list[int]]


def _jsonl(folder: Path, roll_seconds: float) -> tuple[Any, Read]:
    return tr.to_jsonl(folder, roll_seconds=roll_seconds), lambda: [found["n"] for found in read_jsonl(folder)]


def _parquet(folder: Path, roll_seconds: float) -> tuple[Any, Read]:
    return tr.to_parquet(folder, roll_seconds=roll_seconds), lambda: read_parquet(folder)


def _list(folder: Path, roll_seconds: float) -> tuple[Any, Read]:
    sink = tr.to_list()
    return sink, lambda: [found["n"] for found in sink.values]


SINKS = {"jsonl": _jsonl, "parquet": _parquet, "list": _list}


def _topology(sink: Any) -> tr.Topology:
    topology = tr.Topology("kills")
    numbers = topology.source("numbers", tr.at_rate(ENDLESS, PER_SECOND), tasks=2)
    keyed = numbers.map("dealt", same, tasks=3).map("keyed", row, tasks=3, grouping=tr.fields(lambda number: number))
    keyed.sink("out", sink, tasks=2)
    return topology


def _kill_and_recover(run: tr.Run, worker: int) -> None:
    before = recoveries(run)
    kill(run, worker)
    await_recovery(run, before + 1)


@pytest.mark.parametrize("kind", SINKS)
def test_every_worker_in_turn(kind: str, tmp_path: Path) -> None:
    sink, read = SINKS[kind](tmp_path, 0.2)
    with running(_topology(sink), workers=WORKERS, max_pending=MAX_PENDING) as run:
        for worker in range(WORKERS):
            least = received(run, "out") + 300
            wait_until(lambda least=least: received(run, "out") >= least, 30, "rows at the sink")
            _kill_and_recover(run, worker)
        progress = stop(run)
    assert_prefixes(read(), 2, 500)
    assert restarts(progress) == [1, 1, 1]
    assert progress["recoveries"] >= 3


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_sink_with_rows_that_are_not_flushed(kind: str, tmp_path: Path) -> None:
    sink, read = SINKS[kind](tmp_path, 600.0)
    topology = _topology(sink)
    victim = homes(topology, WORKERS, "out")[0]
    with running(topology, workers=WORKERS) as run:
        wait_until(lambda: received(run, "out") > 1500, 30, "rows at the sink")
        assert read() == [], "rows are flushed already, so this test shows nothing"
        _kill_and_recover(run, victim)
        progress = stop(run)
    assert_prefixes(read(), 2, 500)
    assert progress["reemitted"] > 500, "what the dead sink held had to be emitted again"


def test_the_source(tmp_path: Path) -> None:
    sink, read = _jsonl(tmp_path, 0.2)
    topology = tr.Topology("one-source")
    topology.source("numbers", tr.at_rate(ENDLESS, PER_SECOND)).map("row", row, tasks=2).sink("out", sink)
    victim = homes(topology, WORKERS, "numbers")[0]
    assert victim not in homes(topology, WORKERS, "row")
    with running(topology, workers=WORKERS, max_pending=MAX_PENDING) as run:
        for _ in range(3):
            least = received(run, "out") + 500
            wait_until(lambda least=least: received(run, "out") >= least, 30, "rows at the sink")
            _kill_and_recover(run, victim)
        progress = stop(run)
    assert_prefixes(read(), 1, 1500)
    assert restarts(progress)[victim] == 3


LONG_CALLS = 60
CALLED = 16
"""Records that are under way at the kill: each task has one."""


def test_long_calls_are_made_twice_at_most_after_one_kill(tmp_path: Path) -> None:
    """Tasks in long calls find the links to the dead worker broken one after another, when it has been replaced."""
    log, recovered = tmp_path / "calls", tmp_path / "recovered"

    def call(number: int) -> int:
        with log.open("a") as file:
            file.write(f"{number}\n")
        while number >= CALLED and not recovered.exists():  # those before it have each task make its links
            time.sleep(0.02)
        time.sleep(0.1 + number % CALLED * 0.05)
        return number

    rows = tr.to_list()
    topology = tr.Topology("long-calls")
    numbers = topology.source("numbers", tr.from_iterable(range(LONG_CALLS)))
    numbers.map("call", call, tasks=CALLED, kind="blocking").sink("out", rows)
    with running(topology, workers=WORKERS, max_pending=CALLED, heartbeat_timeout_s=60) as run:
        wait_until(lambda: log.exists() and len(_calls(log)) == 2 * CALLED, 60, "a long call in each task")
        kill(run, homes(topology, WORKERS, "numbers")[0])
        await_recovery(run)
        recovered.touch()
        progress = finish(run)
    calls = Counter(_calls(log))
    assert sorted(rows.values) == sorted(calls) == list(range(LONG_CALLS))
    assert progress["recoveries"] == 1
    assert calls.total() <= LONG_CALLS + CALLED
    assert max(calls.values()) <= 2


def _calls(log: Path) -> list[int]:
    """The records that were called, as often as they were; without a line that is still being written."""
    return [int(line) for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]


def test_two_at_once(tmp_path: Path) -> None:
    sink, read = _parquet(tmp_path, 0.2)
    with running(_topology(sink), workers=WORKERS, max_pending=MAX_PENDING) as run:
        wait_until(lambda: received(run, "out") > 500, 30, "rows at the sink")
        for worker in (0, 2):
            os.kill(run.workerPids()[worker], signal.SIGKILL)
        await_recovery(run)
        progress = stop(run)
    assert_prefixes(read(), 2, 500)
    assert restarts(progress) == [1, 0, 1]


def test_a_worker_that_dies_while_it_comes_back(tmp_path: Path) -> None:
    sink, read = _jsonl(tmp_path, 0.2)
    with running(_topology(sink), workers=WORKERS, max_pending=MAX_PENDING) as run:
        wait_until(lambda: received(run, "out") > 500, 30, "rows at the sink")
        for pause_s in (0.0, 0.1, 0.2, 0.3):
            kill(run, 1)
            time.sleep(pause_s)
        await_recovery(run)
        progress = stop(run)
    assert_prefixes(read(), 2, 500)
    assert restarts(progress) == [0, 4, 0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "heartbeat_timeout_s", "stands_still_s"),
    [("jsonl", 3.0, 10.0), pytest.param("list", 1.0, 4.0, marks=pytest.mark.soak)],
)
def test_a_zombie(kind: str, heartbeat_timeout_s: float, stands_still_s: float, tmp_path: Path) -> None:
    """A worker stands still until it has been replaced, then wakes up with rows that it never committed."""
    sink, read = SINKS[kind](tmp_path, 0.5)
    topology = tr.Topology("zombie")
    numbers = topology.source("numbers", tr.at_rate(ENDLESS, PER_SECOND))
    numbers.map("row", row).sink("out", sink)
    victim = homes(topology, WORKERS, "out")[0]
    with running(topology, workers=WORKERS, heartbeat_timeout_s=heartbeat_timeout_s) as run:
        wait_until(lambda: received(run, "out") > 1000, 30, "rows at the sink")
        zombie = run.workerPids()[victim]
        os.kill(zombie, signal.SIGSTOP)
        stopped_at = time.monotonic()
        wait_until(lambda: is_stopped(zombie), 5, "the worker to stand still")
        await_recovery(run)
        time.sleep(max(0.0, stopped_at + stands_still_s - time.monotonic()))
        assert is_stopped(zombie), "it was not left to find out by itself"
        before = _files_of_the_first_epoch(tmp_path)
        os.kill(zombie, signal.SIGCONT)
        wait_until(lambda: not is_alive(zombie), 10, "the zombie to leave by itself")
        progress = stop(run)
    assert_prefixes(read(), 1, 3000)
    assert restarts(progress)[victim] >= 1, "a busy machine may cost it more heartbeats"
    assert _files_of_the_first_epoch(tmp_path) == before, "it has committed something after it was replaced"


def _files_of_the_first_epoch(folder: Path) -> set[str]:
    return {file.name for file in folder.glob(f"part-*-e{WORKERS}-*")}
