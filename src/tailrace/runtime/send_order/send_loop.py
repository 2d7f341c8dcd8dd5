"""The send loop sends for the tasks of a worker, in the order that a send scheduler says.

It works on the runner that short calls share, after all of those, and so without a hand-over for what they send. Where
that runner may have long calls, it has one of its own. Tasks of one operator are scheduled together; operators take
turns, a parcel each. The loop never waits for a receiver: one that takes nothing has its line stuck, and is looked at
again when its link stirs. Where workers of a machine share a link, tasks of all of them are scheduled together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from tailrace.clock import MICROSECOND_NS, SECOND_NS, system_clock
from tailrace.core.plan.plan import Plan
from tailrace.core.send_order.node_uplink import WAIT, NodeUplink
from tailrace.core.send_order.outgoing import OutgoingQueue, Parcel, SendOrder
from tailrace.core.send_order.uplink_budget import UplinkBudget
from tailrace.policy.send_order.api import SendScheduler
from tailrace.policy.send_order.fifo import fifo
from tailrace.runtime.execution.runner import IDLE_NS, Runner
from tailrace.runtime.links.frames import BUNDLES, check_size
from tailrace.runtime.links.out_links import OutLinks
from tailrace.runtime.send_order.shared_words import SharedUplink

if TYPE_CHECKING:
    from tailrace.runtime.execution.sender import Neighbours
    from tailrace.runtime.execution.task_host import TaskHost

SLICE_NS = 500 * MICROSECOND_NS
"""How long it sends before it looks up."""

BYTE_NS = 8
"""What it takes to send a byte where no limit is known: a link of a gigabit a second."""


BUSY_NS = 50 * MICROSECOND_NS
"""How long to leave the words of a shared link alone when another has them. A look takes microseconds."""


class Outgoing:
    """A task's end at the loop: its queue, and the links that the loop has of it."""

    def __init__(self, host: TaskHost, near: Neighbours, loop: SendLoop, most_tuples: int) -> None:
        self.queue = OutgoingQueue(most_tuples)
        self.links = OutLinks(near, loop.post)
        self.links.moved_to(loop.runner)
        self.host = host
        self._loop = loop
        self._waited_for = False  # the task wants to know when there is room

    # -- for the task

    def put(self, target: int, payload: bytes, tuples: int) -> None:
        """Leave this to the loop. Raises ProtocolError if it is too large for a frame."""
        check_size(payload)
        self.queue.put(Parcel(target, payload, max(1, tuples), len(payload), system_clock()))
        self._loop.wake()

    def holds_back(self) -> bool:
        """Whether the task must wait until more has left. It will be woken."""
        if not self.queue.held_back:
            return False
        self._waited_for = True
        return self.queue.held_back  # if not, the loop may have looked before it knew that we wait

    def is_empty(self) -> bool:
        """Whether all has left. The task is woken when more has."""
        self._waited_for = True
        return self.queue.empty

    # -- for the loop

    def has_sent(self) -> None:
        if self._waited_for and self.queue.has_room:
            self._waited_for = False
            self.host.look_again()


@dataclass(frozen=True)
class _Operator:
    """Tasks that are scheduled together."""

    order: SendOrder
    tasks: tuple[Outgoing, ...]


