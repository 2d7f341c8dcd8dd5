"""Calls of a topology's operators, in real workers: given up, tried again, opened and closed in their event loop."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tailrace as tr
from kit.runs import assert_same_rows, finish, kill, read_jsonl, received, running
from tailrace.dashboard.summary import render_summary
from tailrace.testing.processes import wait_until

COUNT = 300


def numbers(topology: tr.Topology, count: int = COUNT) -> tr.Stream[int]:
    return topology.source("numbers", tr.from_iterable(range(count)))


def run_of(topology: tr.Topology, workers: int = 2, **options: Any) -> dict[str, Any]:
    with running(topology, workers=workers, **options) as run:
        return finish(run)


def calls_of(progress: dict[str, Any], operator: str = "score") -> dict[str, Any]:
    (found,) = (one for one in progress["operators"] if one["name"] == operator)
    calls: dict[str, Any] = found["calls"]
    return calls


class Seen:
    """Counts in files how often something was seen, over all processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def again(self, value: int) -> int:
        """How often it was seen before."""
        for times in range(1_000):
            try:
                os.close(os.open(self.folder / f"{value}-{times}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            return times
        raise AssertionError(value)


@pytest.fixture
def seen(tmp_path: Path) -> Seen:
    (tmp_path / "seen").mkdir()
    return Seen(tmp_path / "seen")


def out(tmp_path: Path) -> Any:
    return tr.to_jsonl(tmp_path / "out")


def test_a_plain_function_that_hangs_is_given_up(tmp_path: Path) -> None:
    def hangs_at_times(number: int) -> int:
        if number % 100 == 50:
            time.sleep(3_600)
        time.sleep(0.001)
        return number

    topology = tr.Topology("calls")
    calls = tr.Calls(concurrency=8, timeout_s=1.0, on_error="dead_letter")
    scored = numbers(topology).map("score", hangs_at_times, calls=calls)
    scored.sink("out", out(tmp_path))
    scored.dead_letters.sink("letters", tr.to_jsonl(tmp_path / "letters"))
    progress = run_of(topology)
    assert_same_rows(read_jsonl(tmp_path / "out"), (n for n in range(COUNT) if n % 100 != 50))
    letters = read_jsonl(tmp_path / "letters")
    assert sorted(letter["value"] for letter in letters) == [50, 150, 250]
    for letter in letters:
        assert letter["error"].startswith(
            "TimeoutError: a plain function was given up because it did not return in time: timeout_s=1.0"
        )
    found = calls_of(progress)
    assert (found["calls"], found["timeouts"], found["failed"], found["givenUpThreads"]) == (COUNT, 3, 3, 3)
    assert "threads given up in score 3" in render_summary(progress)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("role", ["map", "flat_map", "filter"])
def test_errors_and_refusals_are_tried_again(tmp_path: Path, seen: Seen, role: str, asynchronous: bool) -> None:
    """Every third call fails at first, every fifth is refused at first: each answers in the end."""

    def answer(number: int) -> Any:
        times = seen.again(number)
        if times == 0 and number % 3 == 0:
            raise ConnectionError("reset")
        if times <= 1 and number % 5 == 0:
            raise tr.RetryAfter(0.01, "too many requests")
        return {"map": number, "flat_map": [number, -number], "filter": number % 2 == 0}[role]

    async def answer_later(number: int) -> Any:
        await asyncio.sleep(0.001)
        return answer(number)

    topology = tr.Topology("calls")
    calls = tr.Calls(concurrency=16, retries=1, backoff_s=0.01, timeout_s=30)
    stream = getattr(numbers(topology), role)("score", answer_later if asynchronous else answer, calls=calls)
    stream.sink("out", out(tmp_path))
    progress = run_of(topology)
    every = range(COUNT)
    expected = {
        "map": list(every),
        "flat_map": [sign * number for number in every for sign in (1, -1)],
        "filter": [number for number in every if number % 2 == 0],
    }
    assert_same_rows(read_jsonl(tmp_path / "out"), expected[role])
    found = calls_of(progress)
    both = sum(number % 15 == 0 for number in every)
    assert found["retries"] == sum(number % 3 == 0 for number in every)
    assert found["throttled"] == 2 * sum(number % 5 == 0 for number in every) - both
    assert (found["calls"], found["failed"]) == (COUNT, 0)
    assert found["attempts"] == COUNT + found["retries"] + found["throttled"]


def test_a_generator_runs_in_the_thread_of_its_call(tmp_path: Path) -> None:
    def digits(number: int) -> Any:
        for digit in str(number):
            yield [digit, threading.current_thread().name.startswith("score/")]

    topology = tr.Topology("calls")
    numbers(topology, 50).flat_map("score", digits, calls=tr.Calls()).sink("out", out(tmp_path))
    run_of(topology, 1)
    assert_same_rows(
        ((digit, own) for digit, own in read_jsonl(tmp_path / "out")),
        ((digit, True) for number in range(50) for digit in str(number)),
    )


def test_a_dead_letter_names_the_attempts(tmp_path: Path) -> None:
    def refuses(number: int) -> int:
        raise ValueError(f"not {number}")

    topology = tr.Topology("calls")
    scored = numbers(topology, 5).map("score", refuses, calls=tr.Calls(retries=2, backoff_s=0), on_error="dead_letter")
    scored.sink("out", out(tmp_path))
    scored.dead_letters.sink("letters", tr.to_jsonl(tmp_path / "letters"))
    run_of(topology, 1)
    letters = read_jsonl(tmp_path / "letters")
    assert sorted(letter["error"] for letter in letters) == [
        f"ValueError: not {number} (after 3 attempts)" for number in range(5)
    ]
    assert all(letter["traceback"].rstrip().endswith("after 3 attempts") for letter in letters)


def test_a_run_that_fails_names_the_attempts_too(tmp_path: Path) -> None:
    def refuses(number: int) -> int:
        raise ValueError(f"not {number}")

    topology = tr.Topology("calls")
    numbers(topology, 1).map("score", refuses, calls=tr.Calls(retries=1, backoff_s=0)).sink("out", out(tmp_path))
    with pytest.raises(tr.TaskError) as caught:
        run_of(topology, 1)
    assert caught.value.operator == "score"
    assert "ValueError: not 0\nafter 2 attempts" in caught.value.traceback


class Session:
    """What is opened must be used and closed in the same loop."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def open(self, context: tr.Context) -> None:
        await asyncio.sleep(0.01)
        self.loop = asyncio.get_running_loop()
        self.label = f"{context.operator}-{context.task}-{context.epoch}"
        self.beats = 0
        self.beating = asyncio.ensure_future(self.beat())

    async def beat(self) -> None:
        while True:
            await asyncio.sleep(0.005)
            self.beats += 1

    async def process(self, number: int) -> int:
        assert asyncio.get_running_loop() is self.loop
        await asyncio.sleep(0.001)
        return number

    async def close(self) -> None:
        await asyncio.sleep(0.01)
        assert asyncio.get_running_loop() is self.loop
        self.beating.cancel()
        (self.folder / self.label).write_text(str(self.beats))


class PlainSession(Session):
    def process(self, number: int) -> int:  # type: ignore[override]
        time.sleep(0.001)
        return number


@pytest.mark.parametrize(
    ("cls", "calls"), [(Session, None), (Session, tr.Calls(retries=1)), (PlainSession, tr.Calls(timeout_s=30))]
)
def test_open_and_close_run_in_the_loop_of_the_calls(tmp_path: Path, cls: Any, calls: tr.Calls | None) -> None:
    (tmp_path / "closed").mkdir()

    topology = tr.Topology("calls")
    numbers(topology).map("score", partial(cls, tmp_path / "closed"), calls=calls, tasks=2).sink("out", out(tmp_path))
    run_of(topology)
    assert_same_rows(read_jsonl(tmp_path / "out"), range(COUNT))
    closed = {path.name.rpartition("-")[0]: int(path.read_text()) for path in (tmp_path / "closed").iterdir()}
    assert set(closed) == {"score-0", "score-1"}
    assert all(beats > 0 for beats in closed.values())  # what open started went on during the calls


class CannotOpen:
    async def open(self, context: tr.Context) -> None:
        await asyncio.sleep(0.01)
        raise ConnectionError("no such service")

    async def process(self, number: int) -> int:
        return number


def test_an_error_while_opening_names_the_task(tmp_path: Path) -> None:
    topology = tr.Topology("calls")
    numbers(topology).map("score", CannotOpen).sink("out", out(tmp_path))
    with pytest.raises(tr.TaskError) as caught:
        run_of(topology, 1)
    assert (caught.value.operator, caught.value.value) == ("score", "(while opening)")
    assert "ConnectionError: no such service" in caught.value.traceback


class CannotClose(Session):
    async def close(self) -> None:
        raise ConnectionError("already gone")


def test_an_error_while_closing_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    topology = tr.Topology("calls")
    numbers(topology, 20).map("score", partial(CannotClose, tmp_path)).sink("out", out(tmp_path))
    run_of(topology, 1)
    told = capfd.readouterr()
    assert "score/0: close() raised ConnectionError: already gone" in told.out + told.err


def test_a_worker_that_is_killed_in_the_middle(tmp_path: Path) -> None:
    async def refused_at_random(number: int) -> int:
        await asyncio.sleep(0.01)
        if random.random() < 0.2:
            raise tr.RetryAfter(0.01)
        if random.random() < 0.2:
            raise OSError("reset")
        return number

    topology = tr.Topology("calls")
    calls = tr.Calls(concurrency=4, retries=30, backoff_s=0.01, timeout_s=30, hedge=True)
    scored = numbers(topology, 2_000).map("score", refused_at_random, calls=calls, tasks=2)
    scored.sink("out", out(tmp_path))
    with running(topology, workers=2) as run:
        wait_until(lambda: received(run, "score") > 200, 30, "calls to be made")
        kill(run, 0)
        kill(run, 1)
        progress = finish(run)
    assert_same_rows(read_jsonl(tmp_path / "out"), range(2_000))
    assert calls_of(progress)["retries"] > 0
