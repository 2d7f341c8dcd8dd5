"""Pull where a single task sends: it sees every tuple go and hears of every call, so no task needs to ask.

Decides, for each tuple and whenever a task reports, which task gets the oldest held tuple. A free task gets it at once.
A task is idle from the end of its call until the next tuple has come, which takes a round trip. While several tuples
are held, a busy task therefore gets one *ahead*: the task whose call has taken longest, since it is likely to be free
next, unless the call has taken so long that it seems stuck. Where calls are shorter than trips, a task gets as many
ahead as it runs during a trip.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heapreplace
from typing import Any, NamedTuple

from tailrace.clock import MILLISECOND_NS
from tailrace.policy.groupings.api import FIRST, HELD
from tailrace.policy.groupings.feedback import Message, Receiver

MAX_AHEAD = 256
"""Most tuples that a task has beyond the one that it runs: as many as may be held."""

PLENTY = 2
"""Held tuples from which on one goes ahead. Found by simulation. With one, a tuple that waits for one task may miss
another. With three or more, tasks wait for tuples more often, which is worse unless calls take seconds."""

STUCK = 2
"""A call that has taken this many times the mean is not expected to end soon."""

REPORT_EVERY_NS = MILLISECOND_NS
"""A task that has more to run reports what it has run at most once in this time."""

MAX_RUN = 32
"""Most tuples that a task has run and not reported: half of what may wait for it."""

SMOOTHING = 0.1  # of the round trip and the mean duration


class Ran(NamedTuple):
    """From a task: what it has run since its last message."""

    tuples: int
    busy_ns: int


class LoneReceiver(Receiver):
    """Law: the counts that it reports add up to the tuples that it was told of."""

    hears_arrivals = False
    arrivals_can_wait = True
    senders_wait = True

    def __init__(self) -> None:
        super().__init__()
        self.outbox.append((0, Ran(0, 0)))  # from which the sender learns that it is alone
        self._tuples = 0
        self._busy_ns = 0
        self._reported_ns = 0

    def executed(
        self, sender: int, value: Any, attached: Message | None, duration_ns: int, queued: int, now_ns: int
    ) -> None:
        self._count(1, duration_ns, queued, now_ns)

    def executed_many(
        self, sender: int, values: Sequence[Any], durations_ns: Sequence[int], queued: int, now_ns: int
    ) -> None:
        self._count(len(values), sum(durations_ns), queued, now_ns)

    def dropped(self, sender: int, attached: Message | None, queued: int, now_ns: int) -> None:
        self._count(1, 0, queued, now_ns)

    def _count(self, tuples: int, busy_ns: int, queued: int, now_ns: int) -> None:
        self._tuples += tuples
        self._busy_ns += busy_ns
        if not queued or self._tuples >= MAX_RUN or now_ns - self._reported_ns >= REPORT_EVERY_NS:
            self.outbox.append((0, Ran(self._tuples, self._busy_ns)))
            self._tuples = self._busy_ns = 0
            self._reported_ns = now_ns

    def hear(self, sender: int, message: Message, now_ns: int) -> None:
        """A message about held tuples, from before the sender knew that it is alone."""


class LoneSender:
    """Decides about tuples as they come, and about held ones when a task reports."""

    def __init__(self, tasks: int) -> None:
        self._idle = deque(range(tasks))
        self._there = [0] * tasks  # tuples at each task, or on their way to it
        self._since_ns = [0] * tasks  # when the oldest of them was sent, or became the oldest
        self._held = 0
        self._with_room: list[tuple[int, int, int]] | None = None  # busy tasks as a heap, until a task reports
        self._duration_ns = 0.0
        self._round_trip_ns = 0.0

    def choose_many(self, tuples: int, now_ns: int) -> list[int]:
        return [self._choose(now_ns) for _ in range(tuples)]

    def _choose(self, now_ns: int) -> int:
        if self._idle:
            self._with_room = None
            return self._give(self._idle.popleft(), now_ns)
        self._held += 1
        ahead = self._ahead(now_ns)
        return HELD if ahead is None else FIRST - ahead

    def hold(self, tuples: int) -> None:
        """Tuples were held before the first task reported."""
        self._held += tuples

    def hear(self, task: int, ran: Ran, now_ns: int) -> Iterable[int]:
        """The tasks for the oldest held tuples."""
        self._measure(task, ran, now_ns)
        self._with_room = None
        if ran.tuples:
            self._there[task] -= ran.tuples
            self._since_ns[task] = now_ns
            if not self._there[task]:
                self._idle.append(task)
        return self._released(now_ns) if self._held else ()

    def _released(self, now_ns: int) -> Iterator[int]:
        while self._held and self._idle:
            yield self._take(self._idle.popleft(), now_ns)
        while (ahead := self._ahead(now_ns)) is not None:
            yield ahead

    def _ahead(self, now_ns: int) -> int | None:
        """The busy task that gets the oldest held tuple, if several are held.

        Among tasks with room it is one with the fewest tuples, and among these the one whose call has taken longest.
        """
        if self._held < PLENTY:
            return None
        free, most = self._with_room, self._most_there()
        if free is None:
            free = self._with_room = self._busy_below(most)
        oldest_ns = now_ns - STUCK * self._duration_ns - self._round_trip_ns
        while free:
            there, since_ns, task = free[0]
            if since_ns > oldest_ns and there + 1 < most:
                heapreplace(free, (there + 1, since_ns, task))
            else:
                heappop(free)
            if since_ns > oldest_ns:
                return self._take(task, now_ns)
        return None

    def _take(self, task: int, now_ns: int) -> int:
        self._held -= 1
        return self._give(task, now_ns)

    def _give(self, task: int, now_ns: int) -> int:
        if not self._there[task]:
            self._since_ns[task] = now_ns
        self._there[task] += 1
        return task

    def _most_there(self) -> int:
        """Most tuples that may be at a task. If trips take no time, tasks are never idle, so none goes ahead."""
        if not (self._duration_ns and self._round_trip_ns):
            return 1
        return 1 + min(MAX_AHEAD, 1 + int(self._round_trip_ns / self._duration_ns))

    def _busy_below(self, most: int) -> list[tuple[int, int, int]]:
        free = [
            (there, since_ns, task)
            for task, (there, since_ns) in enumerate(zip(self._there, self._since_ns, strict=True))
            if 0 < there < most
        ]
        heapify(free)
        return free

    def _measure(self, task: int, ran: Ran, now_ns: int) -> None:
        if not ran.busy_ns:
            return
        weight = min(1.0, SMOOTHING * ran.tuples) if self._duration_ns else 1
        self._duration_ns += (ran.busy_ns / ran.tuples - self._duration_ns) * weight
        if ran.tuples == self._there[task]:  # it ran dry, and was idle for the time that was not spent in its last call
            trip_ns = max(0, now_ns - self._since_ns[task] - ran.busy_ns // ran.tuples)
            self._round_trip_ns += (trip_ns - self._round_trip_ns) * (SMOOTHING if self._round_trip_ns else 1)
