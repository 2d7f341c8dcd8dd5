"""Acks are folded per incarnation of a root before they travel.

An incarnation is known by its *emission number*, which is unique to one emission of one root by one ledger. There are
three folds, because a root has two marks, *complete* and *durable*: one of the ids that count for both, one of those
that count for *complete* only, and one of those that count for *durable* only.
"""

from __future__ import annotations

Fold = dict[int, int]
"""Emission number -> exclusive or of ack ids."""

Folds = tuple[Fold, Fold, Fold]
"""(for both marks, for *complete* only, for *durable* only)"""


class AckFold:
    """The acks of one task for one ledger that have not been sent."""

    __slots__ = ("both", "complete", "durable")

    def __init__(self) -> None:
        self.both: Fold = {}
        self.complete: Fold = {}
        self.durable: Fold = {}

    def __bool__(self) -> bool:
        return bool(self.both or self.complete or self.durable)

    def take(self) -> Folds:
        """Returns the folds, and starts new ones."""
        taken = (self.both, self.complete, self.durable)
        self.both, self.complete, self.durable = {}, {}, {}
        return taken


def fold_into(target: Fold, source: Fold) -> None:
    """Add the ids of ``source`` to ``target``."""
    for emission, ids in source.items():
        target[emission] = target.get(emission, 0) ^ ids
