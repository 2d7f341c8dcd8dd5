"""Where a hedge goes: to the task at which the least waits, as far as its source knows.

A hedge that lands behind another stall is as late as the root it is for, so any other task will not do. A source hears
when its roots are complete, and tasks run things in the order in which they came. So whatever was sent to a task before
something of which one has heard since is done, or thrown away; what was sent after it may still wait. Roots that a
hedge elsewhere has completed say nothing: their first incarnation may be what the task is stuck in.
"""

from __future__ import annotations

from collections.abc import Container, Iterable


class LeastWaiting:
    """What one source task has sent along one edge of which any task may have any tuple.

    Law: a hedge goes to a task at which no more waits than at any other but those it must avoid, or than at any at all
    if these are all; equals take turns.
    """

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks
        self._sent = [0] * tasks
        self._heard = [0] * tasks  # of what was sent, how many when the newest was that one has heard of
        self._places: dict[int, tuple[int, int]] = {}  # incarnation -> its task, and the how-many-th it is there
        self._turn = 0

    def sent(self, incarnation: int, task: int) -> None:
        self._sent[task] += 1
        self._places[incarnation] = (task, self._sent[task])

    def waiting(self, task: int) -> int:
        return self._sent[task] - self._heard[task]

    def choose(self, avoid: Container[int | None]) -> int:
        """The task for a hedge of what the tasks ``avoid`` have."""
        tasks = self._tasks
        turns = [(self._turn + step) % tasks for step in range(tasks)]
        choice = min([task for task in turns if task not in avoid] or turns, key=self.waiting)
        self._turn = choice + 1
        return choice

    def task_of(self, incarnation: int) -> int | None:
        place = self._places.get(incarnation)
        return None if place is None else place[0]

    def completed(self, winner: int, incarnations: Iterable[int]) -> None:
        """A root is complete, by one of its incarnations. What was not sent under these eyes is passed over."""
        place = self._places.get(winner)
        if place is not None:
            task, number = place
            self._heard[task] = max(self._heard[task], number)
        self.forget(incarnations)

    def forget(self, incarnations: Iterable[int]) -> None:
        """Nobody will say when these are complete."""
        for incarnation in incarnations:
            self._places.pop(incarnation, None)

    def __len__(self) -> int:
        """Incarnations of roots that are not complete."""
        return len(self._places)
