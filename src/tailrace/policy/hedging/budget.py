"""Limits how much extra work hedges may cause: a share of all other work, less where hedges lose, none above a gate.

Hedges without a budget add load when there is least room for it, and can keep a system overloaded after the cause of
the overload is gone. The budget is a token bucket whose unit is the mean work of one root. Each root that completes
adds ``share``; each hedge takes what hedges have lately cost. The bucket therefore fills with the traffic, not with
time.

A hedge costs less than a root where work is spared: tuples that are thrown away because another emission of their root
completed first. The load reports sum up all work, all roots and hedges, and all work that was thrown away, so the mean
cost is ``1 - thrown away / (hedges * work of a root)``. Means are used on purpose: charged at its own price, one hedge
that stalls would empty the bucket for fifty.

Where roots are slow because of their content, the hedge is as slow as the first emission and loses. The share of hedges
that win shows that at any load; when it is low, the bucket fills at a small fraction of its rate, just enough to notice
when hedges begin to win.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from tailrace.clock import SECOND_NS
from tailrace.errors import OptionError, shorten
from tailrace.policy.hedging.api import Load
from tailrace.policy.numbers import is_number

BURST = 32
"""Capacity of the bucket in roots. One stall holds up about ten roots, and several may come at once."""

LUCKY = 0.6
"""Share of hedges that win above which roots are certainly slow by chance, and more hedges are risked."""

LUCKY_BURSTS = 2
"""Capacity of the bucket in bursts while hedges are lucky. A second with many stalls empties one burst."""

UNTOUCHED = 0.75
"""Share of a burst. If the level never fell below it, much of the budget is left over."""

WORTHLESS, WORTHWHILE = 0.25, 0.35
"""Shares of hedges that win. Below the first the bucket fills at ``LEAST`` of its rate, above the second at the full
rate, and linearly in between. Found by simulation: against stalls of one operator 43% of hedges win at a load of 0.9,
and more at lower loads. Of roots that are slow because of their content 23% win at most, and hedging them makes p99
worse."""

LEAST = 0.02
"""Share of the full rate that buys enough hedges to notice when they begin to win."""

REOPEN = 0.05
"""A closed gate opens again this far below its threshold, because utilisation fluctuates and hedges raise it."""

SETTLING_NS = 5 * SECOND_NS
"""Time over which utilisation is averaged. Stalls make it fluctuate by a tenth from second to second."""

ROOTS_REMEMBERED = 1_000  # for the mean work of a root
HEDGES_REMEMBERED = 200  # for the cost and the luck of hedges

DOUBT = 20
"""Weight, in hedges, of what is assumed at first: that a hedge costs a root, and that just enough of them win. The
assumption about the cost fades as hedges are forgotten; kept for ever, it would make each hedge seem a tenth of a root
dearer than it is."""

CHEAPEST = 0.05
"""Least charge for a hedge, in roots, however much work hedges have spared."""


@dataclass(frozen=True)
class Limits:
    """Limits on hedging.

    Args:
        share: the work of hedges as a share of all other work. ``None``: no limit.
        gate: utilisation of the busiest operator above which nothing is hedged. ``None``: no gate.
    """

    share: float | None
    gate: float | None

    def __post_init__(self) -> None:
        if not _is_share(self.share):
            raise OptionError(
                f"a budget is a share of the work, above 0 and up to 1, or None: budget={shorten(self.share)}"
            )
        if not _is_share(self.gate):
            raise OptionError(f"a gate is a utilisation, above 0 and up to 1, or None: gate={shorten(self.gate)}")


def _is_share(value: float | None) -> bool:
    return value is None or (is_number(value) and 0 < value <= 1)


class Budget:
    """The budget of one hedger.

    Law: hedges are charged at most ``share`` of the roots that completed, and one full bucket. No hedge is granted
    before a root has completed, while the gate is closed, or before the first load report if there is a gate.
    """

    def __init__(self, limits: Limits) -> None:
        self._share = limits.share
        self._gate = _Gate(limits.gate)
        self._level = 0.0  # in roots, as all amounts here
        self._lowest = inf  # level since the last call of left_over()
        self._emissions = 0.0  # recent roots and hedges in load reports, for the mean work of a root
        self._whole_ns = 0.0  # their work, including what was thrown away
        self._hedges = 0.0  # recent hedges in load reports
        self._spared = 0.0  # work they spared
        self._doubt = float(DOUBT)
        self._settled = 0.0  # recent hedges whose root is complete
        self._won = 0.0  # hedges that completed first

    def completed(self, hedges: int, won: bool) -> None:
        """A root of this source has completed.

        Args:
            hedges: how many hedges it had.
            won: whether one of them completed first.
        """
        if hedges:
            self._settled += hedges
            self._won += won
            if self._settled > HEDGES_REMEMBERED:
                self._settled /= 2
                self._won /= 2
        if self._share is not None:
            full = (LUCKY_BURSTS if self.lucky() else 1) * BURST
            self._level = min(self._level + self._share * self.worth(), max(self._level, full))

    def observed(self, load: Load, now_ns: int) -> None:
        """Learn from a load report what hedges cost, and whether there is room for them."""
        self._gate.observed(load.utilisation, now_ns)
        self._emissions += load.roots + load.hedges
        self._whole_ns += load.work_ns + load.unrun_ns
        if self._emissions > ROOTS_REMEMBERED:
            self._whole_ns *= ROOTS_REMEMBERED / self._emissions
            self._emissions = ROOTS_REMEMBERED
        self._hedges += load.hedges
        if self._whole_ns:
            self._spared += load.unrun_ns * self._emissions / self._whole_ns
        if self._hedges > HEDGES_REMEMBERED:
            fade = HEDGES_REMEMBERED / self._hedges
            self._hedges = HEDGES_REMEMBERED
            self._spared *= fade
            self._doubt *= fade

    def affords(self) -> bool:
        if self._gate.closed:
            return False
        return self._share is None or self.cost() <= self._level

    def spend(self) -> None:
        """Pay for one hedge."""
        self._level -= self.cost()
        self._lowest = min(self._lowest, self._level)

    def left(self) -> float | None:
        """How many hedges the level pays for now. ``None``: there is no limit."""
        if self._gate.closed:
            return 0.0
        return None if self._share is None else self._level / self.cost()

    def cost(self) -> float:
        """The estimated cost of a hedge, in roots."""
        known = self._hedges + self._doubt
        return max(CHEAPEST, (known - self._spared) / known)

    def luck(self) -> float:
        """The share of hedges that win."""
        return (self._won + WORTHWHILE * DOUBT) / (self._settled + DOUBT)

    def lucky(self) -> bool:
        return self.luck() > LUCKY

    def worth(self) -> float:
        """The share of the full rate at which the bucket fills, by the luck of hedges."""
        return min(1.0, max(LEAST, (self.luck() - WORTHLESS) / (WORTHWHILE - WORTHLESS)))

    def left_over(self) -> bool:
        """Whether hedges are lucky and most of a burst was there at any time since the last call."""
        lowest, self._lowest = min(self._lowest, self._level), inf
        return self.lucky() and lowest > UNTOUCHED * BURST

    def payable(self) -> float:
        """The share of roots that can be hedged in the long run."""
        return 1.0 if self._share is None else min(1.0, self._share * self.worth() / self.cost())


class _Gate:
    """Closed while mean utilisation is above a threshold, and before it is known. Without a threshold always open."""

    def __init__(self, threshold: float | None) -> None:
        self.closed = threshold is not None
        self._threshold = threshold
        self._utilisation = 0.0
        self._first_ns: int | None = None  # time of the first observation
        self._last_ns = 0

    def observed(self, utilisation: float, now_ns: int) -> None:
        if self._threshold is None:
            return
        if self._first_ns is None:
            self._first_ns = self._last_ns = now_ns
            self._utilisation = utilisation
        elapsed_ns, self._last_ns = now_ns - self._last_ns, now_ns
        memory_ns = min(SETTLING_NS, max(1, now_ns - self._first_ns))
        self._utilisation += (utilisation - self._utilisation) * min(1.0, elapsed_ns / memory_ns)
        self.closed = self._utilisation > self._threshold - (REOPEN if self.closed else 0)
