"""Outgoing queues: what the tasks of an operator in one worker have to send to other workers, and in which order.

A *parcel* is what is queued and sent: encoded bundles for one task, which leave together. A task puts parcels into its
outgoing queue. The send loop takes them in, has the scheduler pick a queue, and sends the parcel that has waited
longest there. Parcels for one receiver keep their order. While a receiver takes nothing it is *stuck*, and schedulers
do not see its parcels.

Tasks and send loop may run in two threads. Each number is written by one of them, and parcels pass through a deque.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

from tailrace.policy.send_order.api import NEVER_NS, NOTHING, SendScheduler, Waiting

OUTGOING_TUPLES = 256
"""Tuples that may wait in an outgoing queue: as many as may wait in a lane. Beyond that, the task is held back."""

OUTGOING_BYTES = 1 << 20
"""Bytes that may wait in an outgoing queue."""


class Parcel(NamedTuple):
    """Encoded bundles for one task."""

    target: int  # task number
    payload: Any
    tuples: int  # at least 1, also for a parcel of feedback messages only: it must be sent as well
    size: int  # bytes
    put_ns: int  # when it was put into the queue


class OutgoingQueue:
    """The outgoing queue of one task.

    Law: a task that was held back stays so until half of its queue is free.
    """

    def __init__(self, most_tuples: int = OUTGOING_TUPLES, most_bytes: int = OUTGOING_BYTES) -> None:
        self._most_tuples = most_tuples
        self._most_bytes = most_bytes
        self._arrivals: deque[Parcel] = deque()
        self._put_tuples = self._put_bytes = 0  # written by the task
        self._sent_tuples = self._sent_bytes = 0  # written by the send loop
        self.largest = 0  # the largest backlog ever
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
        """Whether the task must wait. Only the task's own thread may ask."""
        if self._held_back:
            self._held_back = not self.has_room
        else:
            self._held_back = not self.room
        return self._held_back

    @property
    def has_room(self) -> bool:
        """Whether half of the queue is free, so that the task need no longer be held back."""
        waiting_bytes = self._put_bytes - self._sent_bytes
        return 2 * self.backlog <= self._most_tuples and 2 * waiting_bytes <= self._most_bytes

    @property
    def empty(self) -> bool:
        return not self.backlog

    # -- for the send loop

    @property
    def has_arrivals(self) -> bool:
        return bool(self._arrivals)

    def arrival(self) -> Parcel | None:
        return self._arrivals.popleft() if self._arrivals else None

    def sent(self, parcel: Parcel) -> None:
        self._sent_bytes += parcel.size
        self._sent_tuples += parcel.tuples


class _ReceiverQueue:
    """The parcels of one task for one receiver."""

    __slots__ = ("parcels", "size", "stuck", "tuples")

    def __init__(self) -> None:
        self.parcels: deque[Parcel] = deque()
        self.tuples = 0
        self.size = 0
        self.stuck = False


class SendOrder:
    """The outgoing queues of an operator's tasks in one worker, and the scheduler that picks among them.

    Law: every parcel is given out once. Parcels of one task for one receiver are given out in the order in which they
    were put in, and none while the receiver is stuck.
    """

    def __init__(self, queues: Sequence[OutgoingQueue], scheduler: SendScheduler, rng: Random, byte_ns: int) -> None:
        self.queues = tuple(queues)
        self.waiting = Waiting(len(self.queues))
        self._receivers: list[dict[int, _ReceiverQueue]] = [{} for _ in self.queues]
        self._rng = rng
        self._byte_ns = byte_ns  # how long it takes to send a byte
        self.switch(scheduler)

    def switch(self, scheduler: SendScheduler) -> None:
        """Let this scheduler pick from now on."""
        self.scheduler = scheduler
        self._picker = scheduler.bind(len(self.queues), self._rng)

    @property
    def waits(self) -> bool:
        """Whether there is a parcel that the scheduler may pick."""
        return any(self.waiting.tuples)

    def take_in(self) -> None:
        """Take in the parcels that tasks have put into their queues."""
        for index, queue in enumerate(self.queues):
            while (parcel := queue.arrival()) is not None:
                receiver = self._receivers[index].setdefault(parcel.target, _ReceiverQueue())
                receiver.parcels.append(parcel)
                receiver.tuples += parcel.tuples
                receiver.size += parcel.size
                if not receiver.stuck:
                    self._count(index, parcel.tuples, parcel.size)

    def pick(self, now_ns: int) -> tuple[int, Parcel] | None:
        """The index of the queue whose turn it is, and its parcel. None if the scheduler picks none.

        The parcel stays in its queue. The caller must call ``sent`` or ``stuck`` next.
        """
        index = self._picker.pick(self.waiting, now_ns)
        if index == NOTHING or not self.waiting.tuples[index]:
            return None
        return index, self.head(index)

    def head(self, index: int) -> Parcel:
        """The parcel that a queue sends next. The queue must not be empty."""
        heads = [one.parcels[0] for one in self._receivers[index].values() if one.parcels and not one.stuck]
        return min(heads, key=_put_ns)

    def sent(self, index: int, parcel: Parcel) -> None:
        """The parcel that was picked has left."""
        receiver = self._receivers[index][parcel.target]
        assert receiver.parcels[0] is parcel, "a parcel has left out of its turn"
        receiver.parcels.popleft()
        receiver.tuples -= parcel.tuples
        receiver.size -= parcel.size
        self._count(index, -parcel.tuples, -parcel.size)
        self.queues[index].sent(parcel)

    def stuck(self, index: int, target: int) -> None:
        """The receiver takes no parcels for now."""
        receiver = self._receivers[index][target]
        if not receiver.stuck:
            receiver.stuck = True
            self._count(index, -receiver.tuples, -receiver.size)

    def free(self, index: int, target: int) -> None:
        """The receiver takes parcels again."""
        receiver = self._receivers[index][target]
        if receiver.stuck:
            receiver.stuck = False
            self._count(index, receiver.tuples, receiver.size)

    def stuck_receivers(self) -> list[tuple[int, int]]:
        """(queue index, receiver) of each stuck receiver that has parcels waiting."""
        return [
            (index, target)
            for index, receivers in enumerate(self._receivers)
            for target, queue in receivers.items()
            if queue.stuck and queue.parcels
        ]

    def _count(self, index: int, tuples: int, size: int) -> None:
        waiting = self.waiting
        waiting.tuples[index] += tuples
        waiting.work_ns[index] += size * self._byte_ns
        heads = [one.parcels[0].put_ns for one in self._receivers[index].values() if one.parcels and not one.stuck]
        waiting.since_ns[index] = min(heads, default=NEVER_NS)

    def validate(self) -> None:
        self.waiting.validate()
        for index, queue in enumerate(self.queues):
            receivers = self._receivers[index].values()
            held = sum(parcel.tuples for one in receivers for parcel in one.parcels)
            arriving = sum(parcel.tuples for parcel in tuple(queue._arrivals))
            facts = f"queue={index} backlog={queue.backlog} for receivers={held} arriving={arriving}"
            assert queue.backlog == held + arriving, f"a parcel is lost or doubled: {facts}"
            seen = sum(one.tuples for one in receivers if not one.stuck)
            assert self.waiting.tuples[index] == seen, f"a scheduler sees what is not there: {facts} seen={seen}"


def _put_ns(parcel: Parcel) -> int:
    return parcel.put_ns
