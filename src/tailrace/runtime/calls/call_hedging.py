"""Hedges calls: an attempt that is late is made once more, the first answer counts, and the others are cancelled.

``CallHedger`` decides which. This module holds the attempts under way and the timer, and acts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple

from tailrace.calls.call_hedger import CallHedger
from tailrace.clock import MILLISECOND_NS, SECOND_NS, system_clock
from tailrace.runtime.calls.figures import Figures
from tailrace.runtime.calls.ports import Permit
from tailrace.runtime.calls.threads import Answer

TICK_NS = 5 * MILLISECOND_NS
"""Between two looks at the ages of attempts. A limit without slack is asked again as often."""


class Attempts(NamedTuple):
    """How attempts of one call are made."""

    leave: Callable[[], Permit | None]  # at once, for a hedge; None: there is none
    make: Callable[[Permit], Coroutine[Any, Any, Answer]]


class _Race:
    """The attempts of one root that are under way."""

    def __init__(self, attempts: Attempts, decided: asyncio.Future[Answer]) -> None:
        self.attempts = attempts
        self.decided = decided
        self.running: dict[asyncio.Task[Answer], bool] = {}  # whether it is a hedge
        self.permit: Permit | None = None  # for the hedge that is about to start
        self.hedges = 0
        self.hedge_won = False

    def start(self, permit: Permit, hedge: bool) -> None:
        task = asyncio.ensure_future(self.attempts.make(permit))
        self.running[task] = hedge
        self.hedges += hedge
        task.add_done_callback(partial(self._ended, permit))

    def _ended(self, permit: Permit, task: asyncio.Task[Answer]) -> None:
        hedge = self.running.pop(task)
        permit.release()  # an attempt that was cancelled before its first step could not
        broken = None if task.cancelled() else task.exception()  # asked for in any case, or asyncio complains
        if self.decided.done():
            return
        if task.cancelled():
            self.decided.cancel()
        elif broken is not None:
            self.decided.set_exception(broken)
        elif task.result()[1] is None:
            self.hedge_won = hedge
            self.decided.set_result(task.result())
        elif not self.running:  # one error is no answer while another attempt may still give one
            self.decided.set_result(task.result())

    def cancel(self) -> None:
        for task in self.running:
            task.cancel()


class CallHedging:
    """The hedges of one caller, in its event loop."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures
        self._loop = asyncio.get_running_loop()
        self._hedger = CallHedger(self._admitted)
        self._races: dict[int, _Race] = {}
        self._roots = 0
        self._timer: asyncio.TimerHandle | None = None  # while attempts are under way
        self._ticks_ns = 0  # when the timer fires

    async def attempt(self, permit: Permit, attempts: Attempts) -> tuple[Answer, int, bool]:
        """Make one attempt, with hedges if it is late. Returns the answer, the hedges, and whether one of them won."""
        root = self._roots = self._roots + 1
        race = self._races[root] = _Race(attempts, self._loop.create_future())
        race.start(permit, hedge=False)
        self._hedger.emitted(root, system_clock())
        if self._timer is None:
            self._set_timer()
        settled = False
        try:
            answer = await race.decided
            settled = True
        finally:
            race.cancel()
            del self._races[root]
            if not settled:
                self._hedger.abandoned(root)
        if answer[1] is None:
            self._hedger.completed(root, system_clock(), race.hedge_won)
        else:
            self._hedger.failed(root, system_clock())
        self._figures.hedges_won += race.hedge_won
        return answer, race.hedges, race.hedge_won

    def _admitted(self, root: int) -> bool:
        race = self._races[root]
        race.permit = race.attempts.leave()
        return race.permit is not None

    def _set_timer(self) -> None:
        self._ticks_ns = system_clock() + TICK_NS
        self._timer = self._loop.call_later(TICK_NS / SECOND_NS, self._tick)

    def _tick(self) -> None:
        """Hedge what is late; but if the loop itself stood still, let it first take the answers that have come."""
        self._timer = None
        now_ns = system_clock()
        if now_ns - self._ticks_ns < TICK_NS:
            self._hedge_late(now_ns)
        if self._races:
            self._set_timer()

    def _hedge_late(self, now_ns: int) -> None:
        for root in self._hedger.due(now_ns):
            race = self._races[root]
            assert race.permit is not None, "a root is due only if it was admitted"
            race.start(race.permit, hedge=True)
            self._figures.hedges += 1

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
