"""Hedging on real tuples: the tail gets shorter, every row comes out once, and it goes on and off while a run lasts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tailrace as tr
from kit.runs import (
    assert_same_rows,
    durable,
    finish,
    homes,
    kill,
    progress_now,
    read_jsonl,
    read_parquet,
    restarts,
    row,
    running,
    same,
)
from tailrace.testing.processes import wait_until

ROOTS = 600
PER_SECOND = 500
STALL_S = 1.0
STALLED = range(100, ROOTS, 251)


class Stalling:
    """Some tuples hold up their task for long, the first time that anybody runs them. Notes who was overtaken then."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def process(self, number: int) -> int:
        if number in STALLED and _first_time(self._folder / str(number)):
            time.sleep(STALL_S)
            if (self._folder / f"{number}.done").exists():
                (self._folder / f"{number}.overtaken").touch()
        return number


def _done(folder: str, number: int) -> int:
    if number in STALLED:
        Path(folder, f"{number}.done").touch()
    return number


def _first_time(mark: Path) -> bool:
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def test_hedging_shortens_the_tail(tmp_path: Path) -> None:
    """What stalls is done elsewhere before its stall is over."""
    topology = tr.Topology("stalls")
    numbers = topology.source("numbers", tr.at_rate(range(ROOTS), PER_SECOND))
    slow = numbers.map("slow", partial(Stalling, str(tmp_path)), tasks=6, kind="blocking")
    sink = tr.to_list()
    slow.map("done", partial(_done, str(tmp_path))).sink("out", sink)
    with running(topology, workers=2, tail=tr.Tail(hedge=tr.fixed_timeout(25))) as run:
        progress = finish(run)
    assert_same_rows(sink.values, range(ROOTS))
    assert len(list(tmp_path.glob("*.overtaken"))) == len(STALLED)
    assert progress["tail"]["replay"] == "fixed_timeout" and progress["replay"]["timeoutMs"] == 25
    replay = progress["replay"]
    assert replay["won"] >= len(STALLED), "what stalls, and what waits behind it, is done elsewhere"
    assert replay["won"] + replay["wasted"] == replay["hedges"]
    assert replay["cancelledTuples"] > 0, "what waited behind a stall was run although a hedge was done"


ROWS = 8_000


def _hedged_topology(sink: Any, source: Any) -> tr.Topology:
    topology = tr.Topology("hedged")
    numbers = topology.source("numbers", source, tasks=2)
    dealt = numbers.map("dealt", same, tasks=3)
    dealt.map("keyed", row, tasks=3, grouping=tr.fields(lambda number: number)).sink("out", sink, tasks=2)
    return topology


def _half_until(killed: Path, split: int, splits: int) -> Iterator[int]:
    """The run cannot end before the kill: the second half comes after it."""
    for number in range(split, ROWS, splits):
        while number > ROWS / 2 and not killed.exists():
            time.sleep(0.01)
        yield number


