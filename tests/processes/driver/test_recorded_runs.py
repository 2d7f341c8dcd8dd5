"""Recorded runs: every tree is found again, a kill tears no hole that is not said, and a replay meets the run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner

import tailrace as tr
from kit.runs import finish, kill, received, running, same, stop
from tailrace.cli import main
from tailrace.metrics.recording import SUFFIX, read_recorded
from tailrace.policy.hashing import stable_hash
from tailrace.sim.traces.playback import Playback
from tailrace.sim.traces.run_trace import RunTrace, read_trace
from tailrace.testing.processes import wait_until

UNIT_S = 0.00025


def parts(number: int) -> list[int]:
    return [10 * number + part for part in range(number % 4)]


def is_even(number: int) -> bool:
    return number % 2 == 0


def discard(number: int) -> None:
    pass


def story(trace: RunTrace, row: int) -> tuple[str, int, list[object]]:
    """A tuple and what it became, as (operator, key, children)."""
    children = sorted((story(trace, child) for child in trace.children[row]), key=repr)
    return trace.shape.operators[trace.operators[row]].name, trace.keys[row], children


def told(number: int) -> list[tuple[str, int, list[object]]]:
    """What the topology below must make of a root."""

    def even(part: int) -> tuple[str, int, list[object]]:
        copies: list[object] = [("all", stable_hash(part), [])] * 2
        return ("even", 0, copies if is_even(part) else [])  # it is fused: nobody chooses a task for it

    split = ("split", stable_hash(number), sorted((even(part) for part in parts(number)), key=repr))
    return [("second", stable_hash(number % 5), []), split]


def test_every_tree_is_found_again(tmp_path: Path) -> None:
    """Through fused operators, fan-out, two branches, a key and a broadcast."""
    topology = tr.Topology("trees")
    numbers = topology.source("numbers", tr.from_iterable(range(300)), tasks=2)
    evens = numbers.flat_map("split", parts, tasks=3).filter("even", is_even, tasks=3, grouping=tr.local())
    evens.sink("all", tr.to_call(discard), tasks=2, grouping=tr.broadcast())
    numbers.sink("second", tr.to_call(discard), tasks=2, grouping=tr.fields(lambda number: number % 5))
    finish(topology.run(workers=2, record=tmp_path))
    trace = read_trace(tmp_path)
    assert not trace.notes
    found = [sorted((story(trace, row) for row in family), key=repr) for family in trace.roots]
    assert sorted(found, key=repr) == sorted(map(told, range(300)), key=repr)
    for row, children in enumerate(trace.children):
        assert all(trace.begun_ns[child] >= trace.begun_ns[row] for child in children)
    assert all(done >= due for done, due in zip(trace.complete_ns, trace.due_ns, strict=True))


async def wait(number: int) -> int:
    await asyncio.sleep((1 + number % 8) * UNIT_S * 4)
    return number


def nap(numbers: list[int]) -> list[int]:
    time.sleep(4 * UNIT_S)
    return numbers


def several_at_once() -> tr.Topology:
    """Coroutines, and a model that takes batches."""
    topology = tr.Topology("several-at-once")
    numbers = topology.source("numbers", tr.at_rate(range(300), 600)).map("wait", wait, tasks=2, concurrency=4)
    numbers.map_batch("nap", nap, 8, 2.0, tasks=2, kind="blocking").sink("out", tr.to_call(discard))
    return topology


def test_a_killed_worker_leaves_what_it_had_written(tmp_path: Path) -> None:
    topology = tr.Topology("kill")
    numbers = topology.source("numbers", tr.at_rate(range(10_000_000), 2000))
    numbers.map("one", same, tasks=2).sink("out", tr.to_call(discard), tasks=2)
    with running(topology, workers=2, record=tmp_path) as run:
        wait_until(lambda: received(run, "out") > 1500, 30, "a second of tuples")
        kill(run, 1)
        before = received(run, "out")
        wait_until(lambda: received(run, "out") > before + 1000, 30, "tuples after the kill")
        progress = stop(run)
    killed, *whole = sorted(
        (read_recorded(path) for path in tmp_path.glob(f"*{SUFFIX}")), key=lambda one: (one.ended, one.header["epoch"])
    )
    assert killed.header["worker"] == 1 and len(killed.tuples["task"]) > 100
    assert not killed.ended and all(one.ended for one in whole)
    trace = read_trace(tmp_path)
    name = f"worker 1, epoch {killed.header['epoch']}"
    assert trace.notes[0] == f"the recording of {name} ends without a word"
    lost = progress["completed"] - len(trace.roots)
    assert 0 <= lost < 1500, "more than was in flight, and recorded in the last moments"
    assert [trace.shape.operators[one].name for one in trace.operators].count("out") == len(trace.roots)


def by_content() -> tr.Topology:
    """One stage, 5 tasks, costs by content."""
    rng = Random(1)
    costs = [1 + item % 32 for item in range(256)]
    rng.shuffle(costs)
    items = rng.choices(range(256), [1 / (rank + 1) for rank in range(256)], k=400)
    mean_s = UNIT_S * sum(costs[item] for item in items) / len(items)

    def work(item: int) -> int:
        time.sleep(costs[item] * UNIT_S)
        return item

    topology = tr.Topology("by-content")
    source = topology.source("items", tr.at_rate(items, 5 * 0.8 / mean_s))
    source.map("work", work, tasks=5, kind="blocking").sink("out", tr.to_call(discard))
    return topology


def two_stages() -> tr.Topology:
    """Lines split into words, words to the task of their key."""
    rng = Random(2)
    lines = [tuple(rng.choices(range(100), k=rng.randint(1, 8))) for _ in range(150)]

    def count(word: int) -> int:
        time.sleep((1 + word * 37 % 16) * UNIT_S)
        return word

    topology = tr.Topology("two-stages")
    words = topology.source("lines", tr.at_rate(lines, 250)).flat_map("split", same, tasks=2)
    counts = words.map("count", count, tasks=4, kind="blocking", grouping=tr.fields(same))
    counts.sink("out", tr.to_call(discard), tasks=2)
    return topology


class Uneven:
    """Takes twice as long in task 1."""

    def open(self, context: tr.Context) -> None:
        self.factor = 2 if context.task == 1 else 1

    def process(self, item: int) -> int:
        time.sleep((1 + item) * self.factor * UNIT_S)
        return item


def slow_task() -> tr.Topology:
    topology = tr.Topology("slow-task")
    source = topology.source("items", tr.at_rate(Random(3).choices(range(16), k=300), 700))
    source.map("work", Uneven, tasks=4, kind="blocking").sink("out", tr.to_call(discard))
    return topology


@pytest.mark.parametrize(
    ("workload", "within"), [(by_content, 0.08), (two_stages, 0.08), (slow_task, 0.08), (several_at_once, 0.15)]
)
def test_the_choices_that_were_made_lead_to_the_latencies_that_were_seen(
    workload: Callable[[], tr.Topology], within: float, tmp_path: Path
) -> None:
    finish(workload().run(workers=2, record=tmp_path))
    playback = Playback(read_trace(tmp_path))
    seen, again = playback.recorded(), playback.play()
    for q in (0.5, 0.9, 0.99):
        assert again.percentile_ns(q) == pytest.approx(seen.percentile_ns(q), rel=within), f"p{q * 100:g}"


def test_the_commands(tmp_path: Path) -> None:
    file = tmp_path / "doubles.py"
    file.write_text(
        "import tailrace as tr\n"
        "topology = tr.Topology('numbers')\n"
        "numbers = topology.source('numbers', tr.from_iterable(range(50)))\n"
        "numbers.map('double', lambda n: 2 * n, tasks=2).sink('out', tr.to_call(lambda n: None))\n"
    )
    folder = str(tmp_path / "trace")
    command = ["run", str(file), "--host", "process", "--record", folder, "--json"]
    assert CliRunner().invoke(main, command).exit_code == 0
    played = CliRunner().invoke(main, ["sim", "--trace", folder, "--policy", "pull", "--policy", "fields"])
    assert played.exit_code == 0, played.output
    lines = played.output.splitlines()
    assert [line.split("  ")[0] for line in lines[: lines.index("")]] == [
        "policy",
        "recorded",
        "shuffle again",
        "pull",
        "fields",
    ]
    again = CliRunner().invoke(main, command)
    assert again.exit_code == 1 and "there is a recording already" in again.output
