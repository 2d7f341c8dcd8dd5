"""A caller makes calls in a real event loop: journal, limit, time limits, retries, and what is counted."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any

import pytest

import tailrace as tr
from tailrace.calls.retries import MOST_REFUSALS
from tailrace.runtime.calls.caller import Caller
from tailrace.runtime.calls.outcome import Outcome
from tailrace.runtime.calls.ports import Journal, LimitClient, Permit

LONG_S = 30.0  # longer than any test takes


class CountingPermit:
    def __init__(self, limit: CountingLimit, cost: float) -> None:
        self.limit: CountingLimit | None = limit
        self.cost = cost

    def release(self, used: float | None = None) -> None:
        if self.limit is not None:
            self.limit.released.append(used)
            self.limit = None


class CountingLimit:
    """Grants everything, and remembers what it was asked."""

    def __init__(self, slack: bool = True) -> None:
        self.acquired: list[float] = []
        self.released: list[float | None] = []
        self.refusals: list[float] = []
        self.slack = slack
        self.closed = False

    async def acquire(self, cost: float) -> Permit:
        await asyncio.sleep(0.001)
        self.acquired.append(cost)
        return CountingPermit(self, cost)

    def try_acquire(self, cost: float) -> Permit | None:
        if not self.slack:
            return None
        self.acquired.append(cost)
        return CountingPermit(self, cost)

    def throttled(self, retry_after_s: float) -> None:
        self.refusals.append(retry_after_s)

    async def close(self) -> None:
        self.closed = True


class DictJournal:
    def __init__(self) -> None:
        self.kept: dict[bytes, Any] = {}
        self.closed = False

    def find(self, key: bytes) -> tuple[Any] | None:
        return (self.kept[key],) if key in self.kept else None

    def begin(self, key: bytes) -> bool:
        return True

    def give_up(self, key: bytes) -> None:
        pass

    def keep(self, key: bytes, result: Any) -> None:
        self.kept[key] = result

    def close(self) -> None:
        self.closed = True


def a_caller(
    function: Callable[..., Any],
    calls: tr.Calls,
    limit: LimitClient | None = None,
    journal: Journal | None = None,
) -> Caller:
    asynchronous = asyncio.iscoroutinefunction(function)
    return Caller(function, calls, asynchronous=asynchronous, name="score", rng=Random(1), limit=limit, journal=journal)


def run(steps: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    return asyncio.run(asyncio.wait_for(steps(), LONG_S))


def one_call(function: Callable[..., Any], calls: tr.Calls, *args: Any, **parts: Any) -> tuple[Outcome, Caller]:
    async def steps() -> tuple[Outcome, Caller]:
        caller = a_caller(function, calls, **parts)
        outcome = await caller.call(args)
        await caller.close()
        return outcome, caller

    found: tuple[Outcome, Caller] = run(steps)
    return found


class Failing:
    """Raises what it is given, one after the other, then answers."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.made = 0

    def plain(self, value: Any) -> Any:
        self.made += 1
        if self.errors:
            raise self.errors.pop(0)
        return value, "done"

    async def waits(self, value: Any) -> Any:
        await asyncio.sleep(0)
        return self.plain(value)


@pytest.mark.parametrize("kind", ["plain", "waits"])
def test_a_call_that_fails_twice_and_then_answers(kind: str) -> None:
    failing = Failing(OSError("reset"), ValueError("odd"))
    outcome, caller = one_call(getattr(failing, kind), tr.Calls(retries=2, backoff_s=0.001), 7)
    assert (outcome.value, outcome.error, outcome.attempts) == ((7, "done"), None, 3)
    counts = caller.figures.counts()
    assert {name: count for name, count in counts.items() if count} == {"calls": 1, "attempts": 3, "retries": 2}
    assert caller.figures.latencies.count == 1


