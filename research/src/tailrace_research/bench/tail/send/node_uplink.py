"""Simulates the workers of a node that share one uplink, in one of three ways.

``split``: each worker has an equal part of the rate to itself. ``first_come``: one budget, for which workers take
turns, each with its own order. ``node``: the scheduler picks among the tasks of all workers, by shared words.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from heapq import merge
from random import Random

from tailrace.clock import SECOND_NS
from tailrace.core.send_order.node_uplink import WAIT, NodeUplink, NodeWords
from tailrace.core.send_order.outgoing import Parcel, SendOrder
from tailrace.core.send_order.uplink_budget import UplinkBudget
from tailrace.errors import OptionError
from tailrace.policy.send_order.api import SendScheduler
from tailrace_research.bench.tail.send.worker_uplink import SendingResult, SendingTask, feed, simulate_sending

SPLIT, FIRST_COME, NODE = "split", "first_come", "node"


def simulate_node(
    sharing: str,
    scheduler: SendScheduler,
    due_ns: Sequence[Sequence[int]],
    home: Sequence[int],
    *,
    size: int,
    bytes_per_s: int,
    most_tuples: int,
    seed: int,
) -> SendingResult:
    """Simulate tasks of several workers that send over one uplink. ``home``: the worker of each task."""
    workers = max(home) + 1
    if sharing == SPLIT:
        results = []
        for worker in range(workers):
            own = [times for times, where in zip(due_ns, home, strict=True) if where == worker]
            part = {"size": size, "bytes_per_s": bytes_per_s // workers, "most_tuples": most_tuples}
            results.append(simulate_sending(scheduler, own, **part, rng=Random(seed)))
        return _in_order_of_tasks(results, home)
    if sharing not in (FIRST_COME, NODE):
        raise OptionError(f"no such way to share a link: sharing={sharing}: did you mean {NODE!r}?")
    node = _Node(due_ns, home, scheduler, size, bytes_per_s, most_tuples, seed)
    return node.run(node.first_come if sharing == FIRST_COME else node.in_turn)


class _Node:
    def __init__(
        self,
        due_ns: Sequence[Sequence[int]],
        home: Sequence[int],
        scheduler: SendScheduler,
        size: int,
        bytes_per_s: int,
        most_tuples: int,
        seed: int,
    ) -> None:
        byte_ns = max(1, SECOND_NS // bytes_per_s)
        self._scheduler, self._size = scheduler, size
        self._tasks = [SendingTask(most_tuples) for _ in due_ns]
        self._coming = deque(merge(*([(at_ns, index) for at_ns in times] for index, times in enumerate(due_ns))))
        self._own = [[task for task, where in enumerate(home) if where == worker] for worker in range(max(home) + 1)]
        self._orders = [
            SendOrder([self._tasks[task].queue for task in own], scheduler, Random(seed + worker), byte_ns)
            for worker, own in enumerate(self._own)
        ]
        self._budget = UplinkBudget(bytes_per_s)
        self._next_worker = 0
        places = NodeWords([len(home)], home)
        words = [0] * places.count
        places.clear(words)
        workers = len(self._own)
        self._links = [NodeUplink(words, places, worker, bytes_per_s, workers) for worker in range(workers)]

    def run(self, send_one: Callable[[int], tuple[int, Parcel] | int]) -> SendingResult:
        """Run to the end. ``send_one`` returns the task and what it has sent, or when to try again."""
        latencies_ns: list[list[int]] = [[] for _ in self._tasks]
        now_ns, left = 0, len(self._coming)
        while left:
            feed(self._coming, self._tasks, now_ns, self._size, None)
            for order in self._orders:
                order.take_in()
            sent = send_one(now_ns)
            if isinstance(sent, tuple):
                latencies_ns[sent[0]].append(now_ns - sent[1].payload)
                left -= 1
                continue
            due_ns = [self._coming[0][0]] if self._coming else []
            now_ns = min([sent, *due_ns] if any(order.waits for order in self._orders) else due_ns)
        for order in self._orders:
            order.validate()
        queues = [task.queue for task in self._tasks]
        return SendingResult(
            latencies_ns, [queue.largest for queue in queues], [task.blocked_ns for task in self._tasks]
        )

    def first_come(self, now_ns: int) -> tuple[int, Parcel] | int:
        if self._budget.free_ns > now_ns:
            return self._budget.free_ns
        workers = len(self._orders)
        for step in range(workers):
            worker = (self._next_worker + step) % workers
            picked = self._orders[worker].pick(now_ns)
            if picked is not None:
                self._next_worker = worker + 1
                self._budget.spend(self._size, now_ns)
                self._orders[worker].sent(*picked)
                return self._own[worker][picked[0]], picked[1]
        interval_ns = self._scheduler.interval_ns or 1
        return (now_ns // interval_ns + 1) * interval_ns

    def in_turn(self, now_ns: int) -> tuple[int, Parcel] | int:
        again_ns = []
        for link, order, own in zip(self._links, self._orders, self._own, strict=True):
            link.publish(order.waiting, own)
        for link, order, own in zip(self._links, self._orders, self._own, strict=True):
            if not order.waits:
                continue
            task = link.look(self._scheduler, now_ns)
            if task == WAIT:
                again_ns.append(link.again_ns)
                continue
            index = own.index(task)
            parcel = order.head(index)
            link.spend(task, parcel.size, now_ns)
            order.sent(index, parcel)
            return task, parcel
        return min(again_ns, default=now_ns + 1)


def _in_order_of_tasks(results: Sequence[SendingResult], home: Sequence[int]) -> SendingResult:
    """The results of several workers, in the order of tasks."""
    own = [iter(zip(one.latencies_ns, one.largest, one.blocked_ns, strict=True)) for one in results]
    latencies_ns, largest, blocked_ns = zip(*(next(own[worker]) for worker in home), strict=True)
    return SendingResult(list(latencies_ns), list(largest), list(blocked_ns))
