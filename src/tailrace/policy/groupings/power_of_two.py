"""Power of two choices (Mitzenmacher 2001): the less loaded of two random tasks.

Decides by how many of this sender's tuples are in flight to each task. Two tasks and not all, because senders that all
picked the least loaded task would herd: what they know is old. Laws: those of ``FeedbackChooser`` and ``Receiver``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tailrace.policy.groupings.load.in_flight import InFlight
from tailrace.policy.groupings.load.reports import Reporter


class _LessLoadedOfTwo(InFlight):
    def __init__(self, tasks: int, rng: Random) -> None:
        super().__init__(tasks)
        self._random = rng.random
        self._tasks = tasks

    def choose_many(self, values: Sequence[Any]) -> Sequence[int]:
        in_flight, random, tasks = self.in_flight, self._random, self._tasks
        choices = []
        for _ in values:
            task = int(random() * tasks)
            other = (task + 1 + int(random() * (tasks - 1))) % tasks
            if in_flight[other] < in_flight[task]:
                task = other
            in_flight[task] += 1
            choices.append(task)
        return choices


@dataclass(frozen=True)
class PowerOfTwo:
    """Each tuple goes to the less loaded of two random tasks. ``power_of_two()`` makes one."""

    name = "power_of_two"
    keyed = False

    def bind(self, tasks: int, rng: Random) -> _LessLoadedOfTwo:
        return _LessLoadedOfTwo(tasks, rng)

    def bind_receiver(self, task: int, tasks: int, senders: int, rng: Random) -> Reporter:
        return Reporter(senders, None, rng)


def power_of_two() -> PowerOfTwo:
    """Pick two random tasks for each tuple, and send it to the one with fewer of this sender's tuples in flight.

    Example:
        >>> requests = tr.Topology("requests").source("requests", tr.from_iterable(range(10)))
        >>> requests.map("answer", str, tasks=4, grouping=tr.power_of_two())
        Stream(answer.main)
    """
    return PowerOfTwo()
