"""Blind replication: a random share of the roots is emitted twice at once, whether they will be slow or not.

A baseline of Du and Gupta (2016). Law: that of ``Hedger``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from tailrace.errors import OptionError, shorten
from tailrace.policy.hedging.api import HedgerState, Load
from tailrace.policy.hedging.budget import Budget, Limits
from tailrace.policy.numbers import is_number


class _Replicator:
    def __init__(self, fraction: float, limits: Limits, rng: Random) -> None:
        self._fraction = fraction
        self._random = rng.random
        self._budget = Budget(limits)
        self._drawn: dict[int, None] = {}  # roots to emit again now, in order
        self._pending: dict[int, bool] = {}  # root -> whether it is replicated

    def emitted(self, root: int, now_ns: int) -> None:
        if root not in self._pending:
            self._pending[root] = False
            if self._random() < self._fraction:
                self._drawn[root] = None

    def completed(self, root: int, now_ns: int, hedge: bool) -> None:
        self._drawn.pop(root, None)
        self._budget.completed(int(self._pending.pop(root)), hedge)

    def observed(self, load: Load, now_ns: int) -> None:
        self._budget.observed(load, now_ns)

    def due(self, now_ns: int) -> Sequence[int]:
        """A root that the budget cannot pay for now is never replicated."""
        copies = []
        for root in self._drawn:
            if self._budget.affords():
                self._budget.spend()
                self._pending[root] = True
                copies.append(root)
        self._drawn.clear()
        return copies

    def wake_ns(self) -> int | None:
        return None

    def state(self) -> HedgerState:
        return HedgerState(None, self._budget.left())


@dataclass(frozen=True)
class Replicate:
    """Emits a random share of the roots twice at once. ``replicate()`` makes one."""

    name = "replicate"
    cancels = False

    fraction: float
    limits: Limits

    @property
    def budget(self) -> float | None:
        return self.limits.share

    def bind(self, rng: Random) -> _Replicator:
        return _Replicator(self.fraction, self.limits, rng)


def replicate(fraction: float, *, budget: float | None = None, gate: float | None = None) -> Replicate:
    """Emit a share of the roots twice at once: a baseline of Du and Gupta (2016), to compare with.

    Args:
        fraction: the share of the roots, from 0 to 1.
        budget: what hedges may add to the work, as a share of it. ``None``: no limit.
        gate: the utilisation of the busiest operator above which nothing is hedged. ``None``: hedge always.

    Example:
        >>> tr.Tail(hedge=tr.replicate(0.2)).names()["replay"]
        'replicate'
    """
    if not is_number(fraction) or not 0 <= fraction <= 1:
        percent = is_number(fraction) and 1 < fraction <= 100
        hint = f"did you mean {fraction / 100:g}?" if percent else "is it a number?"
        raise OptionError(f"a fraction of the roots is 0 to 1: fraction={shorten(fraction)}: {hint}")
    return Replicate(fraction, Limits(budget, gate))
