"""Roots of one source task that take too long, oldest first, and the replayer that hedges them by a timeout."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.policy.budget import Budget, Limits
from tailrace.policy.latencies import UNSEEN
from tailrace.policy.replay import ReplayState


class Pending:
    """Roots that are not complete. Law: one is hedged at most once, however often it is emitted anew after a loss."""

    def __init__(self) -> None:
        self._waiting: dict[int, int] = {}  # root -> when it was emitted, in that order
        self._hedged: dict[int, int] = {}

    def emitted(self, root: int, now_ns: int) -> None:
        if root in self._hedged:
            self._hedged[root] = now_ns
        else:
            self._waiting.pop(root, None)
            self._waiting[root] = now_ns

    def is_empty(self) -> bool:
        """Are all roots complete or hedged?"""
        return not self._waiting

    def since_ns(self) -> float:
        """When the oldest root without a hedge was emitted; ``UNSEEN`` if there is none."""
        return next(iter(self._waiting.values()), UNSEEN)

    def hedge(self) -> int:
        """The oldest root without one."""
        root = next(iter(self._waiting))
        self._hedged[root] = self._waiting.pop(root)
        return root

    def completed(self, root: int) -> tuple[int, bool]:
        """When it was emitted, and whether it was hedged."""
        emitted_ns = self._waiting.pop(root, None)
        return (self._hedged.pop(root), True) if emitted_ns is None else (emitted_ns, False)


class TimedReplayer:
    """Hedges roots that are older than a timeout, to the nanosecond, as far as the budget goes.

    All roots have the same timeout, so the oldest is the next to be due, and the first to be hedged when there is
    money again.
    """

    def __init__(self, timeout_ns: float, limits: Limits) -> None:
        self.timeout_ns = timeout_ns
        self.budget = Budget(limits)
        self.pending = Pending()

    def emitted(self, root: int, now_ns: int) -> None:
        self.pending.emitted(root, now_ns)

    def completed(self, root: int, now_ns: int, hedge: bool) -> None:
        emitted_ns, hedged = self.pending.completed(root)
        self.budget.completed(hedged, hedge)
        self.took(max(0, now_ns - emitted_ns), hedge)  # an earlier incarnation may have been done before it

    def took(self, latency_ns: int, hedge: bool) -> None:
        """A root was complete, so long after its first emission."""

    def executed(self, work_ns: int, hedge: bool) -> None:
        self.budget.executed(work_ns, hedge)

    def discarded(self, hedge: bool) -> None:
        self.budget.discarded(hedge)

    def observed(self, utilisation: float, now_ns: int) -> None:
        self.budget.observed(utilisation, now_ns)

    def due(self, now_ns: int) -> Sequence[int]:
        hedges = []
        while now_ns - self.pending.since_ns() > self.timeout_ns and self.budget.affords():
            self.budget.spend()
            hedges.append(self.pending.hedge())
        return hedges

    def state(self) -> ReplayState:
        return ReplayState(None if self.timeout_ns == UNSEEN else int(self.timeout_ns), self.budget.left())

    def next_ns(self) -> float:
        return self.pending.since_ns() + self.timeout_ns + 1

    def wake_ns(self) -> int | None:
        next_ns = self.next_ns()
        # Without money nothing is due until work brings some in; then `due` is asked anyway.
        return None if next_ns == UNSEEN or not self.budget.affords() else int(next_ns)
