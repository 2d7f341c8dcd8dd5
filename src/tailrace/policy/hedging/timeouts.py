"""Roots of one source task that take too long, oldest first, and the hedger that hedges them by a timeout.

A hedge may hang like any other emission. Where it is luck that makes roots slow, which shows in most hedges being
first, one that is late itself is hedged once more.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.policy.hedging.api import MOST_HEDGES, HedgerState, Load
from tailrace.policy.hedging.budget import Budget, Limits
from tailrace.policy.hedging.latencies import UNSEEN


class Pending:
    """Roots that are not complete, by how many hedges they have.

    Law: none has more than ``MOST_HEDGES``, however often it is emitted anew after a loss.
    """

    def __init__(self) -> None:
        # root -> when its newest incarnation was emitted, in that order
        self._waiting: list[dict[int, int]] = [{} for _ in range(MOST_HEDGES + 1)]
        self._emitted: dict[int, int] = {}  # hedged root -> when it was emitted, hedges aside

    def emitted(self, root: int, now_ns: int) -> None:
        line = self._waiting[0]
        if root in self._emitted:
            self._emitted[root] = now_ns
            line = next(line for line in self._waiting if root in line)
        line.pop(root, None)
        line[root] = now_ns

    def is_empty(self) -> bool:
        """Is there no root that may be hedged?"""
        return not any(self._waiting[:MOST_HEDGES])

    def since_ns(self, hedges: int) -> float:
        """Since when the newest incarnation of any root with so many hedges is under way; ``UNSEEN``: there is none."""
        return next(iter(self._waiting[hedges].values()), UNSEEN)

    def hedge(self, hedges: int, now_ns: int) -> int:
        """One more for the root with so many that has waited longest."""
        line = self._waiting[hedges]
        root = next(iter(line))
        self._emitted.setdefault(root, line.pop(root))
        self._waiting[hedges + 1][root] = now_ns
        return root

    def completed(self, root: int) -> tuple[int, int]:
        """When it was emitted, and how often it was hedged."""
        emitted_ns = self._waiting[0].pop(root, None)
        if emitted_ns is not None:
            return emitted_ns, 0
        hedges = next(hedges for hedges, line in enumerate(self._waiting) if root in line)
        del self._waiting[hedges][root]
        return self._emitted.pop(root), hedges


class TimedHedger:
    """Hedges roots whose newest incarnation is older than a timeout, to the nanosecond, as far as the budget goes.

    All have the same timeout, so the oldest is the next to be due, and the first to be hedged when there is money
    again; those without a hedge before the others.
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
        self.took(max(0, now_ns - emitted_ns), hedge)  # an earlier incarnation may have been done before it

    def took(self, latency_ns: int, hedge: bool) -> None:
        """A root was complete, so long after its first emission."""

    def observed(self, load: Load, now_ns: int) -> None:
        self.budget.observed(load, now_ns)

    def due(self, now_ns: int) -> Sequence[int]:
        due = []
        for hedges in self._again():
            while now_ns - self.pending.since_ns(hedges) > self.timeout_ns and self.budget.affords():
                self.budget.spend()
                due.append(self.pending.hedge(hedges, now_ns))
        return due

    def _again(self) -> range:
        """How many hedges a root may have and still get one."""
        return range(MOST_HEDGES if self.budget.lucky() else 1)

    def state(self) -> HedgerState:
        return HedgerState(None if self.timeout_ns == UNSEEN else int(self.timeout_ns), self.budget.left())

    def next_ns(self) -> float:
        return min(map(self.pending.since_ns, self._again())) + self.timeout_ns + 1

    def wake_ns(self) -> int | None:
        next_ns = self.next_ns()
        # Without money nothing is due until work brings some in; then `due` is asked anyway.
        return None if next_ns == UNSEEN or not self.budget.affords() else int(next_ns)
