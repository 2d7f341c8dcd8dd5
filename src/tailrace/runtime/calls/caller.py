"""Makes the calls of one task: finds results in the journal, asks the limit, keeps the time, tries again, hedges."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from random import Random
from typing import Any

from tailrace.calls import Calls, RetryAfter
from tailrace.calls.retries import Retries
from tailrace.clock import SECOND_NS, system_clock
from tailrace.errors import shorten
from tailrace.policy.numbers import is_number
from tailrace.runtime.calls.call_hedging import Attempts, CallHedging
from tailrace.runtime.calls.figures import Figures
from tailrace.runtime.calls.outcome import Outcome
from tailrace.runtime.calls.ports import Journal, LimitClient, Permit
from tailrace.runtime.calls.threads import Answer, CallThreads

LOOK_AGAIN_S = 0.01
"""How often a call looks for the result of the same call that is under way elsewhere."""

PATIENCE_S = 60.0
"""A call waits this long for the same call elsewhere, or as long as all attempts may take, and is then made twice. A
worker that was cut off from its driver has left in half that time."""


class _NoLimit:
    """The permit of a call that has no limit."""

    def release(self, used: float | None = None) -> None:
        pass


_NO_LIMIT = _NoLimit()


class _NotSettled(Exception):
    """The user's ``settle`` raised. Another attempt would not help."""

    def __init__(self, cause: Exception) -> None:
        self.cause = cause


