"""The send loop of a simulated process: tuples for other workers wait in outgoing queues and leave in scheduled order.

Receivers are stuck at random, as if they were behind, and while no process is there to receive. When the loop is
switched off, a task sends directly again once its queue is empty.
"""

from __future__ import annotations

from typing import Any

from tailrace.core.bundles import tuples_in
from tailrace.core.send_order.outgoing import OUTGOING_TUPLES, OutgoingQueue, Parcel, SendOrder
from tailrace.core.tasks.base import Task
from tailrace.policy.send_order.api import SendScheduler
from tailrace.policy.send_order.fifo import fifo
from tailrace.sim.faults.interfaces import AnyProcess

STUCK = 0.1
"""Share of turns in which the receiver takes nothing."""


class SimSendLoop:
    """The send loop of one process. It ends with the process."""

    def __init__(self, process: AnyProcess, most_tuples: int = OUTGOING_TUPLES) -> None:
        """``most_tuples``: the capacity of an outgoing queue."""
        self._process = process
        self._most_tuples = most_tuples
        self._on = False
        self._queues: dict[int, OutgoingQueue] = {}  # by task
        self._orders: dict[int, tuple[SendOrder, list[int]]] = {}  # by operator, with its tasks here
        self._awake = False

    def switch(self, scheduler: SendScheduler | None) -> None:
        """Use this scheduler from now on for what open tasks send to other workers, or none."""
        self._on = scheduler is not None
        if scheduler is not None:
            if not self._orders:
                self._make_queues()
            for order, _ in self._orders.values():
                order.switch(scheduler)

    def _make_queues(self) -> None:
        plan, rng = self._process.plan, self._process.cluster.rng
        by_operator: dict[int, list[int]] = {}
        for number in self._process.tasks:
            if plan.operators[plan.operator_of[number]].tasks > 1:
                by_operator.setdefault(plan.operator_of[number], []).append(number)
        for operator, numbers in by_operator.items():
            self._queues.update({number: OutgoingQueue(self._most_tuples) for number in numbers})
            queues = [self._queues[number] for number in numbers]
            self._orders[operator] = SendOrder(queues, fifo(), rng, 1), numbers

    def takes(self, task: Task, target: int) -> bool:
        """Whether the send loop takes what a task sends to a target."""
        queue = self._queues.get(task.number)
        far = self._process.plan.home[target] != self._process.worker
        return queue is not None and far and (self._on or not queue.empty)

    def has_room(self, task: Task) -> bool:
        return self._queues[task.number].room > 0

    def holds_back(self, task: Task) -> bool:
        queue = self._queues.get(task.number)
        return queue is not None and queue.held_back

    def put(self, task: Task, target: int, bundles: list[Any]) -> None:
        now_ns = self._process.cluster.engine.now_ns
        self._queues[task.number].put(Parcel(target, bundles, max(1, tuples_in(bundles)), 1, now_ns))
        self._wake()

    def _wake(self) -> None:
        if not self._awake:
            self._awake = True
            cluster = self._process.cluster
            cluster.engine.after(cluster.delay(), self._process.guarded(self._turn))

    def _turn(self) -> None:
        self._awake = False
        rng = self._process.cluster.rng
        for order, numbers in self._orders.values():
            order.take_in()
            for index, target in order.stuck_receivers():
                order.free(index, target)
            for _ in range(rng.randrange(1, 6)):
                picked = order.pick(self._process.cluster.engine.now_ns)
                if picked is None:
                    break
                self._send(order, numbers, *picked)
            order.validate()
        if any(not queue.empty for queue in self._queues.values()):
            self._wake()

    def _send(self, order: SendOrder, numbers: list[int], index: int, parcel: Parcel) -> None:
        process = self._process
        home = process.plan.home[parcel.target]
        gone = process.core.membership.member(home) is None
        full = not process.can_send(numbers[index], parcel.target, parcel.target)
        if gone or full or process.cluster.rng.random() < STUCK:
            order.stuck(index, parcel.target)
            return
        process.send(numbers[index], parcel.target, parcel.target, parcel.payload)
        order.sent(index, parcel)
