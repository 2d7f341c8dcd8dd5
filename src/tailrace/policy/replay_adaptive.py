"""Adaptive timeout: hedge the slowest roots, as many as the budget pays for and at most a tenth.

Du and Gupta (2016) take p90, p95 or p99.9 of the last second for a timeout, by how long the tail is beside the body
(``algorithm_1``): the cautious choices are there to keep hedges few. A budget does that by itself, and by what hedges
really cost. So with a budget the timeout is p90 of the latencies that roots would have had without hedges, or the
higher quantile that the budget can pay for; without one, it is what Algorithm 1 says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from tailrace.clock import SECOND_NS
from tailrace.policy.budget import Limits
from tailrace.policy.latencies import UNSEEN, Latencies
from tailrace.policy.overdue import TimedReplayer

PERIOD_NS = SECOND_NS
LOWEST = 0.9
"""The quantile below which nothing is hedged: what is slower than nine in ten is a tail, the rest is the body."""

SHARES = (0.9, 0.95, 0.99, 0.999)


def algorithm_1(p90: float, p95: float, p99: float, p999: float) -> float:
    """The paper's choice of a timeout."""
    if p99 > 2 * p90:
        return p90
    if p999 > 2 * p95:
        return p95
    return p999


class _AdaptiveReplayer(TimedReplayer):
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
        if self._budgeted:
            timeout_ns = self._latencies.end_period([max(LOWEST, 1 - self.budget.payable())])[0]
        else:
            timeout_ns = algorithm_1(*self._latencies.end_period(SHARES))
        if timeout_ns != UNSEEN:
            self.timeout_ns = timeout_ns

    def next_ns(self) -> float:
        """A period that ends may shorten the timeout."""
        next_ns = super().next_ns()
        return next_ns if self._ends_ns is None or self.pending.is_empty() else min(next_ns, self._ends_ns)


@dataclass(frozen=True)
class AdaptiveTimeout:
    """Hedge what is slower than nine in ten, within a budget and below a gate."""

    limits: Limits

    @property
    def name(self) -> str:
        return "adaptive_timeout"

    @property
    def cancels(self) -> bool:
        return True

    @property
    def budget(self) -> float | None:
        return self.limits.share

    def bind(self, rng: Random) -> _AdaptiveReplayer:
        return _AdaptiveReplayer(self.limits)


def adaptive_timeout(*, budget: float | None = 0.05, gate: float | None = 0.98) -> AdaptiveTimeout:
    """Emit a root again when it is slower than nine in ten.

    ``budget`` is what hedges may add to the work, ``gate`` the utilisation of the busiest operator above which there
    are none. Either may be None.
    """
    return AdaptiveTimeout(Limits(budget, gate))
