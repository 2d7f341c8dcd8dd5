"""Latency-based load balancing (Du and Gupta 2016, Algorithm 2): slow tasks hand traffic to fast ones bit by bit.

Decides by the latencies of tuples at tasks, from entering the queue until they have run. Once in a period a sender asks
all tasks and pairs the fastest with the slowest, the next with the next, and so on. Where two differ by more than a
threshold, one unit of this sender's traffic moves from the slow task to the fast one. Senders decide independently.
Laws: those of ``FeedbackChooser`` and ``Receiver``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from tailrace.clock import SECOND_NS
from tailrace.errors import OptionError, shorten
from tailrace.policy.groupings.feedback import FeedbackChooser, Message, Receiver
from tailrace.policy.groupings.latency_balanced_fast import LatencyBalancedFast
from tailrace.policy.groupings.load.cost_totals import CostTotals
from tailrace.policy.groupings.load.shares import Shares
from tailrace.policy.numbers import is_number

PERIOD_S, THRESHOLD, UNIT = 5.0, 1.2, 0.01
ALPHA = 0.5
"""Weight of the last period in the aged latency of a task."""

UNKNOWN = 0.0


class Ask(NamedTuple):
    """From a sender: asks for latencies."""


class Took(NamedTuple):
    """From a task: the number of all its tuples so far, and the sum of their latencies."""

    tuples: int
    total_ns: int


class _Balancer(FeedbackChooser):
    estimated: CostTotals  # here: the latency of tuples at tasks, waiting included

    def __init__(self, tasks: int, period_ns: int, threshold: float, unit: float, rng: Random) -> None:
        super().__init__()
        self.shares = Shares(tasks, rng.randrange(tasks))
        self._period_ns, self._threshold, self._unit = period_ns, threshold, unit
        self._phase_ns = rng.randrange(
            period_ns
        )  # senders that asked at the same moment would all move traffic at once
        self._asked_ns: int | None = None
        self._unanswered: set[int] = set()
        self._told = [Took(0, 0)] * tasks
        self._aged_ns = [UNKNOWN] * tasks
        self.estimated = CostTotals()

    def tick(self, now_ns: int) -> None:
        if self._asked_ns is None:
            self._asked_ns = now_ns - self._phase_ns
        if now_ns - self._asked_ns >= self._period_ns:
            self._asked_ns = now_ns
            self._unanswered = set(range(len(self._told)))
            self.outbox.extend((task, Ask()) for task in range(len(self._told)))

    def choose_many(self, values: Sequence[Any]) -> Sequence[int]:
        return [self.shares.next() for _ in values]

    def hear(self, task: int, message: Message, now_ns: int) -> Sequence[int]:
        assert isinstance(message, Took), message
        before, self._told[task] = self._told[task], message
        tuples = message.tuples - before.tuples
        if tuples:
            latency_ns = (message.total_ns - before.total_ns) / tuples
            aged_ns = self._aged_ns[task]
            if aged_ns:
                self.estimated.add(aged_ns, tuples)
            self._aged_ns[task] = aged_ns + ALPHA * (latency_ns - aged_ns) if aged_ns else latency_ns
        self._unanswered.discard(task)
        if not self._unanswered and all(self._aged_ns):
            self._balance()
        return ()

    def _balance(self) -> None:
        aged_ns = self._aged_ns
        ranked = sorted(range(len(aged_ns)), key=lambda task: (aged_ns[task], task))
        for fast, slow in zip(ranked, reversed(ranked), strict=True):
            if aged_ns[slow] <= self._threshold * aged_ns[fast]:
                break
            self.shares.move(self._unit, slow, fast)


class _Timekeeper(Receiver):
    """Law: its answers add up to all tuples and, if these run in the order of arrival, to their latencies."""

    def __init__(self) -> None:
        super().__init__()
        self._since_ns: deque[tuple[int, int]] = deque()  # (tuples, arrival) of those that have not run
        self._took = Took(0, 0)

    def received(self, sender: int, attached: Message | None, now_ns: int) -> None:
        self._since_ns.append((1, now_ns))

    def received_many(self, sender: int, tuples: int, now_ns: int) -> None:
        self._since_ns.append((tuples, now_ns))

    def executed(
        self, sender: int, value: Any, attached: Message | None, duration_ns: int, queued: int, now_ns: int
    ) -> None:
        self._executed(1, now_ns)

    def executed_many(
        self, sender: int, values: Sequence[Any], durations_ns: Sequence[int], queued: int, now_ns: int
    ) -> None:
        self._executed(len(values), now_ns)

    def _executed(self, tuples: int, now_ns: int) -> None:
        before, total_ns = self._took
        self._took = Took(before + tuples, total_ns + tuples * now_ns - self._take(tuples))

    def _take(self, tuples: int) -> int:
        """Remove the oldest. Returns the sum of their arrival times."""
        since_ns, total_ns = self._since_ns, 0
        while tuples:
            came, at_ns = since_ns.popleft()
            if came > tuples:
                since_ns.appendleft((came - tuples, at_ns))
                came = tuples
            total_ns += came * at_ns
            tuples -= came
        return total_ns

    def dropped(self, sender: int, attached: Message | None, queued: int, now_ns: int) -> None:
        self._take(1)

    def hear(self, sender: int, message: Message, now_ns: int) -> None:
        assert isinstance(message, Ask), message
        self.outbox.append((sender, self._took))


@dataclass(frozen=True)
class LatencyBalanced:
    """Each sender moves traffic from slow tasks to fast ones, once in a period. ``latency_balanced()`` makes one."""

    name = "latency_balanced"
    keyed = False

    period_ns: int = 5 * SECOND_NS
    threshold: float = 1.2
    unit: float = 0.01

    def bind(self, tasks: int, rng: Random) -> _Balancer:
        return _Balancer(tasks, self.period_ns, self.threshold, self.unit, rng)

    def bind_receiver(self, task: int, tasks: int, senders: int, rng: Random) -> _Timekeeper:
        return _Timekeeper()


def latency_balanced(
    *, fast: bool = False, period_s: float = PERIOD_S, threshold: float = THRESHOLD, unit: float = UNIT
) -> LatencyBalanced | LatencyBalancedFast:
    """Move traffic from slow tasks to fast ones, as Du and Gupta (2016) do.

    Args:
        fast: whether to go by tuples in flight before latencies. It adapts within a second or two, and has no other
            parameters.
        period_s: seconds between two moves.
        threshold: how many times as slow as the fastest task a task must be to lose traffic; 1 or more.
        unit: the share of a sender's traffic that moves at a time, above 0 and up to 1.

    Example:
        >>> requests = tr.Topology("requests").source("requests", tr.from_iterable(range(10)))
        >>> requests.map("answer", str, tasks=4, grouping=tr.latency_balanced(fast=True))
        Stream(answer.main)
    """
    given = f"period_s={shorten(period_s)} threshold={shorten(threshold)} unit={shorten(unit)}"
    numbers = all(map(is_number, (period_s, threshold, unit)))
    if not numbers or period_s <= 0 or threshold < 1 or not 0 < unit <= 1:
        raise OptionError(
            f"balancing needs a period above 0, a threshold from 1 on, and a unit of traffic up to 1: {given}"
        )
    if fast:
        if (period_s, threshold, unit) != (PERIOD_S, THRESHOLD, UNIT):
            raise OptionError(f"balancing with fast=True has no other parameters: {given}: did you mean fast=False?")
        return LatencyBalancedFast()
    return LatencyBalanced(round(period_s * SECOND_NS), threshold, unit)
