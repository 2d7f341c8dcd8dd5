"""Latency-based balancing that adapts within a second, not minutes: expected latencies first, shares second.

Decides by how many of this sender's tuples each task has in flight, and how much time the task took for each while it
had any; the product is the expected latency of the next tuple. A task far above the smallest is skipped, which ends an
overload before any average has moved. Among the others, tuples follow shares in proportion to speed. After Du and Gupta
(2016), from which it keeps the shares only. Laws: those of ``FeedbackChooser`` and ``Receiver``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tailrace.clock import MILLISECOND_NS
from tailrace.policy.groupings.feedback import Message
from tailrace.policy.groupings.load.in_flight import InFlight
from tailrace.policy.groupings.load.reports import Done, Reporter
from tailrace.policy.groupings.load.shares import Shares

PERIOD_NS = 250 * MILLISECOND_NS
KEPT = 0.8
"""Share of the measurements that is kept from one period to the next. Speeds are means over about a second."""

CROWDED = 1.5
"""A task with more than this multiple of the smallest expected latency is skipped."""

DOUBT = 3
"""Tuples of mean duration that are added to those of each task, so that one slow tuple does not make a slow task."""

QUIET = 4
"""Periods without a tuple after which a task gets one, to find out whether it is still slow."""


class _Guard(InFlight):
    def __init__(self, tasks: int, rng: Random) -> None:
        super().__init__(tasks)
        self.shares = Shares(tasks, rng.randrange(tasks))
        self._tasks = range(tasks)
        self._tuple_ns = [1.0] * tasks  # time that each task takes for one tuple
        self._busy_ns = [0.0] * tasks  # time with tuples of this sender in flight
        self._done = [0.0] * tasks
        self._tracked_ns = [0] * tasks
        self._quiet = [0] * tasks  # periods without a tuple
        self._now_ns = 0
        self._measured_ns = 0

    def tick(self, now_ns: int) -> None:
        super().tick(now_ns)
        self._now_ns = now_ns
        if now_ns - self._measured_ns >= PERIOD_NS:
            self._measured_ns = now_ns
            self._measure()

    def choose_many(self, values: Sequence[Any]) -> Sequence[int]:
        return [self._choose() for _ in values]

    def _choose(self) -> int:
        expected_ns = [(count + 1) * tuple_ns for count, tuple_ns in zip(self.in_flight, self._tuple_ns, strict=True)]
        limit_ns = CROWDED * min(expected_ns)
        task = self.shares.next([task for task in self._tasks if expected_ns[task] > limit_ns])
        if max(self._quiet) >= QUIET:
            task = self._quiet.index(max(self._quiet))
        self._track(task)
        self._quiet[task] = 0
        self.in_flight[task] += 1
        return task

    def hear(self, task: int, message: Message, now_ns: int) -> Sequence[int]:
        assert isinstance(message, Done), message
        self._now_ns = now_ns
        self._track(task)
        self._done[task] += message.tuples
        return super().hear(task, message, now_ns)

    def _track(self, task: int) -> None:
        if self.in_flight[task]:
            self._busy_ns[task] += self._now_ns - self._tracked_ns[task]
        self._tracked_ns[task] = self._now_ns

    def _measure(self) -> None:
        for task in self._tasks:
            self._track(task)
            self._quiet[task] += 1
        if not sum(self._done):
            return
        doubt_ns = DOUBT * sum(self._busy_ns) / sum(self._done)
        self._tuple_ns = [
            (busy_ns + doubt_ns) / (done + DOUBT) for busy_ns, done in zip(self._busy_ns, self._done, strict=True)
        ]
        whole = sum(1 / tuple_ns for tuple_ns in self._tuple_ns)
        self.shares.of = [1 / tuple_ns / whole for tuple_ns in self._tuple_ns]
        self._busy_ns = [KEPT * busy_ns for busy_ns in self._busy_ns]
        self._done = [KEPT * done for done in self._done]


@dataclass(frozen=True)
class LatencyBalancedFast:
    """Each tuple goes where it is expected to take least. ``latency_balanced(fast=True)`` makes one."""

    name = "latency_balanced_fast"
    keyed = False

    def bind(self, tasks: int, rng: Random) -> _Guard:
        return _Guard(tasks, rng)

    def bind_receiver(self, task: int, tasks: int, senders: int, rng: Random) -> Reporter:
        return Reporter(senders, None, rng)
