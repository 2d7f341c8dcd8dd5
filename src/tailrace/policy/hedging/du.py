"""The adaptive timeout as Du and Gupta (2016) built it on Storm, to compare with.

Decides as Algorithm 1 of the paper does, from the latencies of each second as they come: no budget, no gate. Law: that
of ``Hedger``. The weaknesses of the original are kept:

- The ages of roots are kept in Storm's two buckets, the older of which is emptied once in each timeout. A root is
  replayed anywhere between one and two timeouts after its emission.
- The latency of a replayed root counts from the replay. The faster replays are, the shorter the next timeout becomes.
- A replay goes wherever the grouping sends it, perhaps behind the first emission, and emissions that come too late are
  run all the same (``cancels`` is false).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from tailrace.policy.hedging.adaptive import PERIOD_NS, SHARES, algorithm_1
from tailrace.policy.hedging.api import HedgerState, Load
from tailrace.policy.hedging.latencies import UNSEEN, quantiles


class _StormHedger:
    def __init__(self) -> None:
        self._pending: dict[int, int] = {}  # root -> time of its last emission
        self._replayed: set[int] = set()
        self._young: dict[int, None] = {}  # the younger bucket, in the order of emission
        self._old: dict[int, None] = {}
        self._latencies: list[int] = []
        self._timeout_ns = UNSEEN
        self._rotated_ns = 0
        self._ends_ns: int | None = None  # end of the current period

    def emitted(self, root: int, now_ns: int) -> None:
        self._pending[root] = now_ns
        self._old.pop(root, None)
        self._young[root] = None

    def completed(self, root: int, now_ns: int, hedge: bool) -> None:
        self._latencies.append(max(0, now_ns - self._pending.pop(root)))
        self._replayed.discard(root)

    def observed(self, load: Load, now_ns: int) -> None:
        pass

    def due(self, now_ns: int) -> Sequence[int]:
        if self._ends_ns is None:
            self._ends_ns, self._rotated_ns = now_ns + PERIOD_NS, now_ns
        if now_ns >= self._ends_ns:
            self._ends_ns = now_ns + PERIOD_NS
            self._adjust()
        return self._rotate(now_ns) if now_ns - self._rotated_ns >= self._timeout_ns else ()

    def _adjust(self) -> None:
        if self._latencies:
            samples = [(latency_ns, False) for latency_ns in sorted(self._latencies)]
            self._timeout_ns = algorithm_1(*quantiles(samples, SHARES))
            self._latencies.clear()

    def _rotate(self, now_ns: int) -> Sequence[int]:
        expired = [root for root in self._old if root in self._pending and root not in self._replayed]
        self._old, self._young = self._young, {}
        self._rotated_ns = now_ns
        for root in expired:
            self._pending[root] = now_ns
        self._replayed.update(expired)
        return expired

    def wake_ns(self) -> int | None:
        if not self._pending or self._ends_ns is None:
            return None
        return int(min(self._rotated_ns + self._timeout_ns, self._ends_ns))

    def state(self) -> HedgerState:
        return HedgerState(None if self._timeout_ns == UNSEEN else int(self._timeout_ns), None)


@dataclass(frozen=True)
class DuTimeout:
    """Hedges by the adaptive timeout of Du and Gupta (2016), to the letter. ``du_timeout()`` makes one."""

    name = "du_timeout"
    cancels = False
    budget = None

    def bind(self, rng: Random) -> _StormHedger:
        return _StormHedger()


def du_timeout() -> DuTimeout:
    """Hedge by the adaptive timeout of Du and Gupta (2016), to the letter: a baseline to compare with.

    Each root is hedged at most once.

    Example:
        >>> from tailrace.policy import du_timeout
        >>> du_timeout().name
        'du_timeout'
    """
    return DuTimeout()
