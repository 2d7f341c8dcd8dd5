"""Simulates a worker that sends over one uplink: tasks with bounded outgoing queues, and a scheduler.

The queues, the order and the uplink budget are those of the runtime. A task makes its tuples when they are due, at no
cost. While it is held back they wait at the task, and their latency goes on. Only the uplink takes time.

If ``most_inputs`` limits how many tuples may wait at a task, all tuples come from one source in the order in which they
are due, and the source waits with all later tuples while the next one finds no room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import merge
from random import Random

from tailrace.clock import SECOND_NS
from tailrace.core.send_order.outgoing import OutgoingQueue, Parcel, SendOrder
from tailrace.core.send_order.uplink_budget import UplinkBudget
from tailrace.errors import OptionError
from tailrace.policy.send_order.api import SendScheduler


@dataclass(frozen=True)
class SendingResult:
    """Results by task: latencies from due to sent, in the order of sending; largest backlog; time held back."""

    latencies_ns: list[list[int]]
    largest: list[int]
    blocked_ns: list[int]

    @property
    def mean_ns(self) -> float:
        return sum(map(sum, self.latencies_ns)) / sum(map(len, self.latencies_ns))

    @property
    def slowest_mean_ns(self) -> float:
        """The mean latency of the task whose mean is the largest."""
        return max(sum(latencies) / len(latencies) for latencies in self.latencies_ns if latencies)


class SendingTask:
    """A task with tuples that are due but not made yet, and its outgoing queue."""

    def __init__(self, most_tuples: int) -> None:
        self.inputs: deque[int] = deque()  # due times
        self.queue = OutgoingQueue(most_tuples)
        self.blocked_ns = 0
        self._blocked_since_ns: int | None = None

    def work(self, now_ns: int, size: int) -> None:
        """Make the tuples that are due, as long as the queue has room."""
        held_back = self.queue.held_back
        while self.inputs and not held_back:
            self.queue.put(Parcel(0, self.inputs.popleft(), 1, size, now_ns))
            held_back = self.queue.held_back
        if held_back and self._blocked_since_ns is None:
            self._blocked_since_ns = now_ns
        elif not held_back and self._blocked_since_ns is not None:
            self.blocked_ns += now_ns - self._blocked_since_ns
            self._blocked_since_ns = None


def simulate_sending(
    scheduler: SendScheduler,
    due_ns: Sequence[Sequence[int]],
    *,
    size: int,
    bytes_per_s: int,
    most_tuples: int,
    rng: Random,
    most_inputs: int | None = None,
) -> SendingResult:
    """Simulate tasks that send over one uplink. ``due_ns``: the times at which the tuples of each task are due."""
    if not any(due_ns):
        raise OptionError(f"nothing would ever be sent: tasks={len(due_ns)}: is any list of due times not empty?")
    budget = UplinkBudget(bytes_per_s)
    tasks = [SendingTask(most_tuples) for _ in due_ns]
    order = SendOrder([task.queue for task in tasks], scheduler, rng, max(1, SECOND_NS // bytes_per_s))
    coming = deque(merge(*([(at_ns, index) for at_ns in times] for index, times in enumerate(due_ns))))
    latencies_ns: list[list[int]] = [[] for _ in tasks]
    now_ns, left = 0, len(coming)
    while left:
        feed(coming, tasks, now_ns, size, most_inputs)
        order.take_in()
        if budget.free_ns <= now_ns and order.waits:
            picked = order.pick(now_ns)
            if picked is not None:
                order.sent(*picked)
                latencies_ns[picked[0]].append(now_ns - picked[1].payload)
                left -= 1
            if picked is not None or scheduler.interval_ns is None:
                budget.spend(size, now_ns)  # a wasted turn takes as long as any other
                continue
        now_ns = _next_ns(now_ns, budget, coming, order)
    order.validate()
    return SendingResult(latencies_ns, [task.queue.largest for task in tasks], [task.blocked_ns for task in tasks])


def feed(
    coming: deque[tuple[int, int]], tasks: Sequence[SendingTask], now_ns: int, size: int, most_inputs: int | None
) -> None:
    """Give tasks their due tuples, and let them work."""
    for task in tasks:
        task.work(now_ns, size)
    while coming and coming[0][0] <= now_ns:
        task = tasks[coming[0][1]]
        if most_inputs is not None and len(task.inputs) >= most_inputs:
            return
        task.inputs.append(coming.popleft()[0])
        task.work(now_ns, size)


def _next_ns(now_ns: int, budget: UplinkBudget, coming: deque[tuple[int, int]], order: SendOrder) -> int:
    """The next time at which a tuple is due, the uplink is free, or the scheduler decides again."""
    times_ns = [coming[0][0]] if coming and coming[0][0] > now_ns else []
    if budget.free_ns > now_ns:
        times_ns.append(budget.free_ns)
    elif order.waits and order.scheduler.interval_ns is not None:
        times_ns.append((now_ns // order.scheduler.interval_ns + 1) * order.scheduler.interval_ns)
    return min(times_ns)
