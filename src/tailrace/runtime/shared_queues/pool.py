"""A pool: the hosts of one operator's tasks in one worker, which may draw from one queue.

A task in a long call does not read its links, and a tuple that waits there cannot be taken by another. So none of the
pool's tasks reads those that bring bundles. While the tasks share the worker's runner that one does; when their calls
prove long they leave it, all together, and a runner without tasks does: the *intake*. It hands what comes to tasks
that sleep, which costs a wake-up between threads, little beside a call that is long.

Whoever puts tuples in wakes as many sleepers as there are portions in them. Whoever sleeps has looked before: so
nobody sleeps while tuples wait, except who cannot send what it has made, and that one passes the wake-up on.

If there is a queue of the whole node behind the pool's own, tuples go there, for whoever of the node is free first;
unless nobody waits and a task of the pool could begin at once, which gets them by reference.

Whether they draw from one queue may change while they run. Each host joins and leaves by itself, between two calls, and
takes its links along. A node's queue that is no longer wanted stays: other workers may not have heard of it yet, and
go on putting tuples in. Whoever reads the links empties it, and hands them to the tasks in turn.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tailrace.clock import system_clock
from tailrace.core.queues.rounds import Rounds, bundle_limit
from tailrace.core.queues.shared import SharedQueue, portions
from tailrace.core.routing.router import NOTE
from tailrace.core.tasks.base import Task
from tailrace.core.tasks.deferred import BatchTask
from tailrace.runtime.execution.runner import Runner
from tailrace.runtime.links.channels import Channel
from tailrace.runtime.links.frames import encode
from tailrace.runtime.links.in_links import BundleLinks, Membership
from tailrace.runtime.links.link import InLink
from tailrace.runtime.shared_queues.node_queue import Ear, NodeQueue

if TYPE_CHECKING:
    from tailrace.runtime.execution.task_host import TaskHost


class Pool:
    """What is about links belongs to the runner that reads them; the rest may be called from any thread."""

    def __init__(
        self,
        queue: SharedQueue[Task],
        hosts: Sequence[TaskHost],
        near: Membership,
        runner: Runner,
        new_runner: Callable[[str], Runner],
    ) -> None:
        self.hosts = tuple(hosts)
        self.queue = queue
        self.node: NodeQueue | None = None  # what the queue is supplied from
        self.rounds = Rounds(queue.__len__, lambda: len(self.hosts) * bundle_limit(self.bundle_bytes))
        self._leftover: NodeQueue | None = None  # what is to be emptied
        self._ear: Ear | None = None
        self._turn = 0  # whose it is to get what was left over
        self._in = {
            host: BundleLinks(near, self.rounds, partial(self._read, host), partial(self._receive, host))
            for host in hosts
        }
        self._runner = runner
        self._new_runner = new_runner  # makes one that is to be started
        self._apart = False  # that runner runs none of the tasks
        self._waking = threading.Lock()  # or two that come at once would count on one sleeper
        for host, links in self._in.items():
            links.moved_to(runner)
            if host.task.tap is not None:
                host.pool = self

    # -- who draws

    @property
    def drawing(self) -> list[TaskHost]:
        return [host for host in self.hosts if host.pool is self]

    def joined(self, host: TaskHost, links: list[InLink]) -> None:
        """A host has, in its thread, and brings its links. If one has a runner of its own all shall have one."""
        drawing = self.drawing
        if not all(one.shared for one in drawing):
            self.post(self.read_apart)
            for one in drawing:
                one.post(one.move_out)
        self.post(partial(self.keep, host, links))
        for one in drawing:
            one.wake()

    def left(self, host: TaskHost) -> None:
        """A host has, in its thread."""
        self.post(partial(self._give_back, host))

    # -- from any thread

    def post(self, action: Callable[[], None]) -> None:
        """Have this done by the thread that reads the links."""
        runner = self._runner
        runner.post(lambda: action() if self._runner is runner else self.post(action))

    def wake(self, chosen: TaskHost, tuples: int) -> None:
        """So many tuples have come for this task, or for whoever sleeps. What waits for a full batch comes first."""
        tap = chosen.task.tap
        if tap is None:  # it has left, and taken along what was meant for it
            chosen.wake()
            return
        portions = -(-tuples // tap.portion)
        with self._waking:
            if chosen.task.receiving is not None:  # its halves want to hear of it, and of notes, whoever runs what came
                portions -= chosen.idle
                chosen.wake()
            for host in sorted(self.drawing, key=lambda host: (not _collects(host.task), host is not chosen)):
                if portions <= 0:
                    return
                if host.idle:
                    host.wake()
                    portions -= 1

    def hand(self, bundles: list[Any], runner: Runner | None) -> list[Any]:
        """Give a portion to each task that could begin at once, if nobody waits before. Returns what is left.

        Tasks on the runner of whoever hands them over are next, and are one thread.
        """
        node = self.node
        with self._waking:
            if node is None or len(self.queue) or node:
                return bundles
            drawing = self.drawing
            ready = [host for host in drawing if host.idle]
            if not ready:
                ready = [host for host in drawing[:1] if host.runner is runner]
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
        """Have the tasks draw from this queue too, or no more from any."""
        self.queue.supply = self.node = node
        for host in self.hosts:
            host.post(host.listen)

    def empty(self, node: NodeQueue | None) -> None:
        """Have all that is in this queue, or will be, handed to the tasks. None: there is none."""
        self._leftover = node
        self.post(self._listen)

    def decode(self, payload: memoryview) -> Sequence[Any]:
        return self.hosts[0].decode(payload)

    @property
    def bundle_bytes(self) -> int:
        """Of late, on average, on the way to the task that gets the largest."""
        return max(host.bundle_bytes for host in self.hosts)

    def make_room(self) -> None:
        """Something has been taken from the queue: those that wait for room may have it."""
        rounds = self.rounds
        if not (rounds.behind or any(host.waiting for host in self.hosts)) or not rounds.due:
            return
        with self._waking:
            begun = rounds.begin(system_clock())
        for host in self.hosts:
            host.wake_waiting()
        if begun:
            self.post(self._admit)

    # -- links

    def read_apart(self) -> None:
        """Have the links read by a runner that runs none of the tasks."""
        if self._apart:
            return
        self._apart = True
        operator = self.hosts[0].task.label.rsplit("/", 1)[0]
        intake = self._new_runner(f"{operator} intake")
        for links in self._in.values():
            links.moved_to(None)
            links.moved_to(intake)
        self._runner = intake
        self._listen()
        intake.start()

    def take_link(self, host: TaskHost, channel: Channel, worker: int, epoch: int) -> None:
        """A peer that sends to this task has connected."""
        if host.pool is self:
            self._in[host].take(channel, worker, epoch)
        else:
            host.post(partial(host.take_link, channel, "bundles", worker, epoch))

    def keep(self, host: TaskHost, links: list[InLink]) -> None:
        """Read these, which bring bundles for this host."""
        if host.pool is self:
            self._in[host].keep(links)
        else:
            host.post(partial(host.keep, links))

    def _give_back(self, host: TaskHost) -> None:
        if host.pool is not self:  # it may have come back
            host.post(partial(host.keep, self._in[host].give()))

    def _read(self, host: TaskHost, kind: int, payload: memoryview) -> list[Any]:
        """A frame has come. Returns what the node's queue does not take of it."""
        bundles = host.read_bundles(kind, payload)
        node = self.node
        return bundles if node is None else self._pass_on(node, self.hand(bundles, self._runner))

    def _receive(self, host: TaskHost, bundles: list[Any]) -> None:
        host.task.receive(bundles)
        self.wake(host, tuples_in(bundles))

    def _admit(self) -> None:
        for links in self._in.values():
            links.admit()

    def _pass_on(self, node: NodeQueue, bundles: list[Any]) -> list[Any]:
        """Into the node's queue, as far as it has room. Returns what is left."""
        parts = portions(bundles, node.portion, node.new_id)
        for position, part in enumerate(parts):
            payload = encode(part)
            if len(payload) > node.largest or not node.put(payload):
                return [bundle for rest in parts[position:] for bundle in rest]
        return []

    def relink(self, workers: frozenset[int]) -> None:
        for links in self._in.values():
            links.relink(workers)

    # -- what is left over in a node's queue

    def _listen(self) -> None:
        if self._ear is not None:
            self._ear.close()
            self._ear = None
        node = self._leftover
        bell = None if node is None else node.bell()
        if node is not None and bell is not None:
            self._ear = Ear(node, self._runner, bell, self._take_leftover)
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


def tuples_in(bundles: Sequence[Any]) -> int:
    """Notes in between do not count."""
    return sum(len(bundle[5]) for bundle in bundles if len(bundle) != NOTE)


def _collects(task: Task) -> bool:
    """Whether it has begun a batch."""
    return isinstance(task, BatchTask) and task.deadline_ns > 0
