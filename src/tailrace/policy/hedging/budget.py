"""What hedging may cost: a share of the work that is done anyway, less where hedges lose, nothing where tasks are busy.

Hedges without a budget add load when there is least room for it, and can keep a system overloaded after whatever
overloaded it is gone. What counts is *extra* work. A hedge that is first spares the other incarnation of its root, if
that still waits in a queue, the rest of its way: it costs next to nothing. One that loses costs all of its work. So the
bucket pays for each hedge what hedges have lately cost, what they spared taken off, at the mean price of an execution,
on both sides: what was spared has no other, and one hedge that stalls would empty the purse for fifty. It is filled by
work, not by time: what hedging may cost falls with the traffic.

Where roots are slow because of what is in them, the second incarnation is as slow as the first and loses. That shows in
how many hedges are first, at any load, and closes the purse but for a few that keep looking.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from tailrace.clock import SECOND_NS
from tailrace.errors import OptionError, shorten
from tailrace.policy.numbers import is_number

BURST = 32
"""Mean roots that a full bucket pays for: one stall holds up about ten roots, and there may be several at once."""

LUCKY = 0.6
"""Share of hedges that are first above which it is surely luck that makes roots slow, and more is risked."""

LUCKY_BURSTS = 2
"""A full bucket then: a second with many stalls empties one, and the timeout is long in the next."""

UNTOUCHED = 0.75
"""Of a burst: if there was never less in the bucket, much of the budget is left over."""

WORTHLESS, WORTHWHILE = 0.25, 0.35
"""Shares of hedges that are first: below the one the bucket fills at ``LEAST``, above the other at its full rate.
Found by simulation: against stalls of one operator 43% of hedges win at a load of 0.9, and more below; of roots that
are slow by what is in them 23% at most, and hedging those makes p99 worse."""

LEAST = 0.02
"""Of the full rate: enough hedges to see that they have begun to win."""

REOPEN = 0.05
"""A gate that has closed opens again so far below: utilisation wavers, and hedges raise it."""

SETTLING_NS = 5 * SECOND_NS
"""Utilisation is averaged over about so long: stalls make it waver by a tenth from second to second."""

ROOTS_REMEMBERED = 1_000  # over which work is averaged
HEDGES_REMEMBERED = 200  # over which their cost and their luck are
DOUBT = 20
"""Hedges' worth of prior belief: until more is known, a hedge costs a root's work, and just enough of them win. What is
believed of their cost is forgotten as they are: beside the one or two hundred that are remembered it would make each
seem a tenth of a root dearer than it is, for ever."""

CHEAPEST = 0.05
"""Of a root's work: what a hedge is charged at least, however much hedges have spared."""


