"""Outgoing queues: what the tasks of an operator in one worker have to send to others, and whose turn it is.

A *parcel* is what is queued and sent: bundles for one task, encoded, which leave together. A task puts parcels into its
queue; whoever sends takes them in, has the scheduler pick a queue, and sends the parcel that has waited longest there.
Parcels for one receiver are in *line*. A line is *stuck* while its receiver takes nothing: schedulers do not see it.

The two sides may be two threads. Each number has one that writes it, and what passes between them is a deque.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

from tailrace.policy.send_order.api import NEVER_NS, NOTHING, SendScheduler, Waiting

OUTGOING_TUPLES = 256
"""Tuples that may wait in a task's outgoing queue: as many as may wait in a lane. Beyond, the task is held back."""

OUTGOING_BYTES = 1 << 20
"""The same in bytes."""


class Parcel(NamedTuple):
    target: int  # task number
    payload: Any
    tuples: int  # at least 1: a parcel of nothing but notes wants to be sent as well
    size: int  # bytes
    put_ns: int


class OutgoingQueue:
    """The queue of one task.

    Law: a task that was found held back stays so until half of what its queue may hold is free.
    """

    def __init__(self, most_tuples: int = OUTGOING_TUPLES, most_bytes: int = OUTGOING_BYTES) -> None:
        self._most_tuples = most_tuples
        self._most_bytes = most_bytes
        self._arrivals: deque[Parcel] = deque()
        self._put_tuples = self._put_bytes = 0  # written by the task
        self._sent_tuples = self._sent_bytes = 0  # written by who sends
        self.largest = 0  # backlog, ever
        self._held_back = False

    # -- for the task

    def put(self, parcel: Parcel) -> None:
        self._put_tuples += parcel.tuples
        self._put_bytes += parcel.size
        self._arrivals.append(parcel)
        self.largest = max(self.largest, self.backlog)

    @property
    def backlog(self) -> int:
        """Tuples that wait."""
        return self._put_tuples - self._sent_tuples

    @property
    def room(self) -> int:
        """Tuples that may be put in now."""
        full = self._put_bytes - self._sent_bytes >= self._most_bytes
        return 0 if full else max(0, self._most_tuples - self.backlog)

    @property
    def held_back(self) -> bool:
        """Whether the task must wait. For the task alone to ask."""
        if self._held_back:
            self._held_back = not self.has_room
        else:
            self._held_back = not self.room
        return self._held_back

    @property
    def has_room(self) -> bool:
        """So much that the task need no longer be held back."""
        waiting_bytes = self._put_bytes - self._sent_bytes
        return 2 * self.backlog <= self._most_tuples and 2 * waiting_bytes <= self._most_bytes

    @property
    def empty(self) -> bool:
        return not self.backlog

    # -- for who sends

    @property
    def has_arrivals(self) -> bool:
        return bool(self._arrivals)

    def arrival(self) -> Parcel | None:
        return self._arrivals.popleft() if self._arrivals else None

    def sent(self, parcel: Parcel) -> None:
        self._sent_bytes += parcel.size
        self._sent_tuples += parcel.tuples


class _Line:
    """Parcels for one receiver."""

    __slots__ = ("parcels", "size", "stuck", "tuples")

    def __init__(self) -> None:
        self.parcels: deque[Parcel] = deque()
        self.tuples = 0
        self.size = 0
        self.stuck = False


class SendOrder:
    """The outgoing queues of an operator's tasks in one worker, and the scheduler that picks among them.

    Law: every parcel is given out once, those for one receiver from one queue in the order in which they were put in,
    and none of a line that is stuck.
    """

    def __init__(self, queues: Sequence[OutgoingQueue], scheduler: SendScheduler, rng: Random, byte_ns: int) -> None:
        self.queues = tuple(queues)
        self.waiting = Waiting(len(self.queues))
        self._lines: list[dict[int, _Line]] = [{} for _ in self.queues]
        self._rng = rng
        self._byte_ns = byte_ns  # what it takes to send a byte
        self.switch(scheduler)

    def switch(self, scheduler: SendScheduler) -> None:
        """Have this scheduler pick from now on."""
        self.scheduler = scheduler
        self._picker = scheduler.bind(len(self.queues), self._rng)

    @property
    def waits(self) -> bool:
        """Whether something could be sent, if the scheduler let it."""
        return any(self.waiting.tuples)

    def take_in(self) -> None:
        """What tasks have put in since."""
        for index, queue in enumerate(self.queues):
            while (parcel := queue.arrival()) is not None:
                line = self._lines[index].setdefault(parcel.target, _Line())
                line.parcels.append(parcel)
                line.tuples += parcel.tuples
                line.size += parcel.size
                if not line.stuck:
                    self._count(index, parcel.tuples, parcel.size)

    def pick(self, now_ns: int) -> tuple[int, Parcel] | None:
        """Whose turn it is, and what it sends. It stays in its queue until it is said to be ``sent`` or ``stuck``."""
        index = self._picker.pick(self.waiting, now_ns)
        if index == NOTHING or not self.waiting.tuples[index]:
            return None
        return index, self.head(index)

    def head(self, index: int) -> Parcel:
        """What a queue that holds something sends when it is its turn."""
        heads = [line.parcels[0] for line in self._lines[index].values() if line.parcels and not line.stuck]
        return min(heads, key=_put_ns)

    def sent(self, index: int, parcel: Parcel) -> None:
        """What was picked has left."""
        line = self._lines[index][parcel.target]
        assert line.parcels[0] is parcel, "a parcel has left out of its turn"
        line.parcels.popleft()
        line.tuples -= parcel.tuples
        line.size -= parcel.size
        self._count(index, -parcel.tuples, -parcel.size)
        self.queues[index].sent(parcel)

    def stuck(self, index: int, target: int) -> None:
        """This receiver takes nothing for now."""
        line = self._lines[index][target]
        if not line.stuck:
            line.stuck = True
            self._count(index, -line.tuples, -line.size)

    def free(self, index: int, target: int) -> None:
        """It does again."""
        line = self._lines[index][target]
        if line.stuck:
            line.stuck = False
            self._count(index, line.tuples, line.size)

    def stuck_lines(self) -> list[tuple[int, int]]:
        """Queue and receiver of each line that is stuck and has something in it."""
        return [
            (index, target)
            for index, lines in enumerate(self._lines)
            for target, line in lines.items()
            if line.stuck and line.parcels
        ]

    def _count(self, index: int, tuples: int, size: int) -> None:
        waiting = self.waiting
        waiting.tuples[index] += tuples
        waiting.work_ns[index] += size * self._byte_ns
        heads = [line.parcels[0].put_ns for line in self._lines[index].values() if line.parcels and not line.stuck]
        waiting.since_ns[index] = min(heads, default=NEVER_NS)

    def validate(self) -> None:
        self.waiting.validate()
        for index, queue in enumerate(self.queues):
            lines = self._lines[index].values()
            held = sum(parcel.tuples for line in lines for parcel in line.parcels)
            arriving = sum(parcel.tuples for parcel in tuple(queue._arrivals))
            facts = f"queue={index} backlog={queue.backlog} in lines={held} arriving={arriving}"
            assert queue.backlog == held + arriving, f"a parcel is lost or doubled: {facts}"
            seen = sum(line.tuples for line in lines if not line.stuck)
            assert self.waiting.tuples[index] == seen, f"a scheduler sees what is not there: {facts} seen={seen}"


def _put_ns(parcel: Parcel) -> int:
    return parcel.put_ns
