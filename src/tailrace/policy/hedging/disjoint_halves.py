"""Where tuples go behind the first edge while roots are hedged: one incarnation to one side, the next to the other.

Whoever sends the second copy of a tuple further down is another task than the one that sent the first, and does not
know where that went. What both know is the number of the emission. So the tasks of an operator are two sides, and the
number says on which side the first incarnation's tuple is: that of the hedge goes to the other, and not behind the
stall that it is meant to pass. On each side tuples take turns. A second hedge goes to the side of the first
incarnation again, where it may meet that: to keep three apart takes three sides, each with fewer tasks to take turns.
"""

from __future__ import annotations

from tailrace.policy.hashing import stable_hash


class DisjointHalves:
    """One sender's choices along one edge of which any task may have any tuple.

    Law: an incarnation and the next never get the same task, whoever sends them. The tasks of a side take turns. Of as
    many emissions in a row as there are tasks, each side gets as many as it has tasks; of others that by chance.
    """

    def __init__(self, tasks: int, salt: int, start: int) -> None:
        self._tasks = tasks
        self._salt = salt  # of the edge: senders agree on it, and other edges split roots in other ways
        self._near = tasks // 2
        self._turns = [start, start]  # of either side; it differs between senders, so that they do not march in step

    def choose(self, emission: int, hedge: int) -> int:
        """The task for a tuple of this emission, or of the how-many-th hedge that races it."""
        block = stable_hash(emission // self._tasks ^ self._salt)
        near = (emission + block) % self._tasks < self._near
        if hedge % 2:
            near = not near
        turn = self._turns[near]
        self._turns[near] = turn + 1
        return turn % self._near if near else self._near + turn % (self._tasks - self._near)
