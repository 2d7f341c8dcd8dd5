"""Tuples in proportion to shares, as evenly as possible: smooth weighted round robin.

Law: after n tuples no task is a whole tuple ahead of n times its share, whatever the shares, as long as they stay; and
equal shares are plain round robin.
"""

from __future__ import annotations

from collections.abc import Container


class Shares:
    """Of one sender's traffic, by task. Law: never negative, and their sum is 1."""

    def __init__(self, tasks: int, first: int) -> None:
        self.of = [1 / tasks] * tasks
        # What each task is owed, in tuples. The first turn begins with `first`; the head start is too small to matter.
        self._owed = [-1e-9 * ((task - first) % tasks) for task in range(tasks)]

    def next(self, but: Container[int] = ()) -> int:
        """The task whose turn it is, ``but`` some that are passed over. They are owed the tuple no longer."""
        owed = self._owed
        best = -1
        for task, share in enumerate(self.of):
            owed[task] += share
            if task not in but and (best < 0 or owed[task] > owed[best]):
                best = task
        owed[best] -= 1
        return best

    def move(self, unit: float, slow: int, fast: int) -> None:
        """As much of ``unit`` as there is."""
        moved = min(unit, self.of[slow])
        self.of[slow] -= moved
        self.of[fast] += moved