def test_every_row_once_although_roots_are_hedged_and_a_worker_dies(tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    source = tr.from_iterable(partial(_half_until, killed))
    topology = _hedged_topology(tr.to_jsonl(tmp_path / "out", roll_seconds=0.2), source)
    victim = homes(topology, 2, "out")[0]
    with running(topology, workers=2, max_pending=1000, tail=tr.Tail(hedge=tr.fixed_timeout(2))) as run:
        wait_until(lambda: durable(run) > ROWS / 10, 30, "rows at the sink")
        kill(run, victim)
        killed.touch()
        progress = finish(run)
    assert_same_rows((found["n"] for found in read_jsonl(tmp_path / "out")), range(ROWS))
    assert restarts(progress)[victim] == 1 and progress["recoveries"] >= 1
    assert progress["replay"]["hedges"] > 100 and progress["duplicatesDropped"] > 0


def test_hedging_goes_on_and_off_while_a_run_lasts() -> None:
    topology = tr.Topology("switched")
    sink = tr.to_list()
    numbers = topology.source("numbers", tr.at_rate(range(10_000_000), 600))
    numbers.map("slow", _a_while, tasks=4, kind="blocking").sink("out", sink)

    def hedges() -> int:
        return int(progress_now(run)["replay"]["hedges"])

    with running(topology, workers=2) as run:
        assert run.tail() == tr.Tail()
        wait_until(lambda: len(sink.values) > 100, 30, "rows")
        assert hedges() == 0
        assert run.tail(hedge=tr.fixed_timeout(1)) == tr.Tail(hedge=tr.fixed_timeout(1)) == run.tail()
        wait_until(lambda: hedges() > 20, 30, "hedges")
        kill(run, homes(topology, 2, "numbers")[0])
        known = hedges()
        wait_until(lambda: hedges() > known + 20, 30, "hedges of a source that was started after the switch")
        run.tail(hedge=None)
        time.sleep(0.5)  # beats bring what was counted before
        known, rows = hedges(), len(sink.values)
        wait_until(lambda: len(sink.values) > rows + 100, 30, "more rows")
        assert hedges() == known
        with pytest.raises(tr.OptionError, match=r"unknown technique: hedging=…: did you mean hedge=…\?"):
            run.tail(hedging=True)
        run.stop(timeout=30)
    assert_same_rows(sink.values, range(len(sink.values)))
    assert run.lastProgress is not None and run.lastProgress["tail"]["replay"] is None
    assert run.tail() == tr.Tail() == run.tail(hedge=None)
    with pytest.raises(tr.TailraceError, match="a run that has ended has no techniques to switch: run=switched"):
        run.tail(hedge=tr.fixed_timeout(1))


def test_hedges_that_are_under_way_when_replay_goes_off_are_cancelled_and_counted_all_the_same(tmp_path: Path) -> None:
    """All roots are late at once, and each hedge waits behind hundreds of others: calls would nearly double."""
    roots, calls = 600, tmp_path / "calls"
    topology = tr.Topology("switched-off")
    sink = tr.to_list()
    numbers = topology.source("numbers", tr.from_iterable(range(roots)))
    numbers.map("slow", partial(_noted, str(calls)), tasks=4, kind="blocking").sink("out", sink)
    with running(topology, workers=2, tail=tr.Tail(hedge=tr.fixed_timeout(100))) as run:
        wait_until(lambda: progress_now(run)["replay"]["hedges"] > roots // 2, 30, "hedges")
        run.tail(hedge=None)
        assert run.awaitTermination(60)
    assert_same_rows(sink.values, range(roots))
    assert run.lastProgress is not None
    replay = run.lastProgress["replay"]
    assert replay["hedges"] == replay["won"] + replay["wasted"]
    assert replay["cancelledTuples"] > 0.8 * replay["hedges"] and calls.stat().st_size < 1.2 * roots


def _noted(calls: str, number: int) -> int:
    with Path(calls).open("a") as file:
        file.write("x")
    time.sleep(0.01)
    return number


def _a_while(number: int) -> int:
    time.sleep(0.003)
    return number


MILLION = 1_000_000


@pytest.mark.soak
@pytest.mark.timeout(1_200)
def test_a_million_with_hedging_and_kills(tmp_path: Path) -> None:
    topology = _hedged_topology(
        tr.to_parquet(tmp_path, schema="n long", roll_seconds=0.5), tr.from_iterable(range(MILLION))
    )
    with running(topology, workers=3, max_pending=20_000, tail=tr.Tail(hedge=tr.adaptive_timeout(gate=None))) as run:
        for victim, part in enumerate((0.2, 0.5, 0.8)):
            least = part * MILLION
            wait_until(lambda least=least: durable(run) >= least, 400, f"{part:.0%} to be durable")
            kill(run, victim)
        progress = finish(run, 400)
    assert progress["recoveries"] >= 3 and progress["replay"]["hedges"] > 0
    assert sorted(read_parquet(tmp_path)) == list(range(MILLION))
