"""A hedging rule for the fault simulation: it hedges many roots, and soon, because runs are short.

Some roots are hedged as often as is allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from tailrace.clock import MILLISECOND_NS
from tailrace.policy.hedging.api import MOST_HEDGES, HedgerState, Load


class _EagerHedger:
    """Law: that of ``Hedger``. Each hedge has a random timeout of its own."""

    def __init__(self, share: float, longest_ns: int, rng: Random) -> None:
        self._share = share
        self._longest_ns = longest_ns
        self._rng = rng
        self._due: dict[int, int] = {}  # root -> time of its next hedge
        self._hedges: dict[int, int] = {}  # number of hedges of each pending root

    def emitted(self, root: int, now_ns: int) -> None:
        if root not in self._hedges:
            self._hedges[root] = 0
            self._draw(root, now_ns)

    def _draw(self, root: int, now_ns: int) -> None:
        if self._hedges[root] < MOST_HEDGES and self._rng.random() < self._share:
            self._due[root] = now_ns + self._rng.randrange(self._longest_ns)

    def completed(self, root: int, now_ns: int, hedge: bool) -> None:
        del self._hedges[root]  # fails if a root completes twice
        self._due.pop(root, None)

    def observed(self, load: Load, now_ns: int) -> None:
        pass

    def due(self, now_ns: int) -> Sequence[int]:
        late = [root for root, due_ns in self._due.items() if due_ns <= now_ns]
        for root in late:
            del self._due[root]
            self._hedges[root] += 1
            self._draw(root, now_ns)
        return late

    def wake_ns(self) -> int | None:
        return min(self._due.values(), default=None)

    def state(self) -> HedgerState:
        return HedgerState(None, None)


@dataclass(frozen=True)
class Eager:
    """Hedge a share of the roots, each after a random time."""

    name = "eager"
    cancels = True
    budget = None

    share: float
    longest_ms: int

    def bind(self, rng: Random) -> _EagerHedger:
        return _EagerHedger(self.share, self.longest_ms * MILLISECOND_NS, rng)
