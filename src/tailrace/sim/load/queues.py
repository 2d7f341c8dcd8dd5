"""Queues in front of tasks: first in, first out, or the shortest expected job first, with aging."""

from __future__ import annotations

import heapq
from collections import deque
from typing import Protocol

from tailrace.policy.groupings.feedback import Message
from tailrace.policy.groupings.load.cost_table import CostTable

Job = tuple[int, int, int, int, Message | None, int]
"""(tuple, incarnation, sender, the task that its sender chose, attached message, arrival)"""

CAPACITY = 8192  # keys with cost estimates of their own


class TaskQueue(Protocol):
    """A queue of jobs. Law: each job is taken once."""

    def __len__(self) -> int: ...

    def put(self, job: Job, value: int, now_ns: int) -> None: ...

    def take(self) -> Job: ...

    def ran(self, value: int, duration_ns: int) -> None:
        """A task of this queue has run a tuple with this value."""
        ...


class Fifo:
    """First in, first out."""

    def __init__(self) -> None:
        self._jobs: deque[Job] = deque()
        self.take = self._jobs.popleft

    def __len__(self) -> int:
        return len(self._jobs)

    def put(self, job: Job, value: int, now_ns: int) -> None:
        self._jobs.append(job)

    def ran(self, value: int, duration_ns: int) -> None:
        pass


class ShortestFirst:
    """By expected duration less ``aging`` times the wait. The order of two waiting jobs never changes."""

    def __init__(self, aging: float) -> None:
        self._aging = aging
        self._costs = CostTable(1, CAPACITY)
        self._jobs: list[tuple[float, int, Job]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._jobs)

    def put(self, job: Job, value: int, now_ns: int) -> None:
        self._sequence += 1
        heapq.heappush(self._jobs, (self._costs.estimate(value) + self._aging * now_ns, self._sequence, job))

    def take(self) -> Job:
        return heapq.heappop(self._jobs)[2]

    def ran(self, value: int, duration_ns: int) -> None:
        self._costs.add(value, 0, duration_ns)
