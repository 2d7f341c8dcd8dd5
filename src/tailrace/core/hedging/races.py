"""Races: incarnations of one root that are under way at once because it was late. The first to be complete counts.

A hedge is an emission like any other, with registers of its own: any incarnation may complete its root and make it
durable, and a committing sink drops whichever copies of a row come later. Its number tells which
emission it races (``tailrace.core.emissions``).

When one of a race is complete the others are cancelled: what is queued of them is thrown away unrun, whatever has
become of the rule that wanted them. Law: an incarnation is cancelled only if another of the same race is complete, and
recovery has not emitted the root since. An incarnation from before a loss may be complete and never become durable;
then only the new one can.
"""

from __future__ import annotations

from tailrace.core.emissions import is_hedge, race_until
from tailrace.core.protocol.ledger import Ledger, Root
from tailrace.metrics.counters import TaskCounters


class HedgeRaces:
    """Of the roots of one source task. Law: of hedges whose root is complete each has won or is wasted."""

    def __init__(self, ledger: Ledger, counters: TaskCounters, cancels: list[int]) -> None:
        self._ledger = ledger
        self._counters = counters
        self._cancels = cancels  # emissions to be cancelled; whoever sends them on empties it
        self._spared: set[Root] = set()  # those of which all incarnations are run

    def hedge(self, root: Root, cancels: bool) -> int:
        """One more incarnation. Returns its emission number."""
        self._counters.hedges += 1
        if not cancels:
            self._spared.add(root)
        return self._ledger.hedge(root)

    def completed(self, root: Root) -> bool:
        """A root that was hedged is complete. Returns whether a hedge was first of those that raced to the end."""
        winner, newest = self._ledger.completed_by(root), root.emissions[-1]
        hedge = is_hedge(winner)
        self._counters.hedges_won += hedge
        self._counters.hedges_wasted += root.hedges - hedge
        spared = root in self._spared
        self._spared.discard(root)
        race = race_until(newest)
        if winner not in race:
            return False
        if not spared:
            self._cancels.extend(emission for emission in race if emission != winner)
        return hedge
