"""Whoever draws which part of which bundle, from a queue that tasks join and leave: each tuple is run once, and what
the ledger hears makes up its ids."""

from __future__ import annotations

import threading
from collections import Counter, deque
from functools import reduce
from operator import xor
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kit.tasks import context_of, task_of
from tailrace.core.bundles import divided, new_bundle
from tailrace.core.plan.planner import make_plan
from tailrace.core.queues.shared import PORTION_NS, SharedQueue, portions
from tailrace.core.tasks.base import Task
from tailrace.core.tasks.deferred import AsyncTask
from tailrace.policy import Grouping, least_work, shuffle
from tailrace.policy.techniques import Tail
from tailrace.sim.faults.topologies import SimSink, SimSource
from tailrace.testing import ManualClock
from tailrace.topology import Stream, Topology

TASKS = 3


def itself(value: Any) -> Any:
    return value


async def later(value: Any) -> Any:
    return value


def plain(stream: Stream, grouping: Grouping) -> Stream:
    return stream.flat_map("work", lambda value: [value, value], tasks=TASKS, grouping=grouping)


def batched(stream: Stream, grouping: Grouping) -> Stream:
    return stream.map_batch("work", itself, max_size=2, max_wait_ms=0, tasks=TASKS, grouping=grouping)


def awaited(stream: Stream, grouping: Grouping) -> Stream:
    return stream.map("work", later, tasks=TASKS, grouping=grouping)


KINDS = (plain, batched, awaited)
COPIES = {plain: 2, batched: 1, awaited: 1}


class Drawing:
    """The tasks of one operator in one worker, and a source and a committing sink elsewhere."""

    def __init__(self, kind: Any, grouping: Grouping) -> None:
        topology = Topology("t")
        kind(topology.source("s", SimSource("s", 5), tasks=1), grouping).sink("out", SimSink(), tasks=1)
        plan = make_plan(topology, 1)
        tail = Tail(shared_queues="worker")
        context = context_of(plan, tail=tail)
        self.tasks: list[Task] = [task_of(context, number) for number in range(1, 1 + TASKS)]
        self.queue = context.queues[1]
        self.put: list[tuple[Any, ...]] = []
        self._tracked = grouping.name == "least_work"

    def arrive(self, task: int, emission: int, tuples: int) -> None:
        first = sum(len(bundle[5]) for bundle in self.put)
        numbers = list(range(first, first + tuples))
        origin = (0, 0, 0) if self._tracked else None
        bundle = new_bundle(emission, 0, emission, 1 << (len(self.put) + 70), numbers, numbers, origin)
        self.put.append(bundle)
        self.tasks[task].receive([bundle])

    def draw(self, task: int, portion: int) -> None:
        drawing = self.tasks[task]
        if drawing.tap is not None:
            drawing.tap.portion = portion
        if isinstance(drawing, AsyncTask):
            call = drawing.next_call()
            if call is not None:
                drawing.finished(call, call.value)
        else:
            drawing.run(0)
        for one in self.tasks:
            if one.feedback_receiver is not None:
                one.feedback_receiver.process_pending()

    def switch(self, task: int) -> None:
        """Have it draw from the queue of all if it has its own, or the other way round."""
        one = self.tasks[task]
        one.draw_from(self.queue if one.tap is None else None)

    @property
    def sent(self) -> list[Any]:
        return [bundle for task in self.tasks for lane in task.lanes for bundle in lane.bundles]

    def register(self, emission: int) -> int:
        """What the ledger waits for, once all that was sent has been acknowledged."""
        owed = [bundle[3] for bundle in (*self.put, *self.sent) if bundle[0] == emission]
        return reduce(xor, (*owed, *(task.acks[0].both.get(emission, 0) for task in self.tasks)))

    def check_open(self) -> None:
        """The ledger waits as long as a tuple does."""
        waiting = [bundle for _, _, bundle in self.queue.entries]
        for task in self.tasks:
            waiting += task.queue if isinstance(task.queue, deque) else []
        for emission in {bundle[0] for bundle in waiting}:
            assert self.register(emission), "the ledger would take for done what still waits"

    def check(self) -> None:
        assert not self.queue and all(not task.queue for task in self.tasks)
        for emission in {bundle[0] for bundle in self.put}:
            assert not self.register(emission), "the ledger would wait for ever"
        for task in self.tasks:
            if task.feedback_receiver is not None:
                assert not task.feedback_receiver.queued, "halves were told of other tuples than came"


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), st.integers(0, TASKS - 1), st.integers(1, 3), st.integers(1, 6)),
        st.tuples(st.just("draw"), st.integers(0, TASKS - 1), st.sampled_from([1, 1, 2, 64]), st.just(0)),
        st.tuples(st.just("switch"), st.integers(0, TASKS - 1), st.just(0), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=150)
