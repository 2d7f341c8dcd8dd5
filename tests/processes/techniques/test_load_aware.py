"""Load-aware groupings on real tuples in real workers: each row once, whatever dies, and a shorter tail."""

from __future__ import annotations

import time
from random import Random
from typing import Any

import pytest

import tailrace as tr
from kit.runs import (
    assert_prefixes,
    assert_same_rows,
    await_recovery,
    finish,
    homes,
    kill,
    progress_now,
    received,
    row,
    running,
    same,
    stop,
)
from tailrace.policy import Grouping, flink_scan, storm_load_aware
from tailrace.testing.processes import wait_until

ROWS = 20_000
ENDLESS = range(10_000_000)
VICTIM = 0


def key(number: int) -> int:
    return number % 50


GROUPINGS: dict[str, Grouping] = {
    "osg": tr.osg(key, window=64, tolerance=1.0),
    "least_work": tr.least_work(key),
    "pull": tr.pull(),
    "power_of_two": tr.power_of_two(),
    "partial_key": tr.partial_key(key),
}
BASELINES: dict[str, Grouping] = {"storm_load_aware": storm_load_aware(), "flink_scan": flink_scan()}
ALL = GROUPINGS | BASELINES


@pytest.mark.parametrize("name", [*GROUPINGS, *(pytest.param(name, marks=pytest.mark.soak) for name in BASELINES)])
def test_every_tuple_once(name: str) -> None:
    """Two senders in two workers, two hops by load, the second from a task with another fused to it."""
    sink = tr.to_list()
    topology = tr.Topology("load")
    numbers = topology.source("numbers", tr.from_iterable(range(ROWS)), tasks=2)
    dealt = numbers.map("dealt", same, tasks=3, grouping=ALL[name]).map("near", same, grouping=tr.local())
    dealt.map("row", row, tasks=2, grouping=ALL[name]).sink("out", sink)
    with running(topology, workers=2) as run:
        progress = finish(run)
    assert_same_rows((found["n"] for found in sink.values), range(ROWS))
    operators = {operator["name"]: operator for operator in progress["operators"]}
    for operator in (operators["dealt"], operators["row"]):
        assert all(task["received"] for task in operator["tasks"]), "some task was never chosen"
    feedback = [worker["feedback"] for worker in progress["workers"]]
    assert all(found["messages"] > 0 and found["bytes"] > 0 for found in feedback)
    assert [(edge["from"], edge["to"], edge["grouping"]) for edge in progress["edges"]] == [
        ("numbers", "dealt", name),
        ("near", "row", name),
    ]
    estimates = [edge["estimateMs"] for edge in progress["edges"]]
    assert all(estimates) if name == "least_work" else estimates == [None, None] or name == "osg"


async def wait_a_little(number: int) -> int:
    import asyncio

    await asyncio.sleep(0.001)
    return number


def add_one(numbers: list[int]) -> list[int]:
    return [number + 1 for number in numbers]


def test_coroutines_and_batches_report_too() -> None:
    sink = tr.to_list()
    topology = tr.Topology("later")
    numbers = topology.source("numbers", tr.from_iterable(range(2000)))
    awaited = numbers.map("awaited", wait_a_little, tasks=2, grouping=tr.least_work(key))
    awaited.map_batch("batched", add_one, tasks=2, grouping=tr.pull()).map("row", row).sink("out", sink)
    with running(topology, workers=2) as run:
        finish(run)
    assert_same_rows((found["n"] for found in sink.values), range(1, 2001))


def a_little_work(number: int) -> int:
    time.sleep(0.0005)
    return number


@pytest.mark.parametrize("name", ["pull", "osg"])
def test_a_worker_dies(name: str) -> None:
    """It takes credits, sketches and reports with it, for which tuples wait, and tuples in line."""
    sink = tr.to_list()
    topology = tr.Topology("kills")
    numbers = topology.source("numbers", tr.at_rate(ENDLESS, 3000), tasks=2)
    worked = numbers.map("work", a_little_work, tasks=3, grouping=GROUPINGS[name])
    worked.map("row", row, tasks=2, grouping=GROUPINGS[name]).sink("out", sink)
    assert all(VICTIM in homes(topology, 3, operator) for operator in ("numbers", "work", "row"))
    with running(topology, workers=3, max_pending=2000) as run:
        wait_until(lambda: received(run, "out") >= 500, 30, "rows at the sink")
        kill(run, VICTIM)
        await_recovery(run)
        least = received(run, "out") + 500
        wait_until(lambda: received(run, "out") >= least, 30, "rows at the sink")
        stop(run)
    assert_prefixes((found["n"] for found in sink.values), 2, 1000)


def test_held_tuples_hold_back_their_source() -> None:
    """Nobody works, so nobody asks for tuples: the source reads a line full and little more."""
    topology = tr.Topology("held")
    numbers = topology.source("numbers", tr.from_iterable(ENDLESS))
    numbers.map("work", _long, tasks=2, kind="blocking", grouping=tr.pull()).sink("out", tr.to_call(same))
    with running(topology, workers=2, max_pending=100_000) as run:
        wait_until(lambda: _held(run) > 0, 10, "tuples in line")
        time.sleep(1.0)
        assert received(run, "numbers") < 1_000
        assert 100 < _held(run) < 1_000


def _long(number: int) -> int:
    time.sleep(0.3)
    return number


def _held(run: tr.Run) -> int:
    progress = progress_now(run)
    return int(sum(task["held"] for operator in progress["operators"] for task in operator["tasks"]))


def a_millisecond(number: int) -> int:
    time.sleep(0.001)
    return number


def test_who_allows_feedback_more_of_a_core_is_told_more() -> None:
    told = []
    for share in (0.001, 1.0):
        topology = tr.Topology("share")
        numbers = topology.source("numbers", tr.from_iterable(range(800)))
        work = numbers.map("work", a_millisecond, tasks=2, kind="blocking", grouping=tr.power_of_two())
        work.sink("out", tr.to_call(same))
        with running(topology, workers=2, feedback_share=share) as run:
            told.append(sum(worker["feedback"]["messages"] for worker in finish(run)["workers"]))
    assert 0 < 2 * told[0] < told[1]


def by_cost(pair: tuple[int, int]) -> int:
    time.sleep(pair[1] / 1000)
    return pair[0]


def _p99_ms(grouping: Grouping, pairs: list[tuple[int, int]], per_second: float) -> Any:
    topology = tr.Topology("tail")
    source = topology.source("pairs", tr.at_rate(pairs, per_second))
    source.map("work", by_cost, tasks=4, kind="blocking", grouping=grouping).sink("out", tr.to_call(same))
    with running(topology, workers=2) as run:
        return finish(run)["latencyMs"]["complete"]["p99"]


def test_pull_has_a_shorter_tail_than_shuffle() -> None:
    """One tuple in 20 takes 60 ms and the others 1: behind one of those, round robin queues every fourth tuple.

    By the simulator pull's p99 is 61 ms on this stream, and shuffle's 152.
    """
    rng = Random(4)
    pairs = [(number, 60 if rng.random() < 0.05 else 1) for number in range(600)]
    per_second = 0.6 * 4 * 1000 * len(pairs) / sum(cost for _, cost in pairs)
    assert _p99_ms(tr.pull(), pairs, per_second) < _p99_ms(tr.shuffle(), pairs, per_second)
