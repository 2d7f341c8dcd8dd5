"""Adaptive timeout: hedge the slowest roots, as many as the budget pays for.

Decides, once a period, from what age on a root is late: from the latencies of completed roots and from what the budget
can pay for. Law: that of ``Hedger``.

Du and Gupta (2016) take p90, p95 or p99.9 of the last second as the timeout, depending on how long the tail is compared
with the body (``algorithm_1``). Their cautious choices keep hedges few. Here a budget does that, by what hedges really
cost, so this rule differs from the paper:

- A root is late when it is slower than nine in ten would be without hedges, or than twice the median, whichever is
  sooner; but not before the quantile that the budget can pay for.
- What the budget can pay for is known for the current timeout only. At a shorter timeout hedges cost less, because more
  of the work that they race still waits in queues and can be thrown away. While much of the budget is left and most
  hedges win, the rule therefore tries twice as many.
- Without a budget, the timeout is the paper's.

Twice the median is there because one stall holds up all that queues behind it. If more than a tenth of the roots is
held up, p90 is the length of a stall, and if it is about a tenth, p90 jumps between the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from tailrace.clock import SECOND_NS
from tailrace.policy.hedging.budget import Limits
from tailrace.policy.hedging.latencies import UNSEEN, Latencies
from tailrace.policy.hedging.timeouts import TimedHedger

PERIOD_NS = SECOND_NS
"""The period after which a source's hedger adapts its timeout. The hedger of calls has shorter ones."""

MEDIAN, MOST = 0.5, 0.9
LATE = 2
"""Multiple of the median. The paper uses the same factor to tell a long tail from a short one."""

LEFT_OVER = 2
"""Multiple of what the budget is known to pay for, tried while much of it is left and hedges are lucky."""

SHARES = (0.9, 0.95, 0.99, 0.999)


def algorithm_1(p90: float, p95: float, p99: float, p999: float) -> float:
    """The timeout that the paper chooses."""
    if p99 > 2 * p90:
        return p90
    if p999 > 2 * p95:
        return p95
    return p999


class AdaptiveHedger(TimedHedger):
    """The hedger of ``AdaptiveTimeout``. A period may last longer than ``period_ns``, until it has enough samples."""

    def __init__(self, limits: Limits, period_ns: int = PERIOD_NS, fewest: int = 0) -> None:
        super().__init__(UNSEEN, limits)
        self._period_ns = period_ns
        self._fewest = fewest  # samples of a period
        self._budgeted = limits.share is not None
        self.latencies = Latencies()
        self._ends_ns: int | None = None  # end of the current period

    def took(self, latency_ns: int, hedge: bool) -> None:
        self.latencies.add(latency_ns, censored=hedge)

    def due(self, now_ns: int) -> Sequence[int]:
        if self._ends_ns is None:
            self._ends_ns = now_ns + self._period_ns
        if now_ns >= self._ends_ns and self.latencies.in_period >= self._fewest:
            self._ends_ns = now_ns + self._period_ns
            self._adjust()
        return super().due(now_ns)

    def _adjust(self) -> None:
        timeout_ns = self.payable_ns() if self._budgeted else algorithm_1(*self.latencies.end_period(SHARES))
        if timeout_ns != UNSEEN:
            self.timeout_ns = timeout_ns

    def payable_ns(self) -> float:
        """The timeout with a budget, at the end of a period. ``UNSEEN``: not known; it stays as it was."""
        times = LEFT_OVER if self.budget.left_over() else 1
        payable = max(MEDIAN, 1 - times * self.budget.payable())
        shares = sorted({MEDIAN, MOST, payable})
        found = dict(zip(shares, self.latencies.end_period(shares), strict=True))
        return max(found[payable], min(found[MOST], LATE * found[MEDIAN]))

    def next_ns(self) -> float:
        """The end of a period may shorten the timeout, so it is a time to wake up at."""
        next_ns = super().next_ns()
        return next_ns if self._ends_ns is None or self.pending.is_empty() else min(next_ns, self._ends_ns)


@dataclass(frozen=True)
class AdaptiveTimeout:
    """Hedges roots that are slower than nine in ten, or than twice the median. ``adaptive_timeout()`` makes one."""

    name = "adaptive_timeout"
    cancels = True

    limits: Limits

    @property
    def budget(self) -> float | None:
        return self.limits.share

    def bind(self, rng: Random) -> AdaptiveHedger:
        return AdaptiveHedger(self.limits)


def adaptive_timeout(*, budget: float | None = 0.05, gate: float | None = 0.98) -> AdaptiveTimeout:
    """Hedge a root when it is slower than nine in ten, or than twice the median, of what was seen lately.

    Args:
        budget: what hedges may add to the work, as a share of it. ``None``: no limit.
        gate: the utilisation of the busiest operator above which nothing is hedged. ``None``: hedge always.

    Example:
        >>> tr.Tail(hedge=tr.adaptive_timeout(budget=0.02)).names()["replay"]
        'adaptive_timeout'
    """
    return AdaptiveTimeout(Limits(budget, gate))