class Caller:
    """Makes the calls of one task. It lives in one event loop: it is made, used and closed there.

    How many calls are under way at once is up to the owner, which starts them.

    Args:
        function: what is called.
        calls: how.
        asynchronous: whether the function gives a coroutine. If not, it runs in threads.
        name: of the operator or column, for the names of threads.
        rng: for the jitter of retries.
        limit: the client of the limit of ``calls``; the caller closes it.
        journal: where results are found and kept; the caller closes it.

    Law: each attempt has a permit of the limit, which is released once the attempt has ended, however it ends. A result
    is returned only after the journal has kept it.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        calls: Calls,
        *,
        asynchronous: bool,
        name: str,
        rng: Random,
        limit: LimitClient | None = None,
        journal: Journal | None = None,
    ) -> None:
        self.figures = Figures()
        self._function = function
        self._calls = calls
        self._rng = rng
        self._limit = limit
        self._journal = journal
        self._threads = None if asynchronous else CallThreads(name, calls.concurrency, self.figures)
        self._hedging = CallHedging(self.figures) if calls.hedge else None
        self._under_way: dict[int, tuple[int, tuple[Any, ...]]] = {}  # attempts: when they began, and with what
        self._begun = 0  # attempts
        declared = calls.limit if limit is not None else None
        self._cost = None if declared is None else declared.cost
        self._settle = None if declared is None else declared.settle

    async def call(self, args: tuple[Any, ...], key: bytes | None = None, *, race: bool = False) -> Outcome:
        """Make one call. An error of the function is not raised: ``Outcome.error`` has it.

        Errors of the limit and of the journal are raised: they are no failures of this call.

        Args:
            args: the arguments of the function.
            key: what identifies the call in the journal. ``None``: it is neither looked up nor kept.
            race: whether the call may be made while another one under this key is under way, as a hedge must be.
        """
        if self._journal is None or key is None:
            outcome = Outcome()
            await self._make(args, outcome)
        else:
            outcome = await self._find_or_make(self._journal, key, args, race)
        if outcome.error is not None:
            self._failed(outcome)
        elif outcome.found:
            self.figures.found += 1
        else:
            self.figures.latencies.record(outcome.latency_ns)
        self.figures.calls += 1
        return outcome

    async def _find_or_make(self, journal: Journal, key: bytes, args: tuple[Any, ...], race: bool) -> Outcome:
        patience_s = max(PATIENCE_S, (self._calls.timeout_s or 0) * (1 + self._calls.retries))
        waits_until_ns = system_clock() + int(patience_s * SECOND_NS)
        while True:
            kept = journal.find(key)
            if kept is not None:
                return Outcome(value=kept[0], found=True)
            if race or journal.begin(key) or system_clock() > waits_until_ns:
                break
            await asyncio.sleep(self._rng.uniform(0.5, 1.5) * LOOK_AGAIN_S)
        outcome = Outcome()
        kept_now = False
        try:
            await self._make(args, outcome)
            if outcome.error is None:
                journal.keep(key, outcome.value)
                kept_now = True
        finally:
            if not kept_now and not race:
                journal.give_up(key)
        return outcome

    async def _make(self, args: tuple[Any, ...], outcome: Outcome) -> None:
        retries = Retries(self._calls, self._rng)
        try:
            cost = self._cost_of(args)
        except Exception as error:
            outcome.error = error
            return
        attempts = Attempts(partial(self._leave_for_hedge, cost), partial(self._attempt, args))
        started_ns = waited_ns = 0
        while True:
            permit = await self._permit(cost, outcome)
            if not outcome.attempts:
                started_ns, waited_ns = system_clock(), outcome.limit_wait_ns
            outcome.attempts += 1
            self.figures.attempts += 1
            if self._hedging is None:
                answer = await self._attempt(args, permit)
            else:
                answer, hedges, outcome.hedge_won = await self._hedging.attempt(permit, attempts)
                outcome.hedges += hedges
            outcome.value, outcome.error = answer
            outcome.latency_ns = system_clock() - started_ns - (outcome.limit_wait_ns - waited_ns)
            if outcome.error is None:
                return
            if isinstance(outcome.error, _NotSettled):
                outcome.error = outcome.error.cause
                return
            try:
                wait_s = retries.wait_s(outcome.error)
            except Exception as error:  # of the user's retry_on
                outcome.error = error
                return
            if wait_s is None:
                return
            self.figures.retries += not isinstance(outcome.error, RetryAfter)
            await asyncio.sleep(wait_s)

    def _cost_of(self, args: tuple[Any, ...]) -> float:
        if self._cost is None:
            return 1.0
        cost = self._cost(*args)
        if not is_number(cost) or cost < 0:
            raise ValueError(
                f"cost is not a number of units: cost={shorten(cost)} arguments={shorten(args)}: "
                "does the cost function of the limit return a number, zero or more?"
            )
        return float(cost)

    def _used(self, result: Any, args: tuple[Any, ...]) -> float:
        assert self._settle is not None, "asked only then"
        used = float(self._settle(result, *args))
        if not is_number(used) or used < 0:
            raise ValueError(
                f"settle gave no number of units: settle={used!r} arguments={shorten(args)}: "
                "does the settle function of the limit return a number, zero or more?"
            )
        return used

    async def _permit(self, cost: float, outcome: Outcome) -> Permit:
        if self._limit is None:
            return _NO_LIMIT
        asked_ns = system_clock()
        permit = await self._limit.acquire(cost)
        waited_ns = system_clock() - asked_ns
        outcome.limit_wait_ns += waited_ns
        self.figures.limit_wait_ns += waited_ns
        return permit

    def _leave_for_hedge(self, cost: float) -> Permit | None:
        return _NO_LIMIT if self._limit is None else self._limit.try_acquire(cost)

    async def _attempt(self, args: tuple[Any, ...], permit: Permit) -> Answer:
        """Make one attempt. All errors are in the answer; only its own cancelling is raised."""
        used: float | None = None
        number = self._begun = self._begun + 1
        self._under_way[number] = system_clock(), args
        try:
            answer = await self._timed(args)
            if isinstance(answer[1], RetryAfter):
                self.figures.throttled += 1
                if self._limit is not None:
                    self._limit.throttled(answer[1].seconds)
            elif answer[1] is None and self._settle is not None:
                try:
                    used = self._used(answer[0], args)
                except Exception as error:
                    return None, _NotSettled(error)
            return answer
        finally:
            del self._under_way[number]
            permit.release(used)

    async def _timed(self, args: tuple[Any, ...]) -> Answer:
        timeout_s = self._calls.timeout_s
        if self._threads is not None:
            try:
                return await self._threads.run(self._function, args, timeout_s)
            except TimeoutError as error:
                self.figures.timeouts += 1
                return None, error
        if timeout_s is None:
            return await self._awaited(args)
        try:
            async with asyncio.timeout(timeout_s) as scope:
                answer = await self._awaited(args)
            if answer[1] is None or not scope.expired():
                return answer
        except TimeoutError:  # of the scope, as errors of the function are in the answer
            pass
        self.figures.timeouts += 1
        return None, TimeoutError(f"no answer in time: timeout_s={timeout_s}: is the service slow, or the time short?")

    async def _awaited(self, args: tuple[Any, ...]) -> Answer:
        try:
            return await self._function(*args), None
        except BaseException as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise  # this call is cancelled, or has taken too long; any other one is the function's own
            return None, error

    def _failed(self, outcome: Outcome) -> None:
        self.figures.failed += 1
        outcome.value = None
        assert outcome.error is not None
        if outcome.attempts > 1:
            note = f"after {outcome.attempts} attempts"
            if note not in getattr(outcome.error, "__notes__", ()):
                outcome.error.add_note(note)

    def oldest_attempt(self) -> tuple[int, tuple[Any, ...]] | None:
        """When the oldest attempt under way began, and its arguments. From any thread.

        With a time limit, attempts within it do not count: they will end.
        """
        oldest = min(tuple(self._under_way.values()), key=itemgetter(0), default=None)
        timeout_s = self._calls.timeout_s
        if oldest is None or (timeout_s is not None and system_clock() - oldest[0] < timeout_s * SECOND_NS):
            return None
        return oldest

    async def close(self) -> None:
        """Close the limit and the journal, and end the threads. Calls under way are to be cancelled before."""
        if self._hedging is not None:
            self._hedging.close()
        if self._threads is not None:
            self._threads.close()
        if self._limit is not None:
            await self._limit.close()
        if self._journal is not None:
            self._journal.close()