@dataclass(frozen=True)
class Limits:
    """``share`` of the work for hedges, None: no limit. No hedges above a utilisation of ``gate``, None: no gate."""

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
    """One hedger's account.

    Law: hedges are charged at most ``share`` of all other work. Nothing is granted before some work was done, while
    the gate is closed, or before it is known that there is room.
    """

    def __init__(self, limits: Limits) -> None:
        self._share = limits.share
        self._gate = limits.gate
        self._closed = limits.gate is not None
        self._utilisation = 0.0
        self._since_ns = 0  # when it was first observed
        self._observed_ns: int | None = None
        self._level_ns = 0.0
        self._least_ns = inf  # level since somebody asked
        self._root = _Mean(ROOTS_REMEMBERED)  # work of a root, hedges aside
        self._call = _Mean(ROOTS_REMEMBERED)  # work of one execution
        self._root_so_far_ns = 0
        self._hedges = 0.0  # issued, of which the last few hundred are remembered
        self._extra_ns = 0.0  # what they cost
        self._doubt = float(DOUBT)  # beside them
        self._settled = 0.0  # those whose root is complete
        self._won = 0.0

    def executed(self, work_ns: int, hedge: bool) -> None:
        if hedge:
            self._extra_ns += self._call.value
            return
        self._root_so_far_ns += work_ns
        self._call.add(work_ns)
        if self._share is not None:
            full_ns = (LUCKY_BURSTS if self.lucky() else 1) * BURST * self._root.value
            earned_ns = self._share * self.worth() * work_ns
            self._level_ns = min(self._level_ns + earned_ns, max(self._level_ns, full_ns))

    def discarded(self, hedge: bool) -> None:
        """A tuple was thrown away unrun. That it would have become others is not counted: they may be cheap."""
        if not hedge:
            self._extra_ns -= self._call.value

    def completed(self, hedges: int, won: bool) -> None:
        """A root with so many hedges, one of which was first or not."""
        if self._call.value:  # a root is not free because nobody has said yet what work it was
            self._root.add(self._root_so_far_ns)
        self._root_so_far_ns = 0
        if hedges:
            self._settled += hedges
            self._won += won
            if self._settled > HEDGES_REMEMBERED:
                self._settled /= 2
                self._won /= 2

    def observed(self, utilisation: float, now_ns: int) -> None:
        if self._gate is None:
            return
        if self._observed_ns is None:
            self._observed_ns = self._since_ns = now_ns
            self._utilisation = utilisation
        elapsed_ns, self._observed_ns = now_ns - self._observed_ns, now_ns
        memory_ns = min(SETTLING_NS, max(1, now_ns - self._since_ns))
        self._utilisation += (utilisation - self._utilisation) * min(1.0, elapsed_ns / memory_ns)
        self._closed = self._utilisation > self._gate - (REOPEN if self._closed else 0)

    def affords(self) -> bool:
        if self._closed:
            return False
        return self._share is None or 0 < self.cost_ns() <= self._level_ns

    def spend(self) -> None:
        """One hedge."""
        self._level_ns -= self.cost_ns()
        self._least_ns = min(self._least_ns, self._level_ns)
        self._hedges += 1
        if self._hedges > HEDGES_REMEMBERED:
            self._hedges /= 2
            self._extra_ns /= 2
            self._doubt /= 2

    def left(self) -> float | None:
        """How many hedges can be paid for now. None: as many as there may be."""
        if self._closed:
            return 0.0
        if self._share is None:
            return None
        return self._level_ns / self.cost_ns() if self.cost_ns() else 0.0

    def cost_ns(self) -> float:
        """What a hedge costs, as far as is known."""
        root_ns = self._root.value
        return max(CHEAPEST * root_ns, (self._extra_ns + self._doubt * root_ns) / (self._hedges + self._doubt))

    def luck(self) -> float:
        """The share of hedges that are first."""
        return (self._won + WORTHWHILE * DOUBT) / (self._settled + DOUBT)

    def lucky(self) -> bool:
        return self.luck() > LUCKY

    def worth(self) -> float:
        """0 to 1, by how many hedges are first."""
        return min(1.0, max(LEAST, (self.luck() - WORTHLESS) / (WORTHWHILE - WORTHLESS)))

    def left_over(self) -> bool:
        """Whether hedges are lucky, and most of a burst was there at any time since this was last asked."""
        least_ns, self._least_ns = min(self._least_ns, self._level_ns), inf
        return self.lucky() and least_ns > UNTOUCHED * BURST * self._root.value

    def payable(self) -> float:
        """The share of roots that can be hedged, in the long run."""
        if self._share is None or not self._root.value:
            return 1.0
        return min(1.0, self._share * self.worth() * self._root.value / self.cost_ns())


class _Mean:
    """Of the last samples, as many as are remembered."""

    __slots__ = ("_count", "_most", "value")

    def __init__(self, most: int) -> None:
        self.value = 0.0
        self._count = 0
        self._most = most

    def add(self, sample: float) -> None:
        self._count = min(self._count + 1, self._most)
        self.value += (sample - self.value) / self._count
