"""A pool: the hosts of one operator's tasks in one worker, which may draw from one queue.

A task in a long call does not read its links, and a tuple that waits there could not be run by another task. Therefore
no task of the pool reads links that bring bundles. While the tasks share the worker's runner, that runner reads them.
When their calls prove long, all of them leave it together, and a runner without tasks reads the links: the *intake*.
It hands bundles to tasks that sleep, which costs a wake-up between threads, little compared to a long call.

Every put wakes as many sleeping tasks as there are portions in it, and a task looks into the queue before it sleeps.
Therefore no task sleeps while tuples wait, except one whose output is held back, and that one passes its wake-up on.

If there is a queue of the whole node behind the pool's own, tuples go there, for the first task of the node that is
free. Only if nothing waits there, and a task of the pool could begin at once, does that task get them by reference.

Tasks join and leave the queue while they run, each between two calls, and take their links along. A node's queue that
is switched off stays: other workers may not know yet, and go on putting tuples into it. The thread that reads the
links empties it, and hands its tuples to the tasks in turn.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tailrace.clock import system_clock
from tailrace.core.bundles import tuples_in
from tailrace.core.queues.rounds import Rounds, bundle_limit
from tailrace.core.queues.shared import SharedQueue, portions
from tailrace.core.tasks.base import Task
from tailrace.runtime.execution.ports import Mailbox, WorkerServices
from tailrace.runtime.execution.runner import Runner
from tailrace.runtime.execution.task_host import TaskHost
from tailrace.runtime.links.channels import Channel
from tailrace.runtime.links.event_loop import EventLoop
from tailrace.runtime.links.frames import encode
from tailrace.runtime.links.in_links import BundleLinks
from tailrace.runtime.links.link import InLink
from tailrace.runtime.shared_queues.node_queue import BellListener, NodeQueue


class Pool:
    """Everything about links belongs to the thread that reads them; the rest may be called from any thread."""

    def __init__(
        self,
        queue: SharedQueue[Task],
        hosts: Sequence[TaskHost],
        services: WorkerServices,
        runner: Runner,
        new_runner: Callable[[str], Runner],
    ) -> None:
        self.hosts = tuple(hosts)
        self.queue = queue
        self.worker = services.worker
        self.node: NodeQueue | None = None  # supplies the queue
        self.rounds = Rounds(queue.__len__, lambda: len(self.hosts) * bundle_limit(self.bundle_bytes))
        self.runner = runner  # reads the links
        self._new_runner = new_runner  # makes one that is yet to be started
        self._has_intake = False  # the runner runs none of the tasks
        self._leftover: NodeQueue | None = None  # a switched-off queue to be emptied
        self._listener: BellListener | None = None  # to the bell of that queue
        self._turn = 0  # which task gets the next record of it
        self._waking = threading.Lock()  # or two threads would count on the same sleeping task
        self.members = tuple(PoolMember(self, host, services) for host in hosts)
        for member in self.members:
            member.links.moved_to(runner)
            if member.host.task.tap is not None:
                member.host.shared_input = member

    # -- membership

    @property
    def drawing(self) -> list[TaskHost]:
        """The hosts that draw from the queue now."""
        return [member.host for member in self.members if member.host.shared_input is member]

    def joined(self, member: PoolMember, links: list[InLink]) -> None:
        """A member has joined, in its task's thread, and brings its links.

        If one member has a runner of its own, all shall have one.
        """
        drawing = self.drawing
        if not all(one.shared for one in drawing):
            self.post(self.start_intake)
            for one in drawing:
                one.post(one.request_own_runner)
        self.post(partial(member.adopt_links, links))
        for one in drawing:
            one.wake()

    # -- from any thread

    def post(self, action: Callable[[], None]) -> None:
        """Carry this out in the thread that reads the links."""
        runner = self.runner
        runner.post(lambda: action() if self.runner is runner else self.post(action))

    def wake(self, chosen: Mailbox, tuples: int) -> None:
        """Tuples have come for this task: wake it, or others that sleep, first those that have begun a batch."""
        tap = chosen.task.tap
        if tap is None:  # it has left the queue, and taken its tuples along
            chosen.wake()
            return
        portions = -(-tuples // tap.portion)
        with self._waking:
            if chosen.task.feedback_receiver is not None:  # it has feedback to process, whichever task runs the tuples
                portions -= chosen.idle
                chosen.wake()
            for host in sorted(self.drawing, key=lambda host: (not host.task.deadline_ns, host is not chosen)):
                if portions <= 0:
                    return
                if host.idle:
                    host.wake()
                    portions -= 1

    def hand_over(self, bundles: list[Any], loop: EventLoop | None) -> list[Any]:
        """Give a portion to each task that could begin at once, unless older tuples wait. Returns the rest.

        Without a sleeping task, a task on the caller's own event loop counts: its turn is next. Only one, as all tasks
        there share a thread.
        """
        node = self.node
        with self._waking:
            if node is None or len(self.queue) or node:
                return bundles
            drawing = self.drawing
            ready = [host for host in drawing if host.idle]
            if not ready:
                ready = [host for host in drawing[:1] if host.runner is loop]
            if not ready:
                return bundles
            parts = portions(bundles, self.portion, node.new_id)
            for host, part in zip(ready, parts, strict=False):
                host.task.receive(part)
                host.wake()
            return [bundle for part in parts[len(ready) :] for bundle in part]

    @property
    def portion(self) -> int:
        """Tuples that a task here runs at once."""
        taps = [host.task.tap for host in self.hosts]
        return next((tap.portion for tap in taps if tap is not None), 1)

    def draw_from(self, node: NodeQueue | None) -> None:
        """Have the tasks draw from this queue of the node too; None: from none."""
        self.queue.supply = self.node = node
        for member in self.members:
            member.host.post(member.listen)

    def empty(self, node: NodeQueue | None) -> None:
        """Hand everything that is in this queue, or will be, to the tasks; None: there is no such queue."""
        self._leftover = node
        self.post(self._listen_for_leftover)

    def decode(self, payload: memoryview) -> Sequence[Any]:
        return self.hosts[0].input.decode(payload)

    @property
    def bundle_bytes(self) -> int:
        """The average size of bundles for the task that gets the largest."""
        return max(host.bundle_bytes for host in self.hosts)

    def make_room(self) -> None:
        """A task has taken bundles: let senders in that wait for room."""
        rounds = self.rounds
        if not (rounds.behind or any(host.waiting for host in self.hosts)) or not rounds.due:
            return
        with self._waking:
            begun = rounds.begin(system_clock())
        for host in self.hosts:
            host.input.wake_waiting()
        if begun:
            self.post(self._admit)

    # -- links

    def start_intake(self) -> None:
        """Have the links read by a runner that runs none of the tasks."""
        if self._has_intake:
            return
        self._has_intake = True
        operator = self.hosts[0].label.rsplit("/", 1)[0]
        intake = self._new_runner(f"{operator} intake")
        for member in self.members:
            member.links.moved_to(None)
            member.links.moved_to(intake)
        self.runner = intake
        self._listen_for_leftover()
        intake.start()

    def _admit(self) -> None:
        for member in self.members:
            member.links.admit()

    def relink(self, workers: frozenset[int]) -> None:
        """These workers have been replaced: close the links from their former epochs."""
        for member in self.members:
            member.links.relink(workers)

    # -- what is left in a node's queue

    def _listen_for_leftover(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        node = self._leftover
        bell = None if node is None else node.bell()
        if node is not None and bell is not None:
            self._listener = BellListener(node, self.runner, bell, self._take_leftover)
            self._take_leftover()

    def _take_leftover(self) -> None:
        while (node := self._leftover) is not None:
            _, bundles = node.take(self.portion)
            if bundles:
                host = self.hosts[self._turn % len(self.hosts)]
                self._turn += 1
                host.task.receive(bundles)
                self.wake(host, tuples_in(bundles))
            elif not node:
                return


class PoolMember:
    """One task's place in a pool, and its ``SharedInput`` while it draws from the shared queue."""

    def __init__(self, pool: Pool, host: TaskHost, services: WorkerServices) -> None:
        self.host = host
        self.rounds = pool.rounds
        self.make_room: Callable[[], None] = pool.make_room
        self.wake: Callable[[int], object] = partial(pool.wake, host)
        self.links = BundleLinks(services, pool.rounds, self.read, self.receive)
        self._pool = pool
        self._listener: BellListener | None = None

    @property
    def _draws(self) -> bool:
        return self.host.shared_input is self

    # -- by the thread that runs the task

    def join(self) -> None:
        """Draw from the shared queue. Between two calls.

        A sender that has put bundles into a queue reads ``shared_input`` afterwards, to know which tasks to wake. So
        that is set before the task draws from the shared queue, and until after it has left it.
        """
        if not self._draws:
            self.host.shared_input = self
            self.host.task.draw_from(self._pool.queue)
            self._pool.joined(self, self.host.input.bundle_links.give())
            self.listen()

    def leave(self) -> None:
        """Draw from a queue of its own again. Between two calls."""
        if self._draws:
            self.host.task.draw_from(None)
            self.host.shared_input = None
            self._pool.post(self._give_back)
            self.listen()

    def listen(self) -> None:
        """Listen to the bell of the node's queue, if there is one. On a shared runner one host does for all."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        host, pool, node = self.host, self._pool, self._pool.node
        if not self._draws or node is None or host.runner is None:
            return
        if host.shared and pool.members[0] is not self:
            return
        bell = node.bell()
        if bell is not None:
            self._listener = BellListener(node, host.runner, bell)
            self.set_able(not host.held_back)

    def set_able(self, able: bool) -> None:
        if self._listener is not None:
            self._listener.listen(able)

    def wake_another(self) -> None:
        self._pool.wake(self.host, 1)
        node = self._pool.node
        if node is not None:
            node.pass_on()

    def leave_shared_runner(self) -> None:
        self._pool.start_intake()

    def request_own_runners(self) -> None:
        for host in self._pool.hosts:
            if host is not self.host:
                host.wants_own_runner = host.shared

    @property
    def queued_on_node(self) -> int:
        node = self._pool.node
        return node.queued if node is not None and node.group.maker == self._pool.worker else 0

    # -- links, by the thread that reads them unless said otherwise

    def take_link(self, channel: Channel, worker: int, epoch: int) -> None:
        """Read this link. From any thread."""
        self._pool.post(partial(self._take_link, channel, worker, epoch))

    def _take_link(self, channel: Channel, worker: int, epoch: int) -> None:
        if self._draws:
            self.links.take(channel, worker, epoch)
        else:
            self.host.post(partial(self.host.take_link, channel, "bundles", worker, epoch))

    def adopt_links(self, links: list[InLink]) -> None:
        """Read these links, unless the task has left in the meantime."""
        if self._draws:
            self.links.adopt(links)
        else:
            self.host.post(partial(self._take_back, links))

    def _give_back(self) -> None:
        if not self._draws:  # it may have joined again
            self.host.post(partial(self._take_back, self.links.give()))

    def _take_back(self, links: list[InLink]) -> None:
        """By the thread that runs the task: read these links there, unless it has joined again."""
        if self._draws:
            self._pool.post(partial(self.adopt_links, links))
        else:
            self.host.input.bundle_links.adopt(links)

    def read(self, kind: int, payload: memoryview) -> list[Any]:
        """Decode a frame, and put its bundles into the node's queue. Returns those that it has no room for."""
        bundles = self.host.input.read_bundles(kind, payload)
        pool, node = self._pool, self._pool.node
        if node is None:
            return bundles
        parts = portions(pool.hand_over(bundles, pool.runner), node.portion, node.new_id)
        for position, part in enumerate(parts):
            record = encode(part)
            if len(record) > node.largest or not node.put(record):
                return [bundle for rest in parts[position:] for bundle in rest]
        return []

    def receive(self, bundles: list[Any]) -> None:
        self.host.task.receive(bundles)
        self.wake(tuples_in(bundles))
