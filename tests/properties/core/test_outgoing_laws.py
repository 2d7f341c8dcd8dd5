"""Whatever happens in whatever order: parcels leave once, in order between two tasks, and none of a stuck line."""

from __future__ import annotations

from collections import defaultdict
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.clock import SECOND_NS
from tailrace.core.send_order.outgoing import OutgoingQueue, Parcel, SendOrder
from tailrace.core.send_order.uplink_budget import UplinkBudget
from tailrace.policy import SendScheduler, fifo, lbf, lbf_work, round_robin

SCHEDULERS: list[SendScheduler] = [lbf(), lbf(interval_ms=1), lbf_work(1), round_robin(), fifo()]
QUEUES, TARGETS = 3, 3

put = st.tuples(st.just("put"), st.integers(0, QUEUES - 1), st.integers(0, TARGETS - 1))
free = st.tuples(st.just("free"), st.integers(0, QUEUES - 1), st.integers(0, TARGETS - 1))
step = st.one_of(put, put, put, free, st.just(("take",)), st.just(("send",)), st.just(("send",)), st.just(("stick",)))


class Driver:
    """A worker that sends, and knows what it should have sent."""

    def __init__(self, scheduler: SendScheduler) -> None:
        self.queues = [OutgoingQueue() for _ in range(QUEUES)]
        self.order = SendOrder(self.queues, scheduler, Random(1), 1)
        self.made: dict[tuple[int, int], list[int]] = defaultdict(list)
        self.sent: dict[tuple[int, int], list[int]] = defaultdict(list)
        self.stuck: set[tuple[int, int]] = set()
        self.now_ns = 0
        self.number = 0

    def put(self, queue: int, target: int) -> None:
        self.number += 1
        self.queues[queue].put(Parcel(target, self.number, 1 + self.number % 3, 100, self.now_ns))
        self.made[queue, target].append(self.number)

    def take(self) -> None:
        self.order.take_in()

    def free(self, queue: int, target: int) -> None:
        if (queue, target) in self.stuck:
            self.stuck.discard((queue, target))
            self.order.free(queue, target)

    def send(self) -> bool:
        picked = self.order.pick(self.now_ns)
        if picked is None:
            return False
        queue, parcel = picked
        assert (queue, parcel.target) not in self.stuck, "a parcel of a stuck line was picked"
        assert parcel.put_ns == self.order.waiting.since_ns[queue], "another has waited longer in its queue"
        self.order.sent(queue, parcel)
        self.sent[queue, parcel.target].append(parcel.payload)
        return True

    def stick(self) -> None:
        picked = self.order.pick(self.now_ns)
        if picked is not None:
            self.stuck.add((picked[0], picked[1].target))
            self.order.stuck(picked[0], picked[1].target)


@pytest.mark.parametrize("scheduler", SCHEDULERS, ids=lambda s: f"{s.name}_{s.interval_ns}")
@settings(max_examples=60)
@given(steps=st.lists(step, max_size=60), other=st.sampled_from(SCHEDULERS))
def test_every_parcel_once_and_in_order(
    scheduler: SendScheduler, steps: list[tuple[object, ...]], other: object
) -> None:
    driver = Driver(scheduler)
    for number, (name, *arguments) in enumerate(steps):
        driver.now_ns += 300_000
        getattr(driver, str(name))(*arguments)
        driver.order.validate()
        if number == len(steps) // 2:
            driver.order.switch(other)  # type: ignore[arg-type]
    for pair in sorted(driver.stuck):
        driver.free(*pair)
    driver.take()
    for _ in range(20 * len(steps) + 20):
        driver.now_ns += 300_000
        driver.send()
    assert driver.sent == {pair: numbers for pair, numbers in driver.made.items() if numbers}
    assert all(queue.empty for queue in driver.queues)


@given(puts=st.lists(st.integers(1, 4), max_size=40), most=st.integers(1, 20))
def test_a_task_is_held_back_from_full_to_half(puts: list[int], most: int) -> None:
    queue = OutgoingQueue(most)
    held: list[Parcel] = []
    for tuples in puts:
        if queue.held_back:
            while queue.held_back:
                assert 2 * queue.backlog > most, "half is free, and still it is held back"
                queue.sent(held.pop(0))
        assert queue.room > 0
        held.append(Parcel(0, None, tuples, 1, 0))
        queue.put(held[-1])
        assert queue.backlog == sum(parcel.tuples for parcel in held) <= queue.largest < most + 4


def test_bytes_hold_back_as_well() -> None:
    queue = OutgoingQueue(100, most_bytes=1_000)
    parcel = Parcel(0, None, 1, 600, 0)
    queue.put(parcel)
    assert not queue.held_back
    queue.put(parcel)
    assert queue.held_back and queue.room == 0
    queue.sent(parcel)
    assert queue.held_back, "more than half of what may wait still does"
    queue.sent(parcel)
    assert not queue.held_back


@given(
    sizes=st.lists(st.integers(1, 2_000), min_size=1, max_size=60),
    gaps_us=st.lists(st.integers(0, 3_000), min_size=60, max_size=60),
)
def test_no_more_leaves_than_the_link_takes(sizes: list[int], gaps_us: list[int]) -> None:
    """In any time: the rate, what the bucket holds, and one parcel. And no less, if something always waits."""
    rate, depth_ns = 1_000_000, 2_000_000
    budget = UplinkBudget(rate, depth_ns)
    left: list[tuple[int, int]] = []
    now_ns = SECOND_NS
    for size, gap_us in zip(sizes, gaps_us, strict=False):
        now_ns = max(now_ns + gap_us * 1_000, budget.free_ns)
        budget.spend(size, now_ns)
        left.append((now_ns, size))
    for first in range(len(left)):
        total = 0
        for at_ns, size in left[first:]:
            allowed = (at_ns - left[first][0] + depth_ns) * rate // SECOND_NS
            assert total <= allowed + 1, "more than the rate and the bucket, even without the last parcel"
            total += size
