"""Hedging: a source emits a root again when it is late, and the first incarnation to be complete counts.

Nothing in here emits anything. Whoever drives a hedger, the simulator or the runtime, does as follows.

``emitted`` for every root when it is first emitted, ``completed`` once for each, when its first incarnation is
complete. ``executed`` for all work as it is reported, that of hedges marked; ``discarded`` for each tuple that is
thrown away instead; and ``observed`` now and then with how busy the busiest operator is. After any of these, and
whenever the moment that ``wake_ns`` names has come, ``due``: it returns the roots to emit once more now.

If the rule ``cancels``, a hedge goes where the least waits (``least_waiting``), and what is still queued of other
incarnations when one is complete is thrown away. Without that, hedges only add to the load that makes roots late.

Recovery is no business of a hedger: a root that a crash has lost is emitted again by the ledger, and that counts as
its first emission here.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple, Protocol

MOST_HEDGES = 2
"""Of one root. One hedge in a hundred may hang as what it races does; of a third nothing was to be gained."""


class HedgerState(NamedTuple):
    """What a hedger goes by now, for whoever shows it. None: it has no such thing, or does not know it yet."""

    timeout_ns: int | None
    hedges_left: float | None  # that its budget pays for


class Hedger(Protocol):
    """The decisions of one source task.

    Law: ``due`` names only roots that were emitted and are not complete, each at most ``MOST_HEDGES`` times in its
    life; nothing before its time; and, summed over any stretch of time, no more than the budget allows. Decisions
    depend on arguments and generator only, never on a clock of its own.
    """

    def emitted(self, root: int, now_ns: int) -> None: ...

    def completed(self, root: int, now_ns: int, hedge: bool) -> None:
        """``hedge``: it was not the first incarnation that was complete first."""

    def executed(self, work_ns: int, hedge: bool) -> None: ...

    def discarded(self, hedge: bool) -> None:
        """A tuple of an incarnation that came too late was not run; what it would have become is not told apart."""

    def observed(self, utilisation: float, now_ns: int) -> None:
        """The share of time, 0 to 1, that the tasks of the busiest operator have lately been at work."""

    def due(self, now_ns: int) -> Sequence[int]: ...

    def wake_ns(self) -> int | None:
        """When ``due`` should be asked next if nothing else happens. None: not at all."""

    def state(self) -> HedgerState: ...


class HedgeRule(Protocol):
    """A rule as a value: it can be pickled and printed. Each source task binds its own hedger."""

    @property
    def name(self) -> str: ...

    @property
    def cancels(self) -> bool: ...

    @property
    def budget(self) -> float | None:
        """What hedges may add to the work, as a share of it. None: no limit."""

    def bind(self, rng: Random) -> Hedger: ...


ReplayRule = HedgeRule
"""The name that ``tailrace.__all__`` has had for it."""
