"""Where tuples of hedged roots go behind the first edge: first emissions to one half of the tasks, hedges to the other.

Further down, the second copy of a tuple is sent by another task than the first copy, and that task does not know where
the first copy went. Both know the emission number. The tasks of an operator are therefore divided into two halves, and
the number decides in which half the tuples of the first emission are; those of the hedge go to the other half, away
from the stall that it is meant to pass. Within a half, tuples take turns. A second hedge uses the half of the first
emission again and may meet it: to keep three apart would take three parts with fewer tasks each.
"""

from __future__ import annotations

from tailrace.policy.hashing import stable_hash


class DisjointHalves:
    """One sender's choices along one shuffled edge.

    Law: an emission and the hedge that follows it never get the same task, whichever tasks send them. The tasks of a
    half take turns. Of any ``tasks`` emissions that begin at a multiple of ``tasks``, each half gets as many as it has
    tasks.
    """

    def __init__(self, tasks: int, salt: int, start: int) -> None:
        self._tasks = tasks
        self._salt = salt  # the same for all senders of an edge, and different for each edge
        self._near = tasks // 2
        self._turns = [start, start]  # of each half; they differ between senders, so that these do not move in step

    def choose(self, number: int, hedge: int) -> int:
        """The task for a tuple of the emission with this number (``hedge`` 0), or of its first or second hedge (1, 2).

        Any number will do that all three share, and that grows by one from emission to emission.
        """
        block = stable_hash(number // self._tasks ^ self._salt)
        near = (number + block) % self._tasks < self._near
        if hedge % 2:
            near = not near
        turn = self._turns[near]
        self._turns[near] = turn + 1
        return turn % self._near if near else self._near + turn % (self._tasks - self._near)
