"""Shares of traffic: tuples in proportion to given shares, as evenly as possible (smooth weighted round robin)."""

from __future__ import annotations

from collections.abc import Collection


class Shares:
    """Shares of one sender's traffic, by task.

    Law: shares are never negative and their sum is 1. As long as they stay as they are, no task is ever a whole tuple
    ahead of its share; equal shares are plain round robin.
    """

    def __init__(self, tasks: int, first: int) -> None:
        self.of = [1 / tasks] * tasks
        # What each task is owed, in tuples. Tiny differences let the first turn begin with `first`.
        self._owed = [-1e-9 * ((task - first) % tasks) for task in range(tasks)]

    def next(self, but: Collection[int] = ()) -> int:
        """The task whose turn it is. Tasks in ``but`` are skipped and leave their share of this turn to the others."""
        shares, owed = self.of, self._owed
        tasks = [task for task in range(len(shares)) if task not in but] if but else range(len(shares))
        whole = sum(shares[task] for task in tasks)
        best = tasks[0]
        for task in tasks:
            owed[task] += shares[task] / whole if whole else 1 / len(tasks)
            if owed[task] > owed[best]:
                best = task
        owed[best] -= 1
        return best

    def move(self, unit: float, slow: int, fast: int) -> None:
        """Move ``unit`` from one task to the other, or as much of it as there is."""
        moved = min(unit, self.of[slow])
        self.of[slow] -= moved
        self.of[fast] += moved