@pytest.mark.parametrize("kind", ["plain", "waits"])
@pytest.mark.parametrize(
    "error", [ValueError("no"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), StopIteration(1)]
)
def test_whatever_a_function_raises_is_in_the_outcome(kind: str, error: BaseException) -> None:
    outcome, caller = one_call(getattr(Failing(error), kind), tr.Calls(), 7)
    if isinstance(error, StopIteration) and kind == "waits":
        assert isinstance(outcome.error, RuntimeError)  # Python itself turns one into the other
    else:
        assert outcome.error is error
    assert (outcome.value, caller.figures.failed, caller.figures.latencies.count) == (None, 1, 0)


def test_an_error_after_retries_names_the_attempts_once() -> None:
    error = ValueError("always the same object")
    outcome, caller = one_call(Failing(*[error] * 9).plain, tr.Calls(retries=3, backoff_s=0), 7)
    assert outcome.error is error
    assert error.__notes__ == ["after 4 attempts"]
    assert (outcome.attempts, caller.figures.retries, caller.figures.failed) == (4, 3, 1)


def test_refusals_slow_the_limit_down_and_use_up_no_retries() -> None:
    limit = CountingLimit()
    failing = Failing(tr.RetryAfter(0.01), tr.RetryAfter(0.02), OSError())
    calls = tr.Calls(retries=1, backoff_s=0.001, limit=tr.limit("api", per_s=5))
    outcome, caller = one_call(failing.waits, calls, 7, limit=limit)
    assert (outcome.error, outcome.attempts) == (None, 4)
    assert (caller.figures.throttled, caller.figures.retries) == (2, 1)
    assert limit.refusals == [0.01, 0.02]
    assert outcome.latency_ns > 30_000_000  # what the service asked for
    assert outcome.limit_wait_ns > 0
    assert caller.figures.limit_wait_ns == outcome.limit_wait_ns
    assert limit.closed


def test_a_service_that_refuses_for_ever_is_an_error() -> None:
    outcome, caller = one_call(
        Failing(*[tr.RetryAfter(0)] * 99).waits, tr.Calls(backoff_s=0.0001, max_backoff_s=0.001), 7
    )
    assert isinstance(outcome.error, tr.RetryAfter)
    assert outcome.attempts == MOST_REFUSALS + 1
    assert outcome.error.__notes__ == [f"after {MOST_REFUSALS + 1} attempts"]
    assert caller.figures.throttled == MOST_REFUSALS + 1


def test_each_attempt_has_a_permit_of_its_cost_and_settles_it() -> None:
    limit = CountingLimit()
    declared = tr.limit("api", per_s=5, cost=lambda text: len(text), settle=lambda result, text: len(result[0]) / 2)
    calls = tr.Calls(retries=1, backoff_s=0, limit=declared)
    outcome, _ = one_call(Failing(OSError()).waits, calls, "four", limit=limit)
    assert outcome.error is None
    assert limit.acquired == [4.0, 4.0]
    assert limit.released == [None, 2.0]


@pytest.mark.parametrize(
    ("cost", "settle", "text"),
    [
        (lambda text: "much", None, "cost is not a number of units: cost='much' arguments=('four',)"),
        (lambda text: -1, None, "cost is not a number of units: cost=-1"),
        (lambda text: 1 / 0, None, "division by zero"),
        (lambda text: 1, lambda result, text: result["usage"], "tuple indices must be integers"),
        (
            lambda text: 1,
            lambda result, text: float("nan"),
            "settle gave no number of units: settle=nan arguments=('fo",
        ),
        (
            lambda text: 1,
            lambda result, text: -3,
            "settle gave no number of units: settle=-3.0 arguments=('four',): does",
        ),
        (lambda text: 1, lambda result, text: None, "float() argument must be"),
    ],
)
@pytest.mark.parametrize("hedge", [False, True])
def test_a_cost_that_is_none_is_an_error_that_is_not_tried_again(
    cost: Any, settle: Any, text: str, hedge: bool
) -> None:
    limit, failing = CountingLimit(), Failing()
    declared = tr.limit("api", per_s=5, cost=cost, settle=settle)
    outcome, _ = one_call(failing.waits, tr.Calls(retries=3, limit=declared, hedge=hedge), "four", limit=limit)
    assert text in str(outcome.error)
    assert failing.made == (0 if settle is None else 1)
    assert len(limit.released) == len(limit.acquired)


