"""The laws of a link that workers share: one order for all, no more than the rate, and nobody waits for the dead."""

from __future__ import annotations

from collections import deque
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tailrace.clock import SECOND_NS
from tailrace.core.send_order.node_uplink import PATIENCE_NS, WAIT, NodeUplink, NodeWords
from tailrace.core.send_order.uplink_budget import DEPTH_NS
from tailrace.policy.send_order.api import NEVER_NS, NOTHING, SendScheduler, Waiting
from tailrace.policy.send_order.fifo import fifo
from tailrace.policy.send_order.largest_backlog import lbf, lbf_work
from tailrace.policy.send_order.round_robin import round_robin

RATE = 1_000_000  # bytes a second
SIZE = 1_000
SLOT_NS = SIZE * SECOND_NS // RATE
SCHEDULERS = [lbf(), lbf_work(3), fifo(), round_robin()]


class Node:
    """Tasks of one operator in several workers, with what waits at each."""

    def __init__(self, home: list[int]) -> None:
        self.home = home
        self.places = NodeWords([len(home)], home)
        self.words = [0] * self.places.count
        self.places.clear(self.words)
        self.queues: list[deque[int]] = [deque() for _ in home]  # of times at which they were put in
        workers = max(home) + 1
        self.links = [NodeUplink(self.words, self.places, worker, RATE, workers) for worker in range(workers)]
        self.left: list[tuple[int, int]] = []  # task and time

    def waiting(self, tasks: list[int]) -> Waiting:
        waiting = Waiting(len(tasks))
        for index, task in enumerate(tasks):
            queue = self.queues[task]
            waiting.tuples[index] = len(queue)
            waiting.work_ns[index] = len(queue) * SLOT_NS
            waiting.since_ns[index] = queue[0] if queue else NEVER_NS
        return waiting

    def tell(self, worker: int) -> None:
        own = [task for task, home in enumerate(self.home) if home == worker]
        self.links[worker].publish(self.waiting(own), own)

    def try_to_send(self, worker: int, scheduler: SendScheduler, now_ns: int) -> bool:
        self.tell(worker)
        task = self.links[worker].look(scheduler, now_ns)
        if task == WAIT:
            return False
        assert self.home[task] == worker and self.queues[task], "a turn of somebody else, or of nobody"
        self.links[worker].spend(task, SIZE, now_ns)
        self.queues[task].popleft()
        self.left.append((task, now_ns))
        self.tell(worker)
        return True


gaps_ns = st.one_of(st.just(0), st.integers(0, PATIENCE_NS - 1))
arrivals = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 6), gaps_ns), min_size=20, max_size=40)
homes = st.lists(st.integers(0, 2), min_size=6, max_size=6).map(lambda home: [*home[:-1], 2])


@given(arrivals, homes, st.sampled_from(SCHEDULERS))
def test_workers_that_look_all_the_time_send_as_one_would(
    coming: list[tuple[int, int, int]], home: list[int], scheduler: SendScheduler
) -> None:
    """The same picks in the same order as one picker makes that sees all queues and works on."""
    node, alone = Node(home), Node(home)
    picker = scheduler.bind(len(home), _First())
    now_ns, free_ns = SECOND_NS, 0
    for task, tuples, gap_ns in coming:
        for one in (node, alone):
            one.queues[task].extend([now_ns] * tuples)
        now_ns += gap_ns
        for worker in range(len(node.links)):
            node.tell(worker)
        while any(node.try_to_send(worker, scheduler, now_ns) for worker in range(len(node.links))):
            pass
        while free_ns <= now_ns and (picked := picker.pick(alone.waiting(list(range(len(home)))), now_ns)) != NOTHING:
            alone.queues[picked].popleft()
            alone.left.append((picked, now_ns))
            free_ns = max(free_ns, now_ns - DEPTH_NS) + SLOT_NS
    assert node.left == alone.left


class _First(Random):
    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return 0


@given(arrivals, homes, st.sampled_from(SCHEDULERS), st.integers(0, 10**6))
def test_no_more_leaves_than_the_link_takes_whoever_looks_when(
    coming: list[tuple[int, int, int]], home: list[int], scheduler: SendScheduler, seed: int
) -> None:
    node, rng = Node(home), Random(seed)
    now_ns = SECOND_NS
    for task, tuples, gap_ns in coming:
        node.queues[task].extend([now_ns] * tuples)
        now_ns += gap_ns
        for worker in rng.choices(range(len(node.links)), k=rng.randrange(6)):
            node.try_to_send(worker, scheduler, now_ns)
    for first, (_, from_ns) in enumerate(node.left):
        for count, (_, at_ns) in enumerate(node.left[first:]):
            allowed = (at_ns - from_ns + DEPTH_NS) * RATE // SECOND_NS
            assert count * SIZE <= allowed + 1, "more than the rate and the bucket, even without the last parcel"


@given(homes, st.lists(st.integers(0, 5), min_size=1, max_size=40), st.integers(0, 2), st.sampled_from(SCHEDULERS))
def test_a_worker_that_is_dead_holds_the_others_up_once(
    home: list[int], tasks: list[int], dead: int, scheduler: SendScheduler
) -> None:
    """All has been put in, and one worker has told of what it has and looks no more."""
    node = Node(home)
    now_ns = SECOND_NS
    for task in tasks:
        node.queues[task].append(now_ns)
    for worker in range(len(node.links)):
        node.tell(worker)
    living = [worker for worker in range(len(node.links)) if worker != dead]
    wanted = sum(home[task] != dead for task in tasks)
    end_ns = now_ns + wanted * SLOT_NS + 2 * PATIENCE_NS
    while now_ns < end_ns and len(node.left) < wanted:
        if not any(node.try_to_send(worker, scheduler, now_ns) for worker in living):
            now_ns += SLOT_NS // 20
    assert len(node.left) == wanted, "the others wait for the dead"
