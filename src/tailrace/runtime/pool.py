"""A pool: the hosts of one operator's tasks in one worker, which draw from one queue.

A task in a long call does not read its links, and a tuple that waits there cannot be taken by another. So none of the
pool's tasks reads those that bring bundles. While the tasks share the worker's runner that one does; when their calls
prove long they leave it, all together, and a runner without tasks does: the *intake*. It hands what comes to tasks
that sleep, which costs a wake-up between threads, little beside a call that is long.

Whoever puts tuples in wakes as many sleepers as there are portions in them. Whoever sleeps has looked before: so
nobody sleeps while tuples wait, except who cannot send what it has made, and that one passes the wake-up on.

If there is a queue of the whole node behind the pool's own, tuples go there, for whoever of the node is free first;
unless nobody waits and a task of the pool could begin at once, which gets them by reference.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tailrace.core.opentask import BatchTask
from tailrace.core.router import NOTE
from tailrace.core.sharedqueue import SharedQueue, portions
from tailrace.core.task import Task
from tailrace.runtime.channels import Channel
from tailrace.runtime.inlinks import InLinks, Membership
from tailrace.runtime.nodequeue import NodeQueue
from tailrace.runtime.runner import Runner
from tailrace.runtime.wire import encode

if TYPE_CHECKING:
    from tailrace.runtime.taskhost import TaskHost


class Pool:
    """What is about links belongs to the runner that reads them; the rest may be called from any thread."""

    def __init__(self, queue: SharedQueue, hosts: Sequence[TaskHost], near: Membership, runner: Runner) -> None:
        self.hosts = tuple(hosts)
        self.node: NodeQueue | None = None  # what the queue is supplied from
        self._queue = queue
        self._host_of = {host.task: host for host in hosts}
        self._in = InLinks(near)
        self._runner = runner
        self._waking = threading.Lock()  # or two that come at once would count on one sleeper
        self._in.moved_to(runner)
        for host in hosts:
            host.pool = self

    # -- from any thread

    def post(self, action: Callable[[], None]) -> None:
        """Have this done by the thread that reads the links."""
        runner = self._runner
        runner.post(lambda: action() if self._runner is runner else self.post(action))

    def wake(self, chosen: TaskHost, tuples: int) -> None:
        """So many tuples have come for this task, or for whoever sleeps. What waits for a full batch comes first."""
        tap = chosen.task.tap
        assert tap is not None
        portions = -(-tuples // tap.portion)
        with self._waking:
            if chosen.task.receiving is not None:  # its halves want to hear of it, and of notes, whoever runs what came
                portions -= chosen.idle
                chosen.wake()
            for host in sorted(self.hosts, key=lambda host: (not _collects(host.task), host is not chosen)):
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
            if node is None or len(self._queue) or not node.empty:
                return bundles
            ready = [host for host in self.hosts if host.idle]
            if not ready and self.hosts[0].runner is runner:
                ready = [self.hosts[0]]
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
        tap = self.hosts[0].task.tap
        assert tap is not None
        return tap.portion

    def draw_from(self, node: NodeQueue | None) -> None:
        """Have the tasks draw from this queue too, or no more from any."""
        self._queue.supply = self.node = node
        for host in self.hosts:
            host.post(host.listen)

    def decode(self, payload: memoryview) -> Sequence[Any]:
        return self.hosts[0].decode(payload)

    def tell(self, told: set[Task]) -> None:
        """Halves of these tasks have something to hear."""
        while told:
            self._host_of[told.pop()].wake()

    @property
    def bundle_bytes(self) -> int:
        """Of late, on average, on the way to the task that gets the largest."""
        return max(host.bundle_bytes for host in self.hosts)

    @property
    def holds_back(self) -> bool:
        """Whether somebody waits for room in the queue."""
        return self._in.paused or any(host.waiting for host in self.hosts)

    def make_room(self) -> None:
        """There is room in the queue."""
        for host in self.hosts:
            host.wake_waiting()
        if self._in.paused:
            self.post(self._resume)

    # -- links

    def moved_to(self, runner: Runner) -> None:
        """Have the links read by this runner from now on, which has not begun yet."""
        self._in.moved_to(None)
        self._in.moved_to(runner)
        self._runner = runner

    def take_link(self, host: TaskHost, channel: Channel, worker: int, epoch: int) -> None:
        """A peer that sends to this task has connected."""
        self._in.take(channel, worker, epoch, partial(self._on_frame, host), urgent=False)

    def _on_frame(self, host: TaskHost, kind: int, payload: memoryview) -> None:
        bundles = host.read_bundles(kind, payload)
        if self.node is not None:
            bundles = self._pass_on(self.node, self.hand(bundles, self._runner))
        if bundles:
            host.task.receive(bundles)
            self.wake(host, tuples_in(bundles))
        if host.full and not self._in.paused:
            self._in.pause(True)
            self._resume()  # if there has been room since: who made it may have looked before we paused

    def _pass_on(self, node: NodeQueue, bundles: list[Any]) -> list[Any]:
        """Into the node's queue, as far as it has room. Returns what is left."""
        parts = portions(bundles, node.portion, node.new_id)
        for position, part in enumerate(parts):
            payload = encode(part)
            if len(payload) > node.largest or not node.put(payload):
                return [bundle for rest in parts[position:] for bundle in rest]
        return []

    def _resume(self) -> None:
        if self._in.paused and self.hosts[0].has_room:
            self._in.pause(False)

    def relink(self, workers: frozenset[int]) -> None:
        self._in.relink(workers)


def tuples_in(bundles: Sequence[Any]) -> int:
    """Notes in between do not count."""
    return sum(len(bundle[5]) for bundle in bundles if len(bundle) != NOTE)


def _collects(task: Task) -> bool:
    """Whether it has begun a batch."""
    return isinstance(task, BatchTask) and task.deadline_ns > 0