class SendLoop:
    """Sends for tasks while a scheduler is on, or the link is limited. Belongs to one runner, for good."""

    def __init__(
        self,
        runner: Runner,
        hosts: Iterable[TaskHost],
        plan: Plan,
        near: Neighbours,
        *,
        most_tuples: int,
        budget: UplinkBudget | None,
        rng: Random,
    ) -> None:
        self.runner = runner
        self._limited = budget is not None
        self._budget = budget
        self._link: SharedUplink | None = None  # instead, once it is there
        self._scheduler: SendScheduler = fifo()
        self._due_ns = 0  # when it wants to send next
        by_operator: dict[int, list[Outgoing]] = {}
        for host in hosts:
            operator = plan.operators[plan.operator_of[host.task.number]]
            remote = any(near.host_of(lane.target) is None for lane in host.task.lanes)
            if remote and (operator.tasks > 1 or budget is not None):
                outgoing = Outgoing(host, near, self, most_tuples)
                by_operator.setdefault(operator.index, []).append(outgoing)
        byte_ns = BYTE_NS if budget is None else max(1, SECOND_NS // budget.bytes_per_s)
        self._operators = deque(
            _Operator(SendOrder([one.queue for one in tasks], fifo(), rng, byte_ns), tuple(tasks))
            for tasks in by_operator.values()
        )
        self._tasks = [task for operator in self._operators for task in operator.tasks]
        self._places = {
            task.host.task.number: (operator, index)
            for operator in self._operators
            for index, task in enumerate(operator.tasks)
        }
        runner.send_loop = self

    # -- from any thread

    def post(self, action: Callable[[], None]) -> None:
        """Have this done by the loop's thread."""
        self.runner.post(action)

    def wake(self) -> None:
        self.runner.wake()

    def switch(self, scheduler: SendScheduler | None) -> None:
        """Send in this order from now on. None: tasks send by themselves, unless the link is limited."""
        if scheduler is None and self._limited:
            scheduler = fifo()
        if scheduler is not None:
            self.post(lambda: self._switch(scheduler))
        for task in self._tasks:
            route = None if scheduler is None else task
            task.host.post(lambda host=task.host, route=route: host.route(route))  # type: ignore[misc]

    def share(self, link: SharedUplink | None, budget: UplinkBudget | None) -> None:
        """Send in turn with others on this link from now on, or by ourselves within this budget."""

        def change() -> None:
            if self._link is not None:
                self._link.memory.close()
            self._link, self._budget = link, budget

        self.post(change)

    def relink(self, workers: frozenset[int]) -> None:
        """These workers have been replaced."""

        def close() -> None:
            for task in self._tasks:
                task.links.close(workers)

        self.post(close)

    # -- the loop

    def _switch(self, scheduler: SendScheduler) -> None:
        self._scheduler = scheduler
        for operator in self._operators:
            operator.order.switch(scheduler)

    @property
    def has_news(self) -> bool:
        return any(task.queue.has_arrivals for task in self._tasks)

    def wake_ns(self, now_ns: int) -> int:
        """When it wants to work next, if nothing happens before."""
        return now_ns if self.has_news else self._due_ns

    def work(self) -> None:
        """Send what may be sent, for about a slice."""
        for operator in self._operators:
            operator.order.take_in()
        self.runner.do_posted()  # a task that has put something in may just have sent us its links
        for operator in self._operators:
            _look_at_stuck(operator)
        self._due_ns = self._send(system_clock())

    def _send(self, now_ns: int) -> int:
        """Send for a slice, or as much as may be. Returns when to go on, if nothing happens before."""
        end_ns = now_ns + SLICE_NS
        while now_ns < end_ns:
            again_ns = self._send_one(now_ns) if self._link is None else self._send_in_turn(self._link, now_ns)
            if again_ns > now_ns:
                return again_ns
            now_ns = system_clock()
        return now_ns

    def _send_one(self, now_ns: int) -> int:
        """One parcel, of the operator whose turn it is. Returns when to go on: now, if one has left."""
        if self._budget is not None and self._budget.free_ns > now_ns:
            return self._budget.free_ns
        for _ in range(len(self._operators)):
            operator = self._operators[0]
            self._operators.rotate(-1)
            while (picked := operator.order.pick(now_ns)) is not None:
                if self._deliver(operator, *picked, now_ns):
                    return now_ns
        return self._next_tick_ns(now_ns)

    def _send_in_turn(self, link: SharedUplink, now_ns: int) -> int:
        """One parcel, if it is a task of ours that the scheduler picks of all on the node. Returns when to go on."""
        memory, view = link.memory, link.view
        self._tell(view)
        while any(operator.order.waits for operator in self._operators):
            if not memory.take():
                return now_ns + BUSY_NS
            try:
                number = view.look(self._scheduler, now_ns)
                if number == WAIT:
                    return view.again_ns
                operator, index = self._places[number]
                parcel = operator.order.head(index)
                if operator.tasks[index].links.link("bundles", parcel.target).ready:
                    view.spend(number, parcel.size, now_ns)
            finally:
                memory.release()
            left = self._deliver(operator, index, parcel, now_ns)
            self._tell(view)
            if left:
                return now_ns
        return now_ns + IDLE_NS

    def _tell(self, view: NodeUplink) -> None:
        for operator in self._operators:
            view.tell(operator.order.waiting, [task.host.task.number for task in operator.tasks])

    def _deliver(self, operator: _Operator, index: int, parcel: Parcel, now_ns: int) -> bool:
        task = operator.tasks[index]
        link = task.links.link("bundles", parcel.target)
        if not link.ready:
            operator.order.stuck(index, parcel.target)
            return False
        link.send(BUNDLES, parcel.payload)
        operator.order.sent(index, parcel)
        if self._budget is not None:
            self._budget.spend(parcel.size, now_ns)
        task.has_sent()
        return True

    def _next_tick_ns(self, now_ns: int) -> int:
        """When a scheduler that lets nobody send now decides anew."""
        waiting = [operator.order.scheduler.interval_ns for operator in self._operators if operator.order.waits]
        ticks = [(now_ns // interval_ns + 1) * interval_ns for interval_ns in waiting if interval_ns is not None]
        return min(ticks, default=now_ns + IDLE_NS)


def _look_at_stuck(operator: _Operator) -> None:
    for index, target in operator.order.stuck_lines():
        if operator.tasks[index].links.link("bundles", target).ready:
            operator.order.free(index, target)
