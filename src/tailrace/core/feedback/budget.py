"""The feedback budget of a worker: feedback is limited to 2% of a core. Beyond that, reports are delayed and merged.

All tasks of the worker spend from one budget, and say afterwards how long a report took. A task that wants to process
its feedback waits until what was spent before has been earned again. Its later report then covers more tuples, which
costs less for each.

- A worker that spends little saves up to ``SAVED_NS`` of budget. Feedback is therefore immediate where tuples are few
  or come in bursts. Half of the savings is reserved for urgent reports.
- A task that has worked long enough since its last report that its part of the budget pays for the next one does not
  wait for others.
- Reports that senders hold tuples for may take more of the budget than others, up to a bound on all feedback.
"""

from __future__ import annotations

from tailrace.clock import MILLISECOND_NS, SECOND_NS
from tailrace.core.token_bucket import TokenBucket

FEEDBACK_SHARE = 0.02
"""The share of one core that feedback may take."""

REPORTS = 0.75
"""The part of the share that reports may take. Senders spend the rest on reading them, and do not wait for that."""

BOUND = 0.9
"""The part of the share that reports may take if senders hold tuples until they get them."""

READERS = 3
"""How many workers' reports a sender can read within its own share. Where there are more workers, each reports less."""

SAVED_NS = 50 * MILLISECOND_NS
"""The most that a worker saves, and the most that it owes, as the time in which it earns that much."""

RESERVED_NS = SAVED_NS // 2
"""The part of the savings that is for urgent reports, as the time in which it is earned."""

SMOOTHING = 0.05
"""The weight of a new report in the average price of one."""


class FeedbackBudget(TokenBucket):
    """Nanoseconds of processor time, spent by all tasks of a worker.

    Threads may spend at the same moment. One of the amounts is lost then, which does no harm.
    """

    def __init__(self, workers: int = 1, share: float = FEEDBACK_SHARE) -> None:
        each = share * min(1.0, READERS / workers)
        self._share = each * REPORTS
        super().__init__(_per_s(self._share), SAVED_NS, SAVED_NS)
        self._all = TokenBucket(_per_s(each * BOUND), SAVED_NS, SAVED_NS)
        self.tasks = 0  # how many tasks report
        self._price_ns = 0.0  # what one report costs on average, with what was spent on feedback between two reports
        self._since_ns = 0  # spent since the last report

    def spend(self, amount: int, now_ns: int) -> None:
        super().spend(amount, now_ns)
        self._all.spend(amount, now_ns)
        self._since_ns += amount

    def spend_within_bound(self, amount: int, now_ns: int) -> None:
        """Spend on a report that senders hold tuples for."""
        self._all.spend(amount, now_ns)
        self._since_ns += amount

    def report_sent(self) -> None:
        """A task has reported, and has already called ``spend`` for it."""
        self._price_ns += (self._since_ns - self._price_ns) * (SMOOTHING if self._price_ns else 1)
        self._since_ns = 0

    @property
    def urgent_ns(self) -> int:
        """From then on an urgent report may be made."""
        return max(self.free_ns, self.bound_ns)

    @property
    def ample_ns(self) -> int:
        """From then on a report may be made that is not urgent."""
        return self.urgent_ns + RESERVED_NS

    @property
    def bound_ns(self) -> int:
        """From then on a report may be made that senders hold tuples for."""
        return self._all.free_ns

    @property
    def paying_ns(self) -> int:
        """A task that has worked this long since its last report may make one: if all do so, they spend the share."""
        return int(self.tasks * self._price_ns / self._share)


def _per_s(share: float) -> int:
    return max(1, int(share * SECOND_NS))
