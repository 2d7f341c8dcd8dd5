"""Limits of queues, lanes and links of simulated processes, so that receivers fall behind as in the runtime.

A task whose queue is full takes no more frames with bundles; these wait on their links, in order. If a link is full,
the lane of the sending task keeps its bundles. A task with a full lane is held back: it neither runs nor reads until
there is room. Other frames have links of their own and are always taken.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from tailrace.clock import MILLISECOND_NS
from tailrace.core.routing.router import FeedbackLane, Lane
from tailrace.core.tasks.base import Task
from tailrace.core.tasks.source import SourceTask
from tailrace.sim.faults.interfaces import AnyCluster, AnyProcess, Way
from tailrace.sim.faults.send_loop import SimSendLoop

MS = MILLISECOND_NS

AT_ONCE = 5
"""Most bundles that one piece of work adds to a lane: the most children of a tuple."""


@dataclass(frozen=True)
class Room:
    """Capacities."""

    queue: int  # bundles in front of a task
    lane: int  # bundles that wait to be sent to one task
    link: int  # frames on their way, or waiting to be taken


@dataclass(frozen=True)
class Frame:
    """A frame that has arrived."""

    way: Way
    take: Callable[[], None]


def room_of(seed: int) -> Room | None:
    """Drawn from a generator of its own. ``None``, as for most seeds: no limits."""
    rng = Random(f"{seed} room")
    if rng.random() >= 0.3:
        return None
    return Room(rng.choice([1, 2, 8]), rng.choice([1, 2, 8]), rng.choice([1, 2]))


class Bounds:
    """The limits of a cluster, what is on its links, and how often tasks had to wait."""

    def __init__(self, cluster: AnyCluster, room: Room, seed: int) -> None:
        self.room = room
        self.rng = Random(f"{seed} retries")
        self.under_way: Counter[Way] = Counter()
        self.held_back = 0  # how often a task was held back
        self.pauses = 0  # how often the links to a task were not read
        self.waited_until_ns = 0  # when a task was last held back
        self._cluster = cluster

    def waits(self) -> None:
        """A task is held back now, so checks of time are suspended."""
        self.waited_until_ns = self._cluster.engine.now_ns
        self._cluster.disturbed(self.waited_until_ns)


class Gates:
    """The limits at work in one process: what its tasks take in, and what they can send."""

    def __init__(self, process: AnyProcess, send_loop: SimSendLoop, bounds: Bounds) -> None:
        self._process = process
        self._send_loop = send_loop
        self._bounds = bounds
        self.room = bounds.room
        self._paused: set[int] = set()  # tasks whose links are not read
        self._waiting: dict[int, deque[Frame]] = {}  # frames on these links
        self._held_back: set[int] = set()
        self._retrying: set[int] = set()

    # -- receiving

    def arrive(self, frame: Frame, unit: int, bundles: bool) -> None:
        """A frame has come for a task. ``bundles``: whether it contains bundles."""
        if bundles and unit in self._paused:
            self._waiting.setdefault(unit, deque()).append(frame)
            return
        self._take(frame)
        if bundles:
            self._pause_if_full(unit)

    def _take(self, frame: Frame) -> None:
        self._bounds.under_way[frame.way] -= 1
        frame.take()

    def _pause_if_full(self, unit: int) -> None:
        task = self._process.tasks.get(unit)
        if task is not None and self._full(task):
            self._bounds.pauses += 1
            self._paused.update(one.number for one in _sharing(task))

    def _limit(self, task: Task) -> int:
        return self.room.queue * len(_sharing(task))

    def _full(self, task: Task) -> bool:
        return len(task.queue) >= self._limit(task)

    def make_room(self, task: Task) -> None:
        """A task has worked: read its links again if there is enough room now."""
        for one in _sharing(task):
            if one.number in self._paused and len(one.queue) <= self._limit(one) // 2:
                self._resume(one.number)

    def _resume(self, unit: int) -> None:
        self._paused.discard(unit)
        waiting = self._waiting.get(unit)
        while waiting and unit not in self._paused:
            self._take(waiting.popleft())
            self._pause_if_full(unit)

    # -- sending

    def ready(self, sender: int, target: int, receiver: int) -> bool:
        """Whether a frame can be sent: the receiver is there, and the link has room."""
        way = self._process.way(sender, target, receiver)
        return way is not None and self._bounds.under_way[way] < self.room.link

    def flush(self, task: Task, lane: Lane) -> None:
        """Send as much as the receiver takes."""
        process, loop, target = self._process, self._send_loop, lane.target
        if process.queue_for(lane) is not None:
            return  # which is full
        if loop.takes(task, target):
            while lane.bundles and loop.has_room(task):
                loop.put(task, target, [lane.bundles.pop(0)])
            return
        if isinstance(lane, FeedbackLane) and process.core.membership.member(process.plan.home[target]) is None:
            lane.drop_feedback()
        near = process.tasks.get(process.plan.unit_of[target])
        while lane.bundles and not (near is not None and self._full(near)) and self.ready(task.number, target, target):
            bundles, lane.bundles = lane.bundles[: self.room.lane], lane.bundles[self.room.lane :]
            process.send(task.number, target, target, bundles)

    def holds_back(self, task: Task) -> bool:
        """Whether a task must wait until its bundles are taken."""
        return any(len(lane.bundles) >= self.room.lane for lane in task.lanes) or (self._send_loop.holds_back(task))

    def look_after(self, task: Task) -> None:
        """Note whether a task is held back, and try again later to send what is left."""
        number, bounds, process = task.number, self._bounds, self._process
        if not self.holds_back(task):
            self._held_back.discard(number)
        else:
            bounds.held_back += number not in self._held_back
            self._held_back.add(number)
            bounds.waits()
        left = number in self._held_back or any(lane.bundles for lane in task.lanes) or any(task.acks.values())
        if left and number not in self._retrying:
            self._retrying.add(number)
            retry = process.guarded(partial(self._retry, task))
            process.cluster.engine.after(bounds.rng.randrange(1, 4) * MS, retry)

    def validate(self, task: Task) -> None:
        """A lane holds what makes it full and what comes of one piece of work. A feedback sender may release all that
        it holds, and a source as many hedges as are due."""
        most = self.room.lane + AT_ONCE
        for lane in task.lanes if not isinstance(task, SourceTask) else ():
            if len(lane.bundles) >= most and not isinstance(lane, FeedbackLane):
                raise AssertionError(f"lane is not bounded: {len(lane.bundles)} bundles wait at {task.label}")

    def _retry(self, task: Task) -> None:
        self._retrying.discard(task.number)
        self._process.wake(task)


def _sharing(task: Task) -> tuple[Task, ...]:
    """All tasks that draw from the same queue."""
    return (task,) if task.tap is None else tuple(task.tap.sharing)
