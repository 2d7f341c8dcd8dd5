"""A task that begins to share a queue, or ceases to, loses nothing: not what waits, nor what is just being put in."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from kit.tasks import context_of, plan_of, task_of
from tailrace.core.bundles import new_bundle
from tailrace.core.queues.shared import SharedQueue, Tap
from tailrace.core.tasks.base import Task
from tailrace.sim.faults.topologies import mark

TASKS = 3


def bundle(number: int, tuples: int = 1) -> tuple[Any, ...]:
    return new_bundle(number, 0, number, 1 << number % 64, [number] * tuples, [("s", 0, number)] * tuples)


class Crew:
    """The tasks of one operator, each with a queue of its own."""

    def __init__(self) -> None:
        plan = plan_of(lambda source: source.map("work", mark("w"), tasks=TASKS))
        context = context_of(plan, guard=threading.Lock)
        self.tasks: list[Task] = [task_of(context, number) for number in range(1, 1 + TASKS)]
        self.queue: SharedQueue = context.queues[1]

    @property
    def shared(self) -> list[tuple[int, int]]:
        """In the shared queue: which task each bundle was meant for, and its number."""
        return [(self.tasks.index(task), bundle[0]) for task, _, bundle in self.queue.entries]

    def own(self, task: int) -> list[int]:
        queue = self.tasks[task].queue
        assert isinstance(queue, deque)
        return [bundle[0] for bundle in queue]


@pytest.fixture
def crew() -> Crew:
    return Crew()


def test_a_task_brings_what_it_has_and_takes_back_what_was_meant_for_it(crew: Crew) -> None:
    a, b, c = crew.tasks
    for task, number in ((a, 1), (b, 2), (a, 3), (c, 4)):
        task.receive([bundle(number)])
    a.draw_from(crew.queue)
    b.draw_from(crew.queue)
    assert crew.shared == [(0, 1), (0, 3), (1, 2)] and crew.own(2) == [4]
    a.receive([bundle(5)])
    c.receive([bundle(6)])
    assert crew.shared[-1] == (0, 5) and crew.own(2) == [4, 6]
    a.draw_from(None)
    assert crew.own(0) == [1, 3, 5] and crew.shared == [(1, 2)]
    assert crew.queue.tasks == [b]


def test_what_another_has_drawn_a_part_of_goes_back_without_that(crew: Crew) -> None:
    a, b, _ = crew.tasks
    for task in (a, b):
        task.draw_from(crew.queue)
    a.receive([bundle(1, tuples=3)])
    b.run(0)  # a portion is one tuple, while nobody knows how long they take
    a.draw_from(None)
    (rest,) = a.queue  # type: ignore[misc]
    assert len(rest[5]) == 2
    assert rest[3] ^ b.acks[0].both[1] ^ b.lanes[0].bundles[0][3] == 1 << 1, "ids of all parts are what is waited for"


class Interrupted(deque[Any]):
    """A queue whose task is switched while somebody is about to put something in."""

    meanwhile: Callable[[], None]

    def extend(self, bundles: Iterable[Any]) -> None:
        self.meanwhile()
        super().extend(bundles)


def test_what_is_put_into_a_queue_that_is_being_left_is_brought_along(crew: Crew) -> None:
    a = crew.tasks[0]
    queue = a.queue = Interrupted()
    queue.meanwhile = lambda: a.draw_from(crew.queue)
    a.receive([bundle(1), bundle(2)])
    assert crew.shared == [(0, 1), (0, 2)] and not queue


def test_what_is_put_for_a_task_that_has_just_left_follows_it(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, _ = crew.tasks
    for task in (a, b):
        task.draw_from(crew.queue)
    put = Tap.extend

    def left_meanwhile(self: Tap, bundles: Iterable[Any]) -> None:
        monkeypatch.setattr(Tap, "extend", put)
        a.draw_from(None)
        put(self, bundles)

    monkeypatch.setattr(Tap, "extend", left_meanwhile)
    a.receive([bundle(7)])
    assert crew.own(0) == [7] and crew.shared == []


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads take turns so often that they meet each other anywhere."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_threads_put_while_a_task_comes_and_goes(crew: Crew, hasty: None) -> None:
    """Its own thread draws, another task's too; two put. Whatever the moment, each bundle is run once."""
    a, b, _ = crew.tasks
    b.draw_from(crew.queue)
    each, over = 1_500, threading.Event()

    def put(first: int) -> None:
        for number in range(first, first + each):
            a.receive([bundle(number)])

    def run(task: Task, switches: bool) -> None:
        turn = 0
        while True:
            last = over.is_set()
            turn += 1
            if switches and turn % 3 == 0:
                task.draw_from(crew.queue if task.tap is None else None)
            if task.queue:
                task.run(0)
            elif last:
                return
            else:
                time.sleep(0)

    putting = [threading.Thread(target=put, args=(first,)) for first in (0, each)]
    running = [threading.Thread(target=run, args=args) for args in ((a, True), (b, False))]
    for thread in (*running, *putting):
        thread.start()
    for thread in putting:
        thread.join(60)
    over.set()
    for thread in running:
        thread.join(60)
    for task in (a, b):  # one may have looked before the other brought something
        while task.queue:
            task.run(0)
    found = [value[2] for task in (a, b) for lane in task.lanes for sent in lane.bundles for value in sent[5]]
    assert sorted(found) == list(range(2 * each))
