"""Adaptive timeout: hedge the slowest roots, as many as the budget pays for.

Du and Gupta (2016) take p90, p95 or p99.9 of the last second for a timeout, by how long the tail is beside the body
(``algorithm_1``): the cautious choices are there to keep hedges few. A budget does that by itself, and by what hedges
really cost. So with a budget a root is late when it is slower than nine in ten would be without hedges, or takes twice
the median, whichever is sooner; or slower than the quantile that the budget can pay for, if that is later. What it can
pay for is known for the timeout there was. At a shorter one hedges cost less: more of what they race still waits in
queues, and is spared. So as long as much of the budget is left and most hedges are first, twice as many are tried.
Without a budget, the timeout is what Algorithm 1 says.

Twice the median, because one stall holds up whatever queues behind it. Where more than a tenth is held up, p90 is how
long that waits, not how long roots take; where it is about a tenth, p90 is now the one, now the other.
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
MEDIAN, MOST = 0.5, 0.9
LATE = 2
"""Times the median: the paper's own measure of a tail that is long beside the body."""

LEFT_OVER = 2
"""Times what the budget is known to pay for, while much of it is left and hedges are lucky."""

SHARES = (0.9, 0.95, 0.99, 0.999)


def algorithm_1(p90: float, p95: float, p99: float, p999: float) -> float:
    """The paper's choice of a timeout."""
    if p99 > 2 * p90:
        return p90
    if p999 > 2 * p95:
        return p95
    return p999


class _AdaptiveHedger(TimedHedger):
    def __init__(self, limits: Limits) -> None:
        super().__init__(UNSEEN, limits)
        self._budgeted = limits.share is not None
        self._latencies = Latencies()
        self._ends_ns: int | None = None  # of the period

    def took(self, latency_ns: int, hedge: bool) -> None:
        self._latencies.add(latency_ns, censored=hedge)

    def due(self, now_ns: int) -> Sequence[int]:
        if self._ends_ns is None:
            self._ends_ns = now_ns + PERIOD_NS
        if now_ns >= self._ends_ns:
            self._ends_ns = now_ns + PERIOD_NS
            self._adjust()
        return super().due(now_ns)

    def _adjust(self) -> None:
        timeout_ns = self._payable() if self._budgeted else algorithm_1(*self._latencies.end_period(SHARES))
        if timeout_ns != UNSEEN:
            self.timeout_ns = timeout_ns

    def _payable(self) -> float:
        times = LEFT_OVER if self.budget.left_over() else 1
        payable = max(MEDIAN, 1 - times * self.budget.payable())
        shares = sorted({MEDIAN, MOST, payable})
        found = dict(zip(shares, self._latencies.end_period(shares), strict=True))
        return max(found[payable], min(found[MOST], LATE * found[MEDIAN]))

    def next_ns(self) -> float:
        """A period that ends may shorten the timeout."""
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

    def bind(self, rng: Random) -> _AdaptiveHedger:
        return _AdaptiveHedger(self.limits)


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
