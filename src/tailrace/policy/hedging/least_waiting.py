"""Where a hedge goes at the first edge: to the task at which the least waits, as far as its source knows.

A hedge that lands behind another stall is as late as the root that it is for, so not just any other task will do. A
source learns when its roots complete, and tasks run tuples in the order in which they came. Once an emission that was
sent to a task has completed, everything that was sent to that task before it has been run or thrown away; what was sent
after it may still wait. A root that a hedge completed elsewhere says nothing about the task of its first emission,
which may be stuck in it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable


class LeastWaiting:
    """The tuples that a source task has sent along a shuffled edge, and which of them may still wait, and where.

    Law: a hedge goes to a task at which the least waits among those that it need not avoid, or among all tasks if it
    has to avoid each; ties are broken in turn.
    """

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks
        self._sent = [0] * tasks
        self._heard = [0] * tasks  # of what was sent, how many up to the newest that has completed
        self._places: dict[int, tuple[int, int]] = {}  # emission -> its task, and its position among all sent there
        self._turn = 0

    def sent(self, emission: int, task: int) -> None:
        self._sent[task] += 1
        self._places[emission] = (task, self._sent[task])

    def waiting(self, task: int) -> int:
        return self._sent[task] - self._heard[task]

    def choose(self, avoid: Container[int | None]) -> int:
        """The task for a hedge. ``avoid``: the tasks that have other emissions of its root."""
        tasks = self._tasks
        turns = [(self._turn + step) % tasks for step in range(tasks)]
        choice = min([task for task in turns if task not in avoid] or turns, key=self.waiting)
        self._turn = choice + 1
        return choice

    def task_of(self, emission: int) -> int | None:
        place = self._places.get(emission)
        return None if place is None else place[0]

    def completed(self, winner: int, emissions: Iterable[int]) -> None:
        """A root is complete by its emission ``winner``. Emissions that were not sent here are ignored."""
        place = self._places.get(winner)
        if place is not None:
            task, number = place
            self._heard[task] = max(self._heard[task], number)
        self.forget(emissions)

    def forget(self, emissions: Iterable[int]) -> None:
        """Stop tracking emissions whose completion will not be reported."""
        for emission in emissions:
            self._places.pop(emission, None)

    def __len__(self) -> int:
        """The number of emissions that are tracked."""
        return len(self._places)
