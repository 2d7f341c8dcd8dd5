"""The calls of one task of an operator that has ``calls=…``: its caller, as the runner of the task sees it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tailrace.calls import Limit
from tailrace.core.emissions import is_hedge
from tailrace.core.plan.plan import OperatorPlan
from tailrace.core.tasks.open_bundle import Call
from tailrace.core.tasks.stages import as_results
from tailrace.metrics.counters import TaskCounters
from tailrace.runtime.calls.caller import Caller
from tailrace.runtime.calls.ports import LimitClient
from tailrace.runtime.worker.task_journals import TaskJournal
from tailrace.topology import Role, is_async

OpenLimit = Callable[[Limit], LimitClient]
"""Finds a limit. It is called in the event loop of the task."""

OpenJournal = Callable[[OperatorPlan, int], TaskJournal]
"""Opens the journal of a task, which is given by its operator and number."""


class TaskCalls:
    """Makes the calls of one task. Made, used and closed in the event loop of the task."""

    def __init__(
        self,
        operator: OperatorPlan,
        label: str,
        function: Callable[[Any], Any],
        limit: LimitClient | None,
        journal: TaskJournal | None,
    ) -> None:
        calls = operator.operator.calls
        assert calls is not None, operator
        asynchronous = is_async(operator.operator.body)
        if operator.operator.role is Role.FLAT_MAP:
            function = _listing_later(function) if asynchronous else _listing(function)
        self._journal = journal
        kept = None if journal is None else journal.results
        self._caller = Caller(
            function, calls, asynchronous=asynchronous, name=label, rng=Random(), limit=limit, journal=kept
        )

    def is_needed(self, call: Call) -> bool:
        return self._journal is None or not self._journal.is_durable(call)

    async def make(self, call: Call) -> tuple[Any, BaseException | None]:
        key = None if self._journal is None else self._journal.key_of(call)
        outcome = await self._caller.call((call.value,), key, race=is_hedge(call.bundle.emission))
        call.started_ns += outcome.limit_wait_ns  # to wait for the limit is no work
        return outcome.value, outcome.error

    def oldest(self) -> tuple[int, Any] | None:
        found = self._caller.oldest_attempt()
        return None if found is None else (found[0], found[1][0])

    def count(self, counters: TaskCounters) -> None:
        figures = self._caller.figures
        counters.calls = figures.calls
        counters.call_attempts = figures.attempts
        counters.call_retries = figures.retries
        counters.call_timeouts = figures.timeouts
        counters.call_refusals = figures.throttled
        counters.call_hedges = figures.hedges
        counters.call_hedges_won = figures.hedges_won
        counters.calls_failed = figures.failed
        counters.calls_found = figures.found
        counters.limit_wait_ns = figures.limit_wait_ns
        counters.given_up_threads = figures.given_up_threads

    async def close(self) -> None:
        await self._caller.close()


def _listing(function: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    """Have a generator run where the function runs, and its errors count as those of the function."""

    def listing(value: Any) -> list[Any]:
        return as_results(function(value))

    return listing


def _listing_later(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    async def listing(value: Any) -> list[Any]:
        return as_results(await function(value))

    return listing
