"""What feedback may cost a worker: a share of one core, which its tasks spend together.

Each says afterwards what it has spent. Whoever wants to look up waits until all that was spent has been earned; what it
has to tell is told together then, for less. A worker that spends little saves a little, so that feedback is at once
wherever tuples are few or come in bursts; half of that is kept for what is urgent. And whoever has worked for so long
that its part of the share pays for it need not wait for others.

What tuples wait for may take more of it, up to a bound of all.
"""

from __future__ import annotations

from tailrace.clock import MILLISECOND_NS, SECOND_NS
from tailrace.core.token_bucket import TokenBucket

FEEDBACK_SHARE = 0.02
"""Of a core, unless somebody wants to spend more or less on it."""

REPORTS = 0.75
BOUND = 0.9
"""Of that, for whatever waits. What senders hear is spent, but does not wait."""

HEARERS = 3
"""Workers whose reports a sender can hear within its own share. Where there are more, each spends less."""

SAVED_NS = 50 * MILLISECOND_NS
"""So long a worker saves, and goes into debt, at most."""

KEPT_NS = SAVED_NS // 2
"""What is earned in this time is for what is urgent."""

SMOOTHING = 0.05  # of the price


class FeedbackBudget(TokenBucket):
    """Nanoseconds are spent, and told afterwards.

    Threads may spend at the same moment. One of the sums is lost then, which does no harm.
    """

    def __init__(self, workers: int = 1, share: float = FEEDBACK_SHARE) -> None:
        each = share * min(1.0, HEARERS / workers)
        self._share = each * REPORTS
        super().__init__(_per_s(self._share), SAVED_NS, SAVED_NS)
        self._all = TokenBucket(_per_s(each * BOUND), SAVED_NS, SAVED_NS)
        self.tasks = 0  # that have something to tell
        self._price_ns = 0.0  # of one telling, and of all that was told and heard before it
        self._since_ns = 0  # spent since the last one

    def spend(self, amount: int, now_ns: int) -> None:
        super().spend(amount, now_ns)
        self._all.spend(amount, now_ns)
        self._since_ns += amount

    def spend_within_bound(self, amount: int, now_ns: int) -> None:
        """On what tuples wait for."""
        self._all.spend(amount, now_ns)
        self._since_ns += amount

    def told(self) -> None:
        """A task has told what it has run, and has spent what that took."""
        self._price_ns += (self._since_ns - self._price_ns) * (SMOOTHING if self._price_ns else 1)
        self._since_ns = 0

    @property
    def urgent_ns(self) -> int:
        """From then on something may be spent on what is urgent, though no tuples wait for it."""
        return max(self.free_ns, self.bound_ns)

    @property
    def ample_ns(self) -> int:
        """From then on something may be spent on what is not urgent."""
        return self.urgent_ns + KEPT_NS

    @property
    def bound_ns(self) -> int:
        """From then on something may be spent on what tuples wait for."""
        return self._all.free_ns

    @property
    def paying_ns(self) -> int:
        """A task that has worked for so long since it last told may do it: if all did, that would be the share."""
        return int(self.tasks * self._price_ns / self._share)


def _per_s(share: float) -> int:
    return max(1, int(share * SECOND_NS))
