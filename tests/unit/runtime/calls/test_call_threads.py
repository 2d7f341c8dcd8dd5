"""Plain functions run in threads that may be given up: counted, bounded, and used again."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Callable, Coroutine, Iterator
from random import Random
from typing import Any

import pytest

import tailrace as tr
from tailrace.runtime.calls import threads
from tailrace.runtime.calls.caller import Caller
from tailrace.runtime.current_task import current_label, running_call
from tailrace.testing.processes import wait_until

LONG_S = 30.0


def run(steps: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(steps(), LONG_S))


def a_caller(function: Callable[..., Any], calls: tr.Calls) -> Caller:
    return Caller(function, calls, asynchronous=False, name="score", rng=Random(1))


def threads_now() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("score-")]


class Gate:
    """A function that hangs until it is let go, if it is given something negative."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.hanging = 0
        self.returned: list[int] = []

    def __call__(self, value: int) -> int:
        if value < 0:
            self.hanging += 1
            self.open.wait(LONG_S)
        self.returned.append(value)
        return value


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture(autouse=True)
def no_threads_left(gate: Gate) -> Iterator[None]:
    assert not threads_now()
    yield
    gate.open.set()
    for thread in threads_now():
        thread.join(LONG_S)
    assert not threads_now()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def test_a_function_that_hangs_is_given_up_and_its_thread_is_counted(gate: Gate) -> None:
    async def steps() -> None:
        caller = a_caller(gate, tr.Calls(timeout_s=0.5, concurrency=4))
        outcome = await caller.call((-1,))
        assert isinstance(outcome.error, TimeoutError)
        assert str(outcome.error) == (
            "a plain function was given up because it did not return in time: timeout_s=0.5; its result is dropped, "
            "and its thread goes on: has what it calls a time limit of its own?"
        )
        assert (caller.figures.given_up_threads, caller.figures.timeouts) == (1, 1)
        assert (await caller.call((1,))).value == 1
        gate.open.set()
        await until(lambda: caller.figures.given_up_threads == 0)
        assert gate.returned == [1, -1]
        for value in range(50):
            assert (await caller.call((value,))).value == value
        assert len(threads_now()) == 2  # the thread that was given up is used again
        await caller.close()

    run(steps)


def test_threads_are_bounded_and_the_error_names_what_hangs(gate: Gate) -> None:
    async def steps() -> None:
        caller = a_caller(gate, tr.Calls(timeout_s=0.5, concurrency=3))
        outcomes = await asyncio.gather(*(caller.call((-value,)) for value in (1, 2, 3)))
        assert all("given up" in str(outcome.error) for outcome in outcomes)
        late = await asyncio.gather(*(caller.call((value,)) for value in range(20)))
        for outcome in late:
            assert isinstance(outcome.error, TimeoutError)
            assert "no thread is free, because calls that were given up have not returned: given_up=3" in str(
                outcome.error
            )
            assert re.search(r"arguments=\(-1,\) at=\S+:\d+: does the function hang with these\?", str(outcome.error))
        assert len(threads_now()) == 3
        waiting = asyncio.ensure_future(caller.call((5,)))
        await asyncio.sleep(0)
        gate.open.set()
        assert (await waiting).value == 5
        await caller.close()

    run(steps)
    assert 0 not in gate.returned


def test_calls_that_are_cancelled_give_their_threads_up(gate: Gate) -> None:
    async def steps() -> None:
        caller = a_caller(gate, tr.Calls(concurrency=4))
        calls = [asyncio.ensure_future(caller.call((-1,))) for _ in range(3)]
        await until(lambda: gate.hanging == 3)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        assert caller.figures.given_up_threads == 3
        await caller.close()

    run(steps)  # the loop is closed; when the functions return, their threads end all the same


def test_a_function_in_a_thread_knows_its_task() -> None:
    async def steps() -> None:
        running_call.set("score/3")
        caller = a_caller(lambda value: current_label(), tr.Calls())
        assert (await caller.call((1,))).value == "score/3"
        await caller.close()

    run(steps)


def test_a_hedge_of_a_plain_function_wins_and_the_loser_is_given_up(gate: Gate) -> None:
    """Calls are fast; then one hangs at its first attempt only."""
    hung = threading.Event()

    def hangs_once(value: int) -> int:
        if value == -1 and not hung.is_set():
            hung.set()
            gate.open.wait(LONG_S)
        return value

    async def steps() -> None:
        caller = a_caller(hangs_once, tr.Calls(hedge=True, concurrency=4))
        for _ in range(150):  # three periods of the rule at least
            assert (await caller.call((1,))).value == 1
            await asyncio.sleep(0.002)
        hanging = asyncio.ensure_future(caller.call((-1,)))
        while not hanging.done():  # further calls pay for its hedge, should the budget be empty
            assert (await caller.call((1,))).value == 1
            await asyncio.sleep(0.002)
        outcome = hanging.result()
        assert (outcome.value, outcome.hedge_won, outcome.attempts) == (-1, True, 1)
        await until(lambda: caller.figures.given_up_threads == 1)
        await caller.close()

    run(steps)


def test_calls_that_wait_for_a_thread_for_long_are_reported(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a time limit nothing else would be said."""
    monkeypatch.setattr(threads, "WARN_S", 0.05)

    async def steps() -> None:
        caller = a_caller(gate, tr.Calls(concurrency=2))
        given_up = [asyncio.ensure_future(caller.call((-1,))) for _ in range(2)]
        await until(lambda: gate.hanging == 2)
        for call in given_up:
            call.cancel()
        await asyncio.gather(*given_up, return_exceptions=True)
        waiting = [asyncio.ensure_future(caller.call((value,))) for value in range(5)]
        await until(lambda: len(caplog.messages) == 3)
        gate.open.set()
        assert [outcome.value for outcome in await asyncio.gather(*waiting)] == list(range(5))
        await caller.close()

    with caplog.at_level(logging.WARNING, "tailrace"):
        run(steps)
    first = caplog.messages[0]
    said = "calls wait for a thread, because as many that were given up have not returned: function=score given_up=2 "
    assert first.startswith(said)
    here = re.escape(__file__)
    assert re.search(rf" arguments=\(-1,\) at={here}:\d+: has what it calls a time limit of its own\?$", first)


def test_threads_that_earlier_tasks_have_left_are_bounded(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "MOST_LEFT", 3)

    async def hang(calls: int) -> None:
        caller = a_caller(gate, tr.Calls(concurrency=4))
        before = gate.hanging
        waiting = [asyncio.ensure_future(caller.call((-1,))) for _ in range(calls)]
        await until(lambda: gate.hanging == before + calls)
        for call in waiting:
            call.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await caller.close()

    for calls in (2, 1):
        run(lambda calls=calls: hang(calls))  # type: ignore[misc]
    text = (
        r"^too many functions that were given up have not returned, of earlier tasks of this process: threads=3 oldest"
    )
    with pytest.raises(tr.TailraceError, match=text):
        run(lambda: hang(0))
    gate.open.set()
    wait_until(lambda: not threads._left, LONG_S, "the functions to return")
    run(lambda: hang(0))
