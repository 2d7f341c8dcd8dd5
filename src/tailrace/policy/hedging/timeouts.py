"""Hedging by a timeout: the pending roots of one source task, oldest first, and the hedger that goes by their age.

A hedge may hang like any other emission. If roots are slow by chance, which shows in most hedges winning, a hedge that
is late itself is hedged once more.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.policy.hedging.api import MOST_HEDGES, HedgerState, Load
from tailrace.policy.hedging.budget import Budget, Limits
from tailrace.policy.hedging.latencies import UNSEEN


class Pending:
    """Roots that are not complete, by how many hedges they have.

    Law: no root has more than ``MOST_HEDGES``, however often recovery emits it again.
    """

    def __init__(self) -> None:
        # By number of hedges: root -> time of its newest emission, in that order.
        self._waiting: list[dict[int, int]] = [{} for _ in range(MOST_HEDGES + 1)]
        self._emitted: dict[int, int] = {}  # hedged root -> time of its last emission that was not a hedge

    def emitted(self, root: int, now_ns: int) -> None:
        waiting = self._waiting[0]
        if root in self._emitted:
            self._emitted[root] = now_ns
            waiting = next(waiting for waiting in self._waiting if root in waiting)
        waiting.pop(root, None)
        waiting[root] = now_ns

    def is_empty(self) -> bool:
        """Whether no root may be hedged any more."""
        return not any(self._waiting[:MOST_HEDGES])

    def since_ns(self, hedges: int) -> float:
        """The oldest last emission among roots with ``hedges`` hedges; ``UNSEEN`` if there are none."""
        return next(iter(self._waiting[hedges].values()), UNSEEN)

    def oldest(self, hedges: int) -> int:
        """The root that has waited longest among those with ``hedges`` hedges. There must be one."""
        return next(iter(self._waiting[hedges]))

    def hedge(self, hedges: int, now_ns: int) -> int:
        """Give one more hedge to the root that has waited longest among those with ``hedges``. Returns the root."""
        root = self.oldest(hedges)
        self._emitted.setdefault(root, self._waiting[hedges].pop(root))
        self._waiting[hedges + 1][root] = now_ns
        return root

    def completed(self, root: int) -> tuple[int, int]:
        """Forget the root. Returns when it was emitted, and how often it was hedged."""
        emitted_ns = self._waiting[0].pop(root, None)
        if emitted_ns is not None:
            return emitted_ns, 0
        hedges = next(hedges for hedges, waiting in enumerate(self._waiting) if root in waiting)
        del self._waiting[hedges][root]
        return self._emitted.pop(root), hedges


class TimedHedger:
    """Hedges roots whose newest emission is older than a timeout, exact to the nanosecond, as far as the budget allows.

    All roots have the same timeout, so the oldest is the next to be due, and the first to be hedged when the budget
    allows it again. Roots without a hedge come before the others.
    """

    def __init__(self, timeout_ns: float, limits: Limits) -> None:
        self.timeout_ns = timeout_ns
        self.budget = Budget(limits)
        self.pending = Pending()

    def emitted(self, root: int, now_ns: int) -> None:
        self.pending.emitted(root, now_ns)

    def completed(self, root: int, now_ns: int, hedge: bool) -> None:
        emitted_ns, hedges = self.pending.completed(root)
        self.budget.completed(hedges, hedge)
        self.took(max(0, now_ns - emitted_ns), hedge)  # an emission from before a loss may complete first

    def took(self, latency_ns: int, hedge: bool) -> None:
        """A root has completed, so long after it was emitted. For subclasses."""

    def observed(self, load: Load, now_ns: int) -> None:
        self.budget.observed(load, now_ns)

    def due(self, now_ns: int) -> Sequence[int]:
        due: list[int] = []
        for hedges in self._hedge_counts():
            while now_ns - self.pending.since_ns(hedges) > self.timeout_ns and self.budget.affords():
                if not self.admits(self.pending.oldest(hedges)):
                    return due
                self.budget.spend()
                due.append(self.pending.hedge(hedges, now_ns))
        return due

    def admits(self, root: int) -> bool:
        """Whether a hedge of this root can be made now; if not, no other is tried until later. For subclasses."""
        return True

    def _hedge_counts(self) -> range:
        """The numbers of hedges that a root may have and still get one more."""
        return range(MOST_HEDGES if self.budget.lucky() else 1)

    def state(self) -> HedgerState:
        return HedgerState(None if self.timeout_ns == UNSEEN else int(self.timeout_ns), self.budget.left())

    def next_ns(self) -> float:
        return min(map(self.pending.since_ns, self._hedge_counts())) + self.timeout_ns + 1

    def wake_ns(self) -> int | None:
        next_ns = self.next_ns()
        # With an empty budget nothing is due until a root completes, after which `due` is called anyway.
        return None if next_ns == UNSEEN or not self.budget.affords() else int(next_ns)