@given(st.sampled_from(KINDS), st.booleans(), STEPS)
@example(plain, False, [("arrive", 0, 1, 5), ("draw", 1, 2, 0), ("draw", 2, 1, 0)])
@example(batched, True, [("arrive", 0, 1, 3), ("draw", 1, 1, 0)])
@example(plain, True, [("arrive", 0, 1, 5), ("draw", 1, 2, 0), ("switch", 0, 0, 0), ("switch", 1, 0, 0)])
def test_ids_balance_whoever_runs_which_part(kind: Any, by_load: bool, steps: list[tuple[Any, ...]]) -> None:
    drawing = Drawing(kind, least_work(itself) if by_load else shuffle())
    for action, task, one, other in steps:
        if action == "arrive":
            drawing.arrive(task, one, other)
        elif action == "switch":
            drawing.switch(task)
        else:
            drawing.draw(task, one)
        drawing.check_open()
    for step in range(400):
        drawing.draw(step % TASKS, 1 + step % 3)
    drawing.check()
    values = Counter(value for bundle in drawing.sent for value in bundle[5])
    assert values == Counter({n: COPIES[kind] for bundle in drawing.put for n in bundle[5]})
    lineages = Counter(lineage for bundle in drawing.sent for lineage in bundle[4])
    assert set(lineages.values()) <= {1}, "two tuples have one name"


def test_what_is_left_of_a_bundle_stays_in_front_and_belongs_to_whom_it_was_meant_for() -> None:
    drawing = Drawing(plain, shuffle())
    queue = drawing.queue
    drawing.arrive(2, 1, 5)
    drawing.arrive(0, 2, 1)
    seen = [queue.draw(2) for _ in range(4)]
    assert [bundle[5] for _, _, bundle in seen] == [[0, 1], [2, 3], [4], [5]]
    assert [task is drawing.tasks[2] for task, _, _ in seen] == [True, True, True, False]
    with pytest.raises(IndexError):
        queue.draw(1)


def test_a_part_has_its_own_lineages_and_messages() -> None:
    said = [("a",), None, ("c",)]
    first, rest = divided((7, 0, 9, 0b1100, [1, 2, 3], ["x", "y", "z"], (4, 5, 6), said), 1, 0b1010)
    assert first == (7, 0, 9, 0b1010, [1], ["x"], (4, 5, 6), [("a",)])
    assert rest == (7, 0, 9, 0b0110, [2, 3], ["y", "z"], (4, 5, 6), [None, ("c",)])


def test_a_portion_is_as_much_as_takes_a_moment() -> None:
    tap = Drawing(plain, shuffle()).tasks[0].tap
    assert tap is not None and tap.portion == 1
    tap.took(4, 4 * PORTION_NS // 10)
    assert tap.portion == 10
    tap.took(1, 100 * PORTION_NS)
    assert tap.portion == 1


def test_threads_draw_each_tuple_once() -> None:
    clock = ManualClock(1)
    queue = SharedQueue(Random(1), clock, threading.Lock())
    owner: Any = object()
    bundles = [
        new_bundle(n, 0, n, Random(n).getrandbits(64), None, [(n, part) for part in range(1 + n % 7)])
        for n in range(3_000)
    ]
    drawn: list[list[Any]] = [[] for _ in range(4)]
    over = threading.Event()

    def draw(mine: list[Any]) -> None:
        while True:
            last = over.is_set()
            try:
                mine.append(queue.draw(2)[2])
            except IndexError:
                if last:
                    return

    threads = [threading.Thread(target=draw, args=(mine,)) for mine in drawn]
    for thread in threads:
        thread.start()
    for bundle in bundles:
        queue.put(owner, [bundle])
    over.set()
    for thread in threads:
        thread.join(30)
    parts = [part for mine in drawn for part in mine]
    assert Counter(value for part in parts for value in part[5]) == Counter(v for b in bundles for v in b[5])
    ids: dict[int, int] = {}
    for part in parts:
        ids[part[0]] = ids.get(part[0], 0) ^ part[3]
    assert ids == {bundle[0]: bundle[3] for bundle in bundles}


@given(sizes=st.lists(st.integers(1, 9), max_size=8), most=st.integers(1, 12), seed=st.integers(0, 99))
def test_portions_hold_each_tuple_once_and_no_more_than_asked_for(sizes: list[int], most: int, seed: int) -> None:
    rng = Random(seed)
    values = iter(range(sum(sizes)))
    bundles = [
        new_bundle(number, 0, 0, rng.getrandbits(64), None, [next(values) for _ in range(size)])
        for number, size in enumerate(sizes)
    ]
    found = portions(bundles, most, rng.getrandbits)
    assert [value for part in found for bundle in part for value in bundle[5]] == list(range(sum(sizes)))
    counts = [sum(len(bundle[5]) for bundle in part) for part in found]
    assert all(count == most for count in counts[:-1]) and all(0 < count <= most for count in counts[-1:])
    for emission, _, _, ack, *_ in bundles:
        assert reduce(xor, (bundle[3] for part in found for bundle in part if bundle[0] == emission)) == ack