def test_what_the_journal_has_is_not_called_for_again() -> None:
    failing, journal = Failing(), DictJournal()

    async def steps() -> None:
        caller = a_caller(failing.waits, tr.Calls(), journal=journal)
        first = await caller.call((7,), b"key")
        second = await caller.call((7,), b"key")
        third = await caller.call((7,), None)
        await caller.close()
        assert (first.value, first.found) == ((7, "done"), False)
        assert (second.value, second.found, second.attempts) == ((7, "done"), True, 0)
        assert not third.found
        assert (caller.figures.calls, caller.figures.found, caller.figures.latencies.count) == (3, 1, 2)

    run(steps)
    assert failing.made == 2
    assert journal.kept == {b"key": (7, "done")}
    assert journal.closed


def test_errors_of_the_limit_and_of_the_journal_are_raised() -> None:
    class Broken(CountingLimit, DictJournal):  # type: ignore[misc]
        def __init__(self, broken: str) -> None:
            CountingLimit.__init__(self)
            DictJournal.__init__(self)
            setattr(self, broken, self.broken)

        def broken(self, *args: Any) -> Any:
            raise tr.OptionError("another limit has this name")

    async def steps() -> None:
        for broken in ("acquire", "find", "keep"):
            both: Any = Broken(broken)
            calls = tr.Calls(retries=3, limit=tr.limit("api", per_s=5))
            caller = a_caller(Failing().waits, calls, limit=both, journal=both)
            with pytest.raises(tr.OptionError, match="another limit has this name"):
                await caller.call((7,), b"key")

    run(steps)


def test_an_error_of_retry_on_ends_the_call() -> None:
    calls = tr.Calls(retries=3, retry_on=lambda error: error.status == 503)  # type: ignore[attr-defined]
    failing = Failing(*[ValueError()] * 9)
    outcome, _ = one_call(failing.waits, calls, 7)
    assert "no attribute 'status'" in str(outcome.error)
    assert failing.made == 1


def test_an_error_is_not_kept() -> None:
    journal = DictJournal()

    async def steps() -> None:
        caller = a_caller(Failing(OSError()).waits, tr.Calls(), journal=journal)
        assert (await caller.call((7,), b"key")).error is not None

    run(steps)
    assert journal.kept == {}


def test_a_coroutine_that_hangs_is_cancelled_and_tried_again() -> None:
    ended: list[int] = []

    async def hangs_at_first(value: int) -> int:
        try:
            await asyncio.sleep(0 if ended else LONG_S)
        finally:
            ended.append(value)
        return value

    outcome, caller = one_call(hangs_at_first, tr.Calls(timeout_s=0.2, retries=1, backoff_s=0), 7)
    assert (outcome.value, outcome.attempts) == (7, 2)
    assert (caller.figures.timeouts, caller.figures.retries) == (1, 1)
    assert ended == [7, 7]


def test_a_timeout_is_an_error_that_says_so() -> None:
    async def hangs(value: int) -> None:
        await asyncio.sleep(LONG_S)

    outcome, _ = one_call(hangs, tr.Calls(timeout_s=0.01), 7)
    assert isinstance(outcome.error, TimeoutError)
    assert str(outcome.error) == "no answer in time: timeout_s=0.01: is the service slow, or the time short?"


