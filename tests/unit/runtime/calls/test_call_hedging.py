"""Late attempts are made once more: within the budget, with leave of the limit, and the first answer counts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

import tailrace as tr
from tailrace.calls.call_hedger import PERIOD_NS, SHARE, CallHedger
from tailrace.clock import MILLISECOND_NS as MS
from tailrace.clock import SECOND_NS
from tailrace.policy.hedging.budget import BURST, LUCKY_BURSTS
from tailrace.runtime.calls.caller import Caller
from tailrace.runtime.calls.outcome import Outcome
from tailrace.runtime.calls.ports import Permit

LONG_S = 30.0


def run(steps: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(steps(), LONG_S))


class Slack:
    """A limit that counts permits, and grants hedges or not."""

    def __init__(self, slack: bool) -> None:
        self.slack = slack
        self.out = 0
        self.asked = 0

    async def acquire(self, cost: float) -> Permit:
        self.out += 1
        return _Counted(self)

    def try_acquire(self, cost: float) -> Permit | None:
        self.asked += 1
        if not self.slack:
            return None
        self.out += 1
        return _Counted(self)

    def throttled(self, retry_after_s: float) -> None:
        pass

    async def close(self) -> None:
        pass


class _Counted:
    def __init__(self, limit: Slack) -> None:
        self.limit: Slack | None = limit

    def release(self, used: float | None = None) -> None:
        if self.limit is not None:
            self.limit.out -= 1
            self.limit = None


class Service:
    """Answers after 2 ms. Of each hundred calls the first attempt of one does not answer at all, or fails late."""

    def __init__(self, hanging_s: float = LONG_S, error: Exception | None = None) -> None:
        self.seen: set[int] = set()
        self.cancelled = 0
        self.hanging_s = hanging_s
        self.error = error

    async def answer(self, value: int) -> int:
        first = value not in self.seen
        self.seen.add(value)
        try:
            await asyncio.sleep(self.hanging_s if first and value % 100 == 99 else 0.002)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.error is not None and not first:
            raise self.error
        return value


def a_caller(function: Callable[..., Any], calls: tr.Calls, limit: Slack | None = None) -> Caller:
    return Caller(function, calls, asynchronous=True, name="score", rng=Random(1), limit=limit)


async def made(caller: Caller, values: range, at_once: int = 8) -> list[Outcome]:
    room = asyncio.Semaphore(at_once)

    async def one(value: int) -> Outcome:
        async with room:
            return await caller.call((value,))

    return list(await asyncio.gather(*map(one, values)))


def test_calls_that_hang_are_answered_by_their_hedges() -> None:
    async def steps() -> None:
        service, limit = Service(hanging_s=2.0), Slack(True)
        calls = tr.Calls(hedge=True, limit=tr.limit("api", per_s=1e6))
        caller = a_caller(service.answer, calls, limit)
        outcomes = await made(caller, range(1_000))
        await asyncio.sleep(0)
        assert [outcome.value for outcome in outcomes] == list(range(1_000))
        won = [outcome for outcome in outcomes if outcome.hedge_won]
        assert caller.figures.hedges_won == len(won)
        assert len({outcome.value for outcome in won if outcome.value % 100 == 99}) >= 5
        assert caller.figures.hedges == sum(outcome.hedges for outcome in outcomes) == limit.asked
        assert caller.figures.hedges <= SHARE * 1_000 + LUCKY_BURSTS * BURST
        assert caller.figures.attempts == 1_000
        assert service.cancelled >= 5
        assert limit.out == 0
        await caller.close()

    run(steps)


def test_without_slack_no_hedge_is_made_and_the_budget_is_not_charged() -> None:
    async def steps() -> None:
        limit = Slack(False)
        calls = tr.Calls(hedge=True, limit=tr.limit("api", per_s=1e6))
        caller = a_caller(Service(hanging_s=0.2).answer, calls, limit)
        await made(caller, range(600))
        assert limit.asked > 0
        assert caller.figures.hedges == 0
        limit.slack = True
        first = 600
        while not caller.figures.hedges_won:  # until the time of the test is up
            await made(caller, range(first, first + 200))
            first += 200
        await caller.close()

    run(steps)


@pytest.mark.parametrize("error", [ValueError("no"), tr.RetryAfter(1)])
def test_an_error_of_a_hedge_is_no_answer(error: Exception) -> None:
    async def steps() -> None:
        caller = a_caller(Service(hanging_s=0.1, error=error).answer, tr.Calls(hedge=True))
        outcomes = await made(caller, range(1_000))
        assert [outcome.value for outcome in outcomes] == list(range(1_000))
        assert caller.figures.hedges > 0
        assert caller.figures.hedges_won == 0
        assert (caller.figures.retries, caller.figures.failed) == (0, 0)
        await caller.close()

    run(steps)


def test_a_call_of_which_all_attempts_fail_is_tried_again() -> None:
    """The first attempt and its hedge fail. The retry is an attempt like any other."""

    async def steps() -> None:
        failures: dict[int, int] = {}

        async def fails_late(value: int) -> int:
            await asyncio.sleep(0.002)
            if value % 100 == 99 and failures.get(value, 0) < 2:
                failures[value] = failures.get(value, 0) + 1
                await asyncio.sleep(0.1)
                raise OSError("late")
            return value

        caller = a_caller(fails_late, tr.Calls(hedge=True, retries=2, backoff_s=0.001))
        outcomes = await made(caller, range(500))
        assert [outcome.value for outcome in outcomes] == list(range(500))
        assert 0 < caller.figures.retries <= 10
        await caller.close()

    run(steps)


# -- the pure part


def test_the_timeout_is_known_after_a_tenth_of_a_second() -> None:
    hedger = CallHedger(lambda root: True)
    for root in range(200):
        now_ns = root * 2 * MS
        hedger.emitted(root, now_ns)
        hedger.due(now_ns)
        hedger.completed(root, now_ns + MS, hedge=False)
    hedger.emitted(200, 400 * MS)
    assert PERIOD_NS == 100 * MS
    assert list(hedger.due(402 * MS)) == []
    assert list(hedger.due(402 * MS + 1)) == [200]


def test_few_and_slow_calls_have_a_timeout_too() -> None:
    """Two calls a second: a period lasts until it has samples enough."""
    hedger = CallHedger(lambda root: True)
    for root in range(60):
        now_ns = root * SECOND_NS // 2
        hedger.emitted(root, now_ns)
        hedger.due(now_ns)
        hedger.completed(root, now_ns + 100 * MS, hedge=False)
    assert hedger.state().timeout_ns == 200 * MS


def test_a_hedge_that_is_not_admitted_costs_nothing_and_is_asked_for_again() -> None:
    asked: list[int] = []
    admits = False

    def admitted(root: int) -> bool:
        asked.append(root)
        return admits

    hedger = CallHedger(admitted)
    for root in range(100):
        hedger.emitted(root, root * 2 * MS)
        hedger.due(root * 2 * MS)
        hedger.completed(root, root * 2 * MS + MS, hedge=False)
    before = hedger.state().hedges_left
    hedger.emitted(100, 300 * MS)
    hedger.emitted(101, 300 * MS)
    assert list(hedger.due(310 * MS)) == []
    assert asked == [100]  # the limit has no slack, so the second is not asked for
    assert hedger.state().hedges_left == before
    admits = True
    assert list(hedger.due(311 * MS)) == [100, 101]


def test_failed_attempts_do_not_shorten_the_timeout() -> None:
    """Errors after 1 ms, answers after 50 ms: errors count as attempts that would have taken longer."""
    hedger = CallHedger(lambda root: True)
    rng = Random(5)
    for root in range(400):
        now_ns = root * 5 * MS
        hedger.emitted(root, now_ns)
        hedger.due(now_ns)
        if rng.random() < 0.5:
            hedger.failed(root, now_ns + MS)
        else:
            hedger.completed(root, now_ns + 50 * MS, hedge=False)
    assert hedger.state().timeout_ns == 100 * MS
