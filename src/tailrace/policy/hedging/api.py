"""Hedging: a source emits a late root once more, and the first of its emissions to complete counts.

A ``HedgeRule`` is what a user declares. Each source task binds a ``Hedger``, which decides about the roots of that task
and acts on nothing itself. Its driver, the runtime or the simulator, calls

- ``emitted`` when a root is first emitted, and again when recovery emits it again after a loss;
- ``completed`` once for each root, when the first of its emissions completes;
- ``observed`` several times a second, with the load since the last call;
- ``due`` after any of these, and at the time that ``wake_ns`` names. It returns the roots to emit once more now.

If the rule ``cancels``, the driver sends each hedge to the task at which the least waits (``least_waiting``) and keeps
it apart from the other emissions further down (``disjoint_halves``). When one emission completes, queued tuples of the
others are thrown away. Without that, hedges only add to the load that makes roots late.

Recovery is not hedging: the ledger emits lost roots again, and for a hedger that restarts their age.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple, Protocol

MOST_HEDGES = 2
"""Hedges of one root. One hedge in a hundred may hang like the emission that it races; a third gained nothing."""


@dataclass(frozen=True)
class Load:
    """Sums over all tasks of a run since the last such report."""

    utilisation: float  # of the busiest operator, 0 to 1
    roots: int  # completed
    hedges: int  # emitted
    work_ns: int  # executed, for hedges and all others
    unrun_ns: int  # work spared because another emission of the root completed first, at mean costs


class HedgerState(NamedTuple):
    """The numbers by which a hedger decides now, for display. ``None``: it has no such number, or not yet."""

    timeout_ns: int | None
    hedges_left: float | None  # that its budget pays for


class Hedger(Protocol):
    """The decisions of one source task about its hedges.

    Law: ``due`` names only roots that were emitted and are not complete, each at most ``MOST_HEDGES`` times in its
    life; nothing before its time; and, summed over any stretch of time, no more than the budget allows. Decisions
    depend on arguments and generator only, never on a clock of its own.

    Example:
        >>> from random import Random
        >>> hedger = tr.fixed_timeout(ms=20).bind(Random(1))
        >>> hedger.emitted(7, now_ns=0)
        >>> list(hedger.due(now_ns=19_000_000)), list(hedger.due(now_ns=21_000_000))
        ([], [7])
    """

    def emitted(self, root: int, now_ns: int) -> None: ...

    def completed(self, root: int, now_ns: int, hedge: bool) -> None:
        """``hedge``: whether a hedge completed first."""

    def observed(self, load: Load, now_ns: int) -> None: ...

    def due(self, now_ns: int) -> Sequence[int]: ...

    def wake_ns(self) -> int | None:
        """When to call ``due`` next if nothing else happens. ``None``: not at all."""

    def state(self) -> HedgerState: ...


class HedgeRule(Protocol):
    """Which late roots a source emits once more, as a hedge: a value, picklable, without state.

    Each source task binds a hedger of its own. ``tailrace.testing.check_hedge_rule`` checks the law of ``Hedger``.

    Example:
        >>> rule: tr.HedgeRule = tr.adaptive_timeout(budget=0.02)
        >>> rule.name, rule.cancels, rule.budget
        ('adaptive_timeout', True, 0.02)
    """

    @property
    def name(self) -> str: ...

    @property
    def cancels(self) -> bool: ...

    @property
    def budget(self) -> float | None:
        """The work that hedges may add, as a share of the work. None: no limit."""

    def bind(self, rng: Random) -> Hedger: ...


ReplayRule = HedgeRule
"""The name that ``tailrace.__all__`` has had for it. Replay is the old word for hedging, kept in progress keys."""
