"""The adaptive partitioner of Flink 2.3, a baseline: scan the next four tasks, take an empty one or the shortest.

Decides by tuples in flight, where Flink looks at its output buffers. Laws: those of ``FeedbackChooser`` and
``Receiver``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tailrace.policy.groupings.load.in_flight import InFlight
from tailrace.policy.groupings.load.reports import Reporter

SCANNED = 4
"""Tasks that are scanned. Flink has the same default for channels."""


class _Scan(InFlight):
    def __init__(self, tasks: int, start: int) -> None:
        super().__init__(tasks)
        self._tasks = tasks
        self._current = start

    def choose_many(self, values: Sequence[Any]) -> Sequence[int]:
        return [self._next() for _ in values]

    def _next(self) -> int:
        in_flight, tasks = self.in_flight, self._tasks
        best = (self._current + 1) % tasks
        for step in range(1, min(SCANNED, tasks) + 1):
            task = (self._current + step) % tasks
            if in_flight[task] < in_flight[best]:
                best = task
            if not in_flight[best]:
                break
        in_flight[best] += 1
        self._current = best
        return best


@dataclass(frozen=True)
class FlinkScan:
    """Each tuple goes to the shortest of the next four queues, by tuples in flight. ``flink_scan()`` makes one."""

    name = "flink_scan"
    keyed = False

    def bind(self, tasks: int, rng: Random) -> _Scan:
        return _Scan(tasks, rng.randrange(tasks))

    def bind_receiver(self, task: int, tasks: int, senders: int, rng: Random) -> Reporter:
        return Reporter(senders, None, rng)


def flink_scan() -> FlinkScan:
    """Choose as Flink's adaptive partitioner does: a baseline to compare with.

    Example:
        >>> from tailrace.policy import flink_scan
        >>> flink_scan().name
        'flink_scan'
    """
    return FlinkScan()