def test_what_a_coroutine_makes_of_being_cancelled() -> None:
    """An answer in spite of it counts. An error that it turns the cancelling into is the timeout all the same."""

    async def stubborn(answer: Any) -> Any:
        try:
            await asyncio.sleep(LONG_S)
        except asyncio.CancelledError:
            if answer is None:
                raise ConnectionError("closed") from None
        return answer

    calls = tr.Calls(timeout_s=0.01)
    outcome, caller = one_call(stubborn, calls, "late")
    assert (outcome.value, caller.figures.timeouts) == ("late", 0)
    outcome, caller = one_call(stubborn, calls, None)
    assert "no answer in time" in str(outcome.error)
    assert caller.figures.timeouts == 1


def test_a_timeout_of_the_function_itself_is_its_own_error() -> None:
    outcome, caller = one_call(Failing(TimeoutError("mine")).waits, tr.Calls(timeout_s=LONG_S), 7)
    assert str(outcome.error) == "mine"
    assert caller.figures.timeouts == 0


@pytest.mark.parametrize("hedge", [False, True])
def test_a_call_that_is_cancelled_stops_and_gives_its_permit_back(hedge: bool) -> None:
    limit = CountingLimit()

    async def steps() -> None:
        started = asyncio.Event()

        async def hangs(value: int) -> None:
            started.set()
            await asyncio.sleep(LONG_S)

        calls = tr.Calls(timeout_s=LONG_S, retries=5, hedge=hedge, limit=tr.limit("api", per_s=5))
        caller = a_caller(hangs, calls, limit=limit)
        call = asyncio.ensure_future(caller.call((7,)))
        await started.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.sleep(0)  # a cancelled attempt of its own ends in the next step
        await caller.close()
        assert caller.figures.calls == 0

    run(steps)
    assert (limit.acquired, limit.released) == ([1.0], [None])


@pytest.mark.parametrize("failed", [False, True])
def test_a_call_leaves_no_cycle_that_keeps_its_tuple(failed: bool) -> None:
    """The error of a call holds its frames; the frames must not hold the error."""

    async def steps() -> None:
        caller = a_caller(Failing(*[OSError()] * failed).waits, tr.Calls(timeout_s=LONG_S))
        outcome = await caller.call((Big(),))
        del outcome
        assert not alive

    alive: list[int] = []

    class Big:
        def __init__(self) -> None:
            alive.append(id(self))

        def __del__(self) -> None:
            alive.remove(id(self))

    gc.disable()
    try:
        run(steps)
    finally:
        gc.enable()


@pytest.mark.parametrize("timeout_s", [None, LONG_S])
def test_the_oldest_attempt_that_may_hang(timeout_s: float | None) -> None:
    """Neither a call that waits for its next attempt, nor one that a time limit will end."""

    async def steps() -> None:
        async def waits(value: str) -> None:
            if value == "refused":
                raise tr.RetryAfter(LONG_S)
            await asyncio.sleep(LONG_S)

        caller = a_caller(waits, tr.Calls(timeout_s=timeout_s))
        assert caller.oldest_attempt() is None
        calls = [asyncio.ensure_future(caller.call((value,))) for value in ("refused", "first", "second")]
        while caller.figures.throttled < 1:
            await asyncio.sleep(0.001)
        oldest = caller.oldest_attempt()
        assert (None if oldest is None else oldest[1]) == (("first",) if timeout_s is None else None)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        assert caller.oldest_attempt() is None

    run(steps)


def test_many_calls_at_once_give_each_its_own_answer() -> None:
    async def steps() -> list[Outcome]:
        rng = Random(3)

        async def square(value: int) -> int:
            await asyncio.sleep(rng.random() / 100)
            if rng.random() < 0.2:
                raise OSError
            return value * value

        caller = a_caller(square, tr.Calls(retries=50, backoff_s=0.001, hedge=True, timeout_s=LONG_S))
        made: list[Awaitable[Outcome]] = [caller.call((value,)) for value in range(200)]
        outcomes = list(await asyncio.gather(*made))
        await caller.close()
        assert caller.figures.calls == 200
        return outcomes

    assert [outcome.value for outcome in run(steps)] == [value * value for value in range(200)]
