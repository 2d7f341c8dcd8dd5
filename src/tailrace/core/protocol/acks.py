"""Acknowledgements are folded per (root, incarnation) before they travel.

An incarnation is known by its *emission number*, which is unique to one emission of one root by one ledger. Three
folds travel side by side, because a root has two marks: what counts for both, for *complete* only, and for
*durable* only.
"""

from __future__ import annotations

Fold = dict[int, int]
"""Emission number -> exclusive or of ack ids."""

Folds = tuple[Fold, Fold, Fold]
"""For both marks, for *complete* only, for *durable* only."""


class AckFold:
    """What one task has to tell one ledger."""

    __slots__ = ("both", "complete", "durable")

    def __init__(self) -> None:
        self.both: Fold = {}
        self.complete: Fold = {}
        self.durable: Fold = {}

    def __bool__(self) -> bool:
        return bool(self.both or self.complete or self.durable)

    def take(self) -> Folds:
        """The folds as they are; what comes next goes into new ones."""
        taken = (self.both, self.complete, self.durable)
        self.both, self.complete, self.durable = {}, {}, {}
        return taken


def fold_into(target: Fold, source: Fold) -> None:
    for emission, ids in source.items():
        target[emission] = target.get(emission, 0) ^ ids
