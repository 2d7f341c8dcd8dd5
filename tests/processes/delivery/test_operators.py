"""Every kind of operator and grouping gives in worker processes what plain Python gives."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tailrace as tr
from kit.runs import (
    Script,
    assert_prefixes,
    assert_same_rows,
    await_recovery,
    finish,
    homes,
    kill,
    read_jsonl,
    received,
    restarts,
    running,
    same,
    stop,
)
from tailrace.runtime.execution.task_host import TaskHost
from tailrace.testing.processes import wait_until


def _run(topology: tr.Topology, workers: int, **options: Any) -> dict[str, Any]:
    with running(topology, workers=workers, **options) as run:
        return finish(run)


# --- against a reference


def square(number: int) -> int:
    return number * number


def even(number: int) -> bool:
    return number % 2 == 0


def digits(number: int) -> Iterator[str]:
    yield from str(number)


def tag_with_key(number: int) -> tuple[int, int]:
    return number % 7, number


async def plus_one(number: int) -> int:
    await asyncio.sleep(0)
    return number + 1


def doubled(numbers: list[int]) -> list[int]:
    return [2 * number for number in numbers]


N = range(500)


def chain(numbers: tr.Stream, sink: Callable[[tr.Stream], None]) -> list[Any]:
    sink(numbers.map("square", square, tasks=3).filter("even", even, tasks=2).flat_map("digits", digits, tasks=2))
    return [digit for number in N if even(number * number) for digit in str(number * number)]


def local_chain(numbers: tr.Stream, sink: Callable[[tr.Stream], None]) -> list[Any]:
    sink(numbers.map("square", square, grouping=tr.local()).filter("even", even, grouping=tr.local()))
    return [number * number for number in N if even(number)]


def broadcast(numbers: tr.Stream, sink: Callable[[tr.Stream], None]) -> list[Any]:
    sink(numbers.map("all", square, tasks=3, grouping=tr.broadcast()))
    return [number * number for number in N for _ in range(3)]


def broadcast_of_many(numbers: tr.Stream, sink: Callable[[tr.Stream], None]) -> list[Any]:
    sink(numbers.flat_map("digits", digits).map("all", same, tasks=2, grouping=tr.broadcast()))
    return [digit for number in N for digit in str(number) for _ in range(2)]


def fan_out_and_union(numbers: tr.Stream, sink: Callable[[tr.Stream], None]) -> list[Any]:
    squares, evens = numbers.map("square", square, tasks=2), numbers.filter("even", even, tasks=2)
    sink(tr.union(squares, evens).map("together", same, tasks=2))
    return [number * number for number in N] + [number for number in N if even(number)]


def diamond(numbers: tr.Stream, sink: Callable[[tr.Stream], None]) -> list[Any]:
    """Two branches that give equal rows: neither may be taken for a duplicate of the other."""
    sink(tr.union(numbers.map("left", same, tasks=2), numbers.map("right", same, tasks=3)))
    return [*N, *N]


def keyed(numbers: tr.Stream, sink: Callable[[tr.Stream], None]) -> list[Any]:
    sink(numbers.map("tag", tag_with_key, tasks=2).map("keyed", same, tasks=3, grouping=tr.fields(0)))
    return [(number % 7, number) for number in N]


def all_kinds(numbers: tr.Stream, sink: Callable[[tr.Stream], None]) -> list[Any]:
    stream = numbers.map("async", plus_one, tasks=2).map_batch("batch", doubled, 8, 5, tasks=2)
    sink(stream.map("blocking", square, tasks=2, kind="blocking").map("cpu", same, kind="cpu"))
    return [(2 * (number + 1)) ** 2 for number in N]


def local_kinds(numbers: tr.Stream, sink: Callable[[tr.Stream], None]) -> list[Any]:
    """Operators that cannot be fused into the one before, although they live beside it."""
    stream = numbers.map("async", plus_one, grouping=tr.local()).map_batch("batch", doubled, 8, 5, grouping=tr.local())
    sink(stream.map("plain", square, grouping=tr.local()))
    return [(2 * (number + 1)) ** 2 for number in N]


TOPOLOGIES = [
    chain,
    local_chain,
    broadcast,
    broadcast_of_many,
    fan_out_and_union,
    diamond,
    keyed,
    all_kinds,
    local_kinds,
]


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("build", TOPOLOGIES)
def test_against_plain_python(build: Callable[..., list[Any]], workers: int) -> None:
    out = tr.to_list()
    topology = tr.Topology("reference")
    numbers = topology.source("numbers", tr.from_iterable(N), tasks=2)
    expected = build(numbers, lambda stream: stream.sink("out", out, tasks=2))
    progress = _run(topology, workers)
    assert_same_rows(out.values, expected)
    assert progress["durable"] == progress["completed"] == len(N)
    assert progress["pending"] == progress["recoveries"] == progress["duplicatesDropped"] == 0


def test_two_sinks_get_everything(tmp_path: Path) -> None:
    out, seen = tr.to_list(), tmp_path / "out"
    topology = tr.Topology("sinks")
    numbers = topology.source("numbers", tr.from_iterable(N), tasks=2)
    numbers.sink("list", out)
    numbers.map("row", tag_with_key).sink("files", tr.to_jsonl(seen), tasks=2)
    _run(topology, 3)
    assert_same_rows(out.values, N)
    assert_same_rows([number for _, number in read_jsonl(seen)], N)


def test_two_sinks_share_a_list() -> None:
    out = tr.to_list()
    topology = tr.Topology("sinks")
    numbers = topology.source("numbers", tr.from_iterable(N))
    numbers.sink("a", out)
    numbers.map("square", square).sink("b", out)
    progress = _run(topology, 3)
    assert_same_rows(out.values, [*N, *map(square, N)])
    assert restarts(progress) == [0, 0, 0], "one sink has fenced the other"


def where_am_i(value: tuple[int, int]) -> tuple[int, int]:
    return value[0], os.getpid()


def test_equal_keys_meet_in_one_task() -> None:
    out = tr.to_list()
    topology = tr.Topology("keys")
    tagged = topology.source("numbers", tr.from_iterable(N), tasks=2).map("tag", tag_with_key, tasks=3)
    tagged.map("keyed", where_am_i, tasks=3, grouping=tr.fields(0)).sink("out", out)
    _run(topology, 3)
    places = {key: {pid for other, pid in out.values if other == key} for key in range(7)}
    assert all(len(pids) == 1 for pids in places.values()), places
    assert len(set.union(*places.values())) > 1, "all keys are in one place, so this test shows nothing"


# --- overlapping


async def wait_50_ms(number: int) -> int:
    await asyncio.sleep(0.05)
    return number


def sleep_50_ms(number: int) -> int:
    time.sleep(0.05)
    return number


def test_async_calls_overlap() -> None:
    out = tr.to_list()
    topology = tr.Topology("async")
    topology.source("numbers", tr.from_iterable(range(100))).map("wait", wait_50_ms).sink("out", out)
    with running(topology, workers=1) as run:
        started = time.monotonic()
        finish(run)
        took_s = time.monotonic() - started
    assert_same_rows(out.values, range(100))
    assert took_s < 2.5, "100 calls of 50 ms take 5 s one after the other"


class CountsItself:
    """How many calls are under way at once."""

    def open(self, context: tr.Context) -> None:
        self.now = 0

    async def process(self, number: int) -> int:
        self.now += 1
        seen = self.now
        await asyncio.sleep(0.02)
        self.now -= 1
        return seen


def test_concurrency_is_a_limit() -> None:
    out = tr.to_list()
    topology = tr.Topology("async")
    topology.source("numbers", tr.from_iterable(range(50))).map("wait", CountsItself, concurrency=5).sink("out", out)
    _run(topology, 1)
    assert max(out.values) == 5


def test_an_async_worker_is_killed() -> None:
    out = tr.to_list()
    topology = tr.Topology("async")
    numbers = topology.source("numbers", tr.at_rate(range(10_000_000), 500))
    numbers.map("wait", wait_50_ms, tasks=2).sink("out", out)
    victim = homes(topology, 3, "wait")[0]
    with running(topology, workers=3) as run:
        wait_until(lambda: received(run, "out") > 100, 30, "rows at the sink")
        kill(run, victim)
        await_recovery(run)
        progress = stop(run)
    assert_prefixes(out.values, 1, 100)
    assert restarts(progress)[victim] == 1


@pytest.mark.parametrize("kind", ["blocking", "auto"])
def test_sleeping_tasks_of_one_worker_overlap(kind: str) -> None:
    """Those of kind "auto" share a thread, until they are found to have long calls."""
    out = tr.to_list()
    topology = tr.Topology("sleepers")
    numbers = topology.source("numbers", tr.from_iterable(range(160)))
    numbers.map("sleep", sleep_50_ms, tasks=8, kind=kind).sink("out", out)
    with running(topology, workers=1) as run:
        started = time.monotonic()
        finish(run)
        took_s = time.monotonic() - started
    assert_same_rows(out.values, range(160))
    assert took_s < 5, "160 calls of 50 ms take 8 s on one thread"


def thread_name(number: int) -> str:
    return threading.current_thread().name


def slow_thread_name(number: int) -> str:
    time.sleep(0.003)
    return threading.current_thread().name


def test_who_runs_on_which_thread() -> None:
    out, slow = tr.to_list(), tr.to_list()
    topology = tr.Topology("threads")
    numbers = topology.source("numbers", tr.from_iterable(range(100)))
    numbers.map("short", thread_name, tasks=2).sink("out", out)
    numbers.map("long", slow_thread_name).sink("slow", slow)
    numbers.map("blocking", thread_name, tasks=2, kind="blocking").sink("out2", tr.to_list())
    _run(topology, 1)
    assert slow.values[-1] == "long/0" and slow.values[0] == "shared"


def test_moving_to_a_thread_of_its_own_loses_nothing() -> None:
    """Tasks move while tuples come in, over links and from beside, and go out to other workers."""
    for _ in range(3):
        out = tr.to_list()
        topology = tr.Topology("moving")
        numbers = topology.source("numbers", tr.from_iterable(range(1200)), tasks=2)
        slow = numbers.map("a", sleep_2_ms, tasks=4).map("b", sleep_2_ms, tasks=4)
        slow.map("c", same, tasks=4).sink("out", out, tasks=2)
        progress = _run(topology, 2)
        assert_same_rows(out.values, range(1200))
        assert progress["recoveries"] == progress["reemitted"] == 0, "something was lost on the way"


class Watched:
    """A slow operator, in a worker where a task that is run by two threads at once leaves a file."""

    folder = Path()

    def open(self, context: tr.Context) -> None:
        if not hasattr(TaskHost, "watched"):
            TaskHost.watched = True  # type: ignore[attr-defined]
            TaskHost.work = _watching(TaskHost.work, self.folder)  # type: ignore[method-assign]

    def process(self, number: int) -> int:
        time.sleep(0.002)
        return number


def _watching(work: Callable[[TaskHost, int], None], folder: Path) -> Callable[[TaskHost, int], None]:
    inside: dict[TaskHost, str] = {}

    def watching(host: TaskHost, now_ns: int) -> None:
        name = threading.current_thread().name
        other = inside.get(host)
        if other is not None:
            (folder / "found").write_text(f"task={host.task.label} threads={other},{name}")
        inside[host] = name
        try:
            work(host, now_ns)
        finally:
            inside.pop(host, None)

    return watching


def test_a_task_is_run_by_one_thread_at_a_time(tmp_path: Path) -> None:
    class WatchedHere(Watched):
        folder = tmp_path

    topology = tr.Topology("moving")
    numbers = topology.source("numbers", tr.from_iterable(range(800)), tasks=2)
    numbers.map("a", WatchedHere, tasks=8).map("b", WatchedHere, tasks=8).sink("out", tr.to_list(), tasks=2)
    _run(topology, 2)
    assert [file.read_text() for file in tmp_path.iterdir()] == []


def sleep_2_ms(number: int) -> int:
    time.sleep(0.002)
    return number


async def is_cancelled(number: int) -> int:
    if number == 42:
        raise asyncio.CancelledError("by a library, say")
    return number


def test_an_async_call_that_is_cancelled_is_an_error() -> None:
    topology = tr.Topology("async")
    topology.source("numbers", tr.from_iterable(range(100))).map("wait", is_cancelled).sink("out", tr.to_list())
    with (
        running(topology, workers=1) as run,
        pytest.raises(tr.TaskError, match=r"(?s)CancelledError.*operator=wait task=0 tuple=42"),
    ):
        run.awaitTermination(6)


# --- batches and classes


def sizes(numbers: list[int]) -> list[int]:
    return [len(numbers)] * len(numbers)


def test_batches_are_full_under_load_and_never_larger() -> None:
    out = tr.to_list()
    topology = tr.Topology("batches")
    numbers = topology.source("numbers", tr.from_iterable(range(2000)), tasks=2)
    numbers.map_batch("sizes", sizes, 16, 50, tasks=2).sink("out", out)
    _run(topology, 2)
    assert len(out.values) == 2000
    assert max(out.values) == 16


def test_a_batch_that_is_not_full_runs_when_its_time_has_come() -> None:
    out = tr.to_list()
    topology = tr.Topology("batches")
    numbers = topology.source("numbers", tr.at_rate(range(10_000), 20))
    numbers.map_batch("sizes", sizes, 1000, 100).sink("out", out)
    with running(topology, workers=1) as run:
        wait_until(lambda: len(out.values) >= 5, 20, "rows, although no batch is ever full")
        stop(run)
    assert max(out.values) < 1000


def short_by_one(numbers: list[int]) -> list[int]:
    return numbers[1:]


def test_a_batch_function_must_return_as_many_as_it_gets() -> None:
    topology = tr.Topology("batches")
    numbers = topology.source("numbers", tr.from_iterable(range(10)))
    numbers.map_batch("short", short_by_one).sink("out", tr.to_list())
    with pytest.raises(tr.TaskError, match=r"must return as many results as it .*: given=\d+ returned=\d+"):
        _run(topology, 1)


class Notes:
    """Writes down its own life."""

    folder = Path()

    def open(self, context: tr.Context) -> None:
        self.file = self.folder / f"{context.operator}-{context.task}"
        assert context.tasks == 3 and context.name == "classes"
        self._note("open")

    def process(self, number: int) -> int:
        return number

    def close(self) -> None:
        self._note("close")

    def _note(self, word: str) -> None:
        with self.file.open("a") as file:
            file.write(f"{word} ")


@pytest.mark.parametrize("how", ["finish", "stop"])
def test_every_task_opens_and_closes_its_own_instance(how: str, tmp_path: Path) -> None:
    class Noted(Notes):
        folder = tmp_path

    topology = tr.Topology("classes")
    rows = 100 if how == "finish" else 10_000_000
    numbers = topology.source("numbers", tr.at_rate(range(rows), 1000))
    numbers.map("noted", Noted, tasks=3).sink("out", tr.to_list())
    with running(topology, workers=2) as run:
        wait_until(lambda: received(run, "out") > 10 or not run.isActive, 30, "rows")
        if how == "finish":
            finish(run)
        else:
            stop(run)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {
        f"noted-{task}": "open close " for task in range(3)
    }


MAIN = """
import sys
from dataclasses import dataclass
from enum import Enum
import tailrace as tr

class Colour(Enum):
    RED = 1
    BLUE = 2

@dataclass(frozen=True)
class Point:
    x: int
    colour: Colour

def point(number):
    return Point(number, Colour.RED if number % 2 else Colour.BLUE)

def move(point):
    assert isinstance(point, Point) and isinstance(point.colour, Colour)
    return Point(point.x + 1, point.colour)

if __name__ == "__main__":
    out = tr.to_list()
    topology = tr.Topology("points")
    points = topology.source("numbers", tr.from_iterable(range(100))).map("point", point, tasks=3)
    points.map("move", move, tasks=3, grouping=tr.fields(lambda p: p.x)).sink("out", out)
    topology.run(workers=3).awaitTermination(60)
    values = sorted(out.values, key=lambda p: p.x)
    print(len(values), values[0], all(type(value) is Point for value in values))
    print("equal", values == [Point(n + 1, point(n).colour) for n in range(100)])
"""


def test_dataclasses_of_the_script_itself(tmp_path: Path) -> None:
    with Script(tmp_path, MAIN) as driver:
        output = driver.end()
    assert "100 Point(x=1, colour=<Colour.BLUE: 2>) True" in output, output
    assert "equal True" in output, output
