"""The send loop sends for the tasks of a worker, in the order that a send scheduler decides.

It works on the runner that tasks with short calls share, after all of them, so that their bundles change no thread.
Where calls on that runner may be long, the loop has a runner of its own. Tasks of one operator are scheduled together;
operators take turns, one parcel each. The loop never waits for a receiver: a target whose link takes nothing is set
aside, and looked at again when the link is ready. Where the workers of a machine share an uplink, the tasks of all of
them are scheduled together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from random import Random

from tailrace.clock import MICROSECOND_NS, SECOND_NS, system_clock
from tailrace.core.plan.plan import Plan
from tailrace.core.send_order.node_uplink import WAIT, NodeUplink
from tailrace.core.send_order.outgoing import OutgoingQueue, Parcel, SendOrder
from tailrace.core.send_order.uplink_budget import UplinkBudget
from tailrace.policy.send_order.api import SendScheduler
from tailrace.policy.send_order.fifo import fifo
from tailrace.runtime.execution.ports import WorkerServices
from tailrace.runtime.execution.runner import IDLE_NS, Runner
from tailrace.runtime.execution.task_host import TaskHost
from tailrace.runtime.links.frames import BUNDLES, check_size
from tailrace.runtime.links.out_links import OutLinks
from tailrace.runtime.send_order.shared_words import SharedUplink

SLICE_NS = 500 * MICROSECOND_NS
"""How long it sends before tasks get their turn."""

BYTE_NS = 8
"""The time to send a byte where no limit is known: that of a gigabit per second."""

BUSY_NS = 50 * MICROSECOND_NS
"""How long to wait when another worker holds the shared words. It holds them for microseconds."""


class ScheduledOutput:
    """The output of one task: its queue, which the task fills, and its links, which the loop owns."""

    def __init__(self, host: TaskHost, services: WorkerServices, loop: SendLoop, most_tuples: int) -> None:
        self.queue = OutgoingQueue(most_tuples)
        self.links = OutLinks(services, loop.post)
        self.links.moved_to(loop.runner)
        self.host = host
        self._loop = loop
        self._waited_for = False  # the task wants to be woken when there is room

    # -- by the task: see ``OutputQueue``

    def put(self, target: int, payload: bytes, tuples: int) -> None:
        check_size(payload)
        self.queue.put(Parcel(target, payload, max(1, tuples), len(payload), system_clock()))
        self._loop.wake()

    def holds_back(self) -> bool:
        if not self.queue.held_back:
            return False
        self._waited_for = True
        return self.queue.held_back  # asked again: the loop may have sent before it knew that the task waits

    def is_empty(self) -> bool:
        self._waited_for = True
        return self.queue.empty

    # -- by the loop

    def has_sent(self) -> None:
        if self._waited_for and self.queue.has_room:
            self._waited_for = False
            self.host.request_turn()


@dataclass(frozen=True)
class _Operator:
    """Tasks that are scheduled together."""

    order: SendOrder
    outputs: tuple[ScheduledOutput, ...]


class SendLoop:
    """Sends for tasks while a scheduler is on, or the uplink is limited. Belongs to one runner for its whole life."""

    def __init__(
        self,
        runner: Runner,
        hosts: Iterable[TaskHost],
        plan: Plan,
        services: WorkerServices,
        *,
        most_tuples: int,
        budget: UplinkBudget | None,
        rng: Random,
    ) -> None:
        self.runner = runner
        self._limited = budget is not None
        self._budget = budget
        self._uplink: SharedUplink | None = None  # in place of the budget, once the workers of the machine share it
        self._scheduler: SendScheduler = fifo()
        self._due_ns = 0  # when it wants to send next
        by_operator: dict[int, list[ScheduledOutput]] = {}
        for host in hosts:
            operator = plan.operators[plan.operator_of[host.task.number]]
            remote = any(services.mailbox_of(lane.target) is None for lane in host.task.lanes)
            if remote and (operator.tasks > 1 or budget is not None):
                output = ScheduledOutput(host, services, self, most_tuples)
                by_operator.setdefault(operator.index, []).append(output)
        byte_ns = BYTE_NS if budget is None else max(1, SECOND_NS // budget.bytes_per_s)
        self._operators = deque(
            _Operator(SendOrder([one.queue for one in outputs], fifo(), rng, byte_ns), tuple(outputs))
            for outputs in by_operator.values()
        )
        self._outputs = [output for operator in self._operators for output in operator.outputs]
        self._places = {
            output.host.number: (operator, index)
            for operator in self._operators
            for index, output in enumerate(operator.outputs)
        }
        runner.last = self

    # -- from any thread

    def post(self, action: Callable[[], None]) -> None:
        """Carry this out in the loop's thread."""
        self.runner.post(action)

    def wake(self) -> None:
        self.runner.wake()

    def switch(self, scheduler: SendScheduler | None) -> None:
        """Send in this order from now on. None: tasks send by themselves, unless the uplink is limited."""
        if scheduler is None and self._limited:
            scheduler = fifo()
        if scheduler is not None:
            self.post(lambda: self._switch(scheduler))
        for output in self._outputs:
            output.host.post(partial(output.host.send_through, None if scheduler is None else output))

    def share(self, uplink: SharedUplink | None, budget: UplinkBudget | None) -> None:
        """Send in turn with other workers on this uplink from now on, or alone within this budget."""

        def change() -> None:
            if self._uplink is not None:
                self._uplink.memory.close()
            self._uplink, self._budget = uplink, budget

        self.post(change)

    def relink(self, workers: frozenset[int]) -> None:
        """These workers have been replaced: close links with their former epochs."""

        def close() -> None:
            for output in self._outputs:
                output.links.close(workers)

        self.post(close)

    # -- the loop

    def _switch(self, scheduler: SendScheduler) -> None:
        self._scheduler = scheduler
        for operator in self._operators:
            operator.order.switch(scheduler)

    @property
    def has_work(self) -> bool:
        return any(output.queue.has_arrivals for output in self._outputs)

    def wake_ns(self, now_ns: int) -> int:
        return now_ns if self.has_work else self._due_ns

    def work(self, now_ns: int) -> None:
        """Send what may be sent, for about a slice. Its time begins now, not with the turn: tasks have worked since."""
        for operator in self._operators:
            operator.order.take_in()
        self.runner.run_posted()  # a task that has put bundles in may just have posted its links
        for operator in self._operators:
            _look_at_stuck(operator)
        self._due_ns = self._send(system_clock())

    def _send(self, now_ns: int) -> int:
        """Send for a slice, or less if no more may be sent. Returns when to go on, if nothing happens before."""
        end_ns = now_ns + SLICE_NS
        while now_ns < end_ns:
            again_ns = self._send_one(now_ns) if self._uplink is None else self._send_in_turn(self._uplink, now_ns)
            if again_ns > now_ns:
                return again_ns
            now_ns = system_clock()
        return now_ns

    def _send_one(self, now_ns: int) -> int:
        """Send one parcel, of the operator whose turn it is. Returns when to go on: at once, if one has left."""
        if self._budget is not None and self._budget.free_ns > now_ns:
            return self._budget.free_ns
        for _ in range(len(self._operators)):
            operator = self._operators[0]
            self._operators.rotate(-1)
            while (picked := operator.order.pick(now_ns)) is not None:
                if self._deliver(operator, *picked, now_ns):
                    return now_ns
        return self._next_tick_ns(now_ns)

    def _send_in_turn(self, uplink: SharedUplink, now_ns: int) -> int:
        """Send one parcel, if the scheduler picks a task of this worker for the whole node. Returns when to go on."""
        memory, view = uplink.memory, uplink.view
        self._publish(view)
        while any(operator.order.waits for operator in self._operators):
            if not memory.take():
                return now_ns + BUSY_NS
            try:
                number = view.look(self._scheduler, now_ns)
                if number == WAIT:
                    return view.again_ns
                operator, index = self._places[number]
                parcel = operator.order.head(index)
                if operator.outputs[index].links.link("bundles", parcel.target).ready:
                    view.spend(number, parcel.size, now_ns)
            finally:
                memory.release()
            left = self._deliver(operator, index, parcel, now_ns)
            self._publish(view)
            if left:
                return now_ns
        return now_ns + IDLE_NS

    def _publish(self, view: NodeUplink) -> None:
        """Let the other workers know what waits here."""
        for operator in self._operators:
            view.publish(operator.order.waiting, [output.host.number for output in operator.outputs])

    def _deliver(self, operator: _Operator, index: int, parcel: Parcel, now_ns: int) -> bool:
        output = operator.outputs[index]
        link = output.links.link("bundles", parcel.target)
        if not link.ready:
            operator.order.stuck(index, parcel.target)
            return False
        link.send(BUNDLES, parcel.payload)
        operator.order.sent(index, parcel)
        if self._budget is not None:
            self._budget.spend(parcel.size, now_ns)
        output.has_sent()
        return True

    def _next_tick_ns(self, now_ns: int) -> int:
        """When a scheduler that lets no task send now decides again."""
        waiting = [operator.order.scheduler.interval_ns for operator in self._operators if operator.order.waits]
        ticks = [(now_ns // interval_ns + 1) * interval_ns for interval_ns in waiting if interval_ns is not None]
        return min(ticks, default=now_ns + IDLE_NS)


def _look_at_stuck(operator: _Operator) -> None:
    for index, target in operator.order.stuck_receivers():
        if operator.outputs[index].links.link("bundles", target).ready:
            operator.order.free(index, target)
