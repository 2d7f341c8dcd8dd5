"""Races: several emissions of one root are under way, because the root was late. The first to be complete wins.

A hedge is an emission like any other, with registers of its own: any emission may complete its root and make it
durable, and a committing sink drops the copies of a row that come later. Its number tells which
emission it races (``tailrace.core.emissions``).

When one of them is complete the others are cancelled: their queued tuples are dropped unrun, also if another hedging
rule is in force by then. The way of a cancelled number: ``HedgeRaces.completed`` puts it into the task's ``cancels``;
its sender (``runtime/execution/sender.py``) passes it to its own worker and to all others
(``runtime/links/cancellations.py``); each worker keeps it in ``CancelledEmissions``, where tasks look before they run
a bundle (``Task.throw_away`` in ``core/tasks/base.py``). A call that runs already is not interrupted.

Law: an emission is cancelled only if another of the same race is complete, and recovery has not re-emitted the root
since. An emission from before a loss may be complete and never become durable; then only the re-emitted one can.
"""

from __future__ import annotations

from tailrace.core.emissions import is_hedge, race_until
from tailrace.core.protocol.ledger import Ledger, Root
from tailrace.metrics.counters import TaskCounters


class HedgeRaces:
    """The races of the roots of one source task. Law: each hedge of a complete root is counted as won or as wasted."""

    def __init__(self, ledger: Ledger, counters: TaskCounters, cancels: list[int]) -> None:
        self._ledger = ledger
        self._counters = counters
        self._cancels = cancels  # emissions to be cancelled; the runtime sends and empties it
        self._uncancelled: set[Root] = set()  # roots whose hedging rule lets all emissions run

    def hedge(self, root: Root, cancels: bool) -> int:
        """Register a hedge of a root. ``cancels``: the losers of its race are cancelled. Returns the emission
        number."""
        self._counters.hedges += 1
        if not cancels:
            self._uncancelled.add(root)
        return self._ledger.hedge(root)

    def completed(self, root: Root) -> bool:
        """A hedged root is complete: count its hedges, and cancel the losers. Returns whether a hedge has won.

        An emission from before the last recovery is not part of the race, and its completion cancels nothing.
        """
        winner, newest = self._ledger.completed_by(root), root.emissions[-1]
        hedge = is_hedge(winner)
        self._counters.hedges_won += hedge
        self._counters.hedges_wasted += root.hedges - hedge
        uncancelled = root in self._uncancelled
        self._uncancelled.discard(root)
        race = race_until(newest)
        if winner not in race:
            return False
        if not uncancelled:
            self._cancels.extend(emission for emission in race if emission != winner)
        return hedge
