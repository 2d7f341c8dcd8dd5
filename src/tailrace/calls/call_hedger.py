"""The hedger of calls: the engine's adaptive timeout and budget, where a root is one attempt of a call.

It differs from the hedger of a source in four things:

- A job may last seconds only, and its calls may be few. A period of the rule is therefore short, and lasts until it has
  enough samples.
- A call is late when it is slower than nineteen in twenty, and than twice the median, whatever share of hedges has won.
  Calls do not queue behind one that stalls, so a hedge takes about the median: where all calls take nearly the same
  time, a sooner one would lose to the noise. The budget takes the oldest first, and these are the ones that hang.
- A hedge needs leave of the call's limit. Without it the hedge is not made, and the budget is not charged.
- An attempt may fail. It would have taken at least as long as it did, so its sample is censored.
"""

from __future__ import annotations

from collections.abc import Callable

from tailrace.clock import MILLISECOND_NS
from tailrace.policy.hedging.adaptive import LATE, LEFT_OVER, MEDIAN, AdaptiveHedger
from tailrace.policy.hedging.budget import Limits
from tailrace.policy.hedging.latencies import FEWEST, UNSEEN

SHARE = 0.05
"""Hedges are at most one call in twenty, and one full bucket."""

PERIOD_NS = 100 * MILLISECOND_NS
"""Shortest time between two adjustments of the timeout."""


class CallHedger(AdaptiveHedger):
    """Decides which attempts are made once more.

    Args:
        admitted: asks for leave to make one more attempt of this root. What it grants is used at once.
    """

    def __init__(self, admitted: Callable[[int], bool]) -> None:
        super().__init__(Limits(SHARE, gate=None), PERIOD_NS, fewest=FEWEST)
        self._admitted = admitted

    def payable_ns(self) -> float:
        times = LEFT_OVER if self.budget.left_over() else 1
        median_ns, slow_ns = self.latencies.end_period((MEDIAN, 1 - times * SHARE))
        return max(LATE * median_ns, 0 if slow_ns == UNSEEN else slow_ns)  # unseen: more than that do not answer

    def admits(self, root: int) -> bool:
        return self._admitted(root)

    def failed(self, root: int, now_ns: int) -> None:
        """All attempts of a root have ended, and none with an answer."""
        emitted_ns, hedges = self.pending.completed(root)
        self.budget.completed(hedges, won=False)
        self.took(max(0, now_ns - emitted_ns), hedge=True)

    def abandoned(self, root: int) -> None:
        """The call was cancelled. Nothing is learned of it."""
        self.pending.completed(root)
