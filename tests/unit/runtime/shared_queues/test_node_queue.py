"""A node's queue, by two ends in one process: what is put is taken once, and whoever sleeps hears of it."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from contextlib import nullcontext
from random import Random

import pytest

from tailrace.core.bundles import new_bundle
from tailrace.core.plan.node_groups import NodeGroup, node_group_of
from tailrace.core.plan.planner import make_plan
from tailrace.core.protocol.messages import Member
from tailrace.core.queues.shared import SharedQueue
from tailrace.errors import RingError
from tailrace.policy import least_work
from tailrace.ring import layout
from tailrace.ring.owner import own_id
from tailrace.ring.segment import FOLDER
from tailrace.runtime.links.channels import offer_ring, take_ring
from tailrace.runtime.links.frames import decode_bundles, encode
from tailrace.runtime.shared_queues.node_queue import LOOK_AGAIN_NS, MOST, NodeQueue
from tailrace.sim.faults.topologies import SimSink, SimSource, mark
from tailrace.testing.clock import ManualClock
from tailrace.topology import Topology

CIRCLE = NodeGroup(0, ((0, 1), (1, 2)))


def _end(name: str, nonce: str, batch: int = 0) -> NodeQueue:
    queue = NodeQueue(take_ring(name, nonce, "queue"), CIRCLE, batch)
    queue.decode = decode_bundles
    return queue


@pytest.fixture
def ends() -> Iterator[tuple[NodeQueue, NodeQueue]]:
    """Of one ring, whose names are gone."""
    made = offer_ring("unit", "queue")
    found = [_end(made.segment.path.name, made.segment.nonce.hex()) for _ in range(2)]
    made.withdraw()
    made.close()
    yield found[0], found[1]
    for queue in found:
        queue.close()
    assert not list(FOLDER.glob(f"tailrace-unit-*-{own_id()}-*"))


def bundle(number: int) -> tuple[object, ...]:
    return new_bundle(number, 0, 0, number, None, [number])


def rung(queue: NodeQueue) -> bool:
    """Whether one who listens would be woken. The bell is silent afterwards."""
    bell = queue.bell()
    assert bell is not None
    try:
        return bool(select.select([bell], (), (), 0)[0]) and bool(os.read(bell, 1 << 16))
    finally:
        os.close(bell)


def test_what_is_put_is_taken_once_in_its_order_and_knows_when_it_came(ends: tuple[NodeQueue, NodeQueue]) -> None:
    one, other = ends
    for number in range(5):
        assert one.put(encode([bundle(number)]))
    taken = [(one, other)[number % 2].take(1) for number in range(6)]
    assert [bundles for _, bundles in taken] == [[bundle(number)] for number in range(5)] + [()]
    times = [came_ns for came_ns, _ in taken[:5]]
    assert times == sorted(times) and times[0] > 0


def test_the_bell_rings_while_somebody_rests(ends: tuple[NodeQueue, NodeQueue]) -> None:
    one, other = ends
    one.put(encode([bundle(1)]))
    assert not rung(other), "nobody sleeps"
    assert not other.prepare_sleep(), "nobody may, while there is something to draw"
    assert other.take(1)[1] == [bundle(1)] and not other
    assert other.prepare_sleep() and other.prepare_sleep(), "two threads do"
    one.put(encode([bundle(2)]))
    assert rung(other)
    other.awake()
    one.put(encode([bundle(3)]))
    assert rung(other), "for the other one"
    other.awake()
    one.put(encode([bundle(4)]))
    assert not rung(other)


def test_whoever_draws_wakes_another_for_the_rest(ends: tuple[NodeQueue, NodeQueue]) -> None:
    one, other = ends
    assert other.prepare_sleep()
    for number in range(3):
        one.put(encode([bundle(number)]))
    assert rung(other)
    assert one.take(1)[1] and rung(other), "two are left, and one sleeps"
    other.awake()
    assert one.take(1)[1] and not rung(other), "nobody sleeps"
    assert one.prepare_sleep() is False
    assert one.take(1)[1] and not one


def test_what_is_put_by_one_who_is_slow_is_worth_a_look_again_when_the_bell_rings(
    ends: tuple[NodeQueue, NodeQueue],
) -> None:
    one, other = ends
    one.put(encode([bundle(1)]))
    assert one and other
    assert other.take(1)[1]
    assert not one, "it is empty"
    other.bell_rang()
    assert not other, "and stays so, whatever bell has rung"


def test_who_draws_something_else_has_another_look_into_it(ends: tuple[NodeQueue, NodeQueue]) -> None:
    one, other = ends
    queue = SharedQueue(Random(1), lambda: 1, nullcontext())
    task = object()
    queue.supply = one
    queue.put(task, [bundle(1)])  # type: ignore[arg-type]
    assert other.prepare_sleep()
    other.put(encode([bundle(2)]))
    assert rung(one), "who was woken"
    assert queue.draw(1)[2] == bundle(1)
    assert rung(one), "runs what came from elsewhere, and wakes the next"
    other.awake()
    queue.put(task, [bundle(3)])  # type: ignore[arg-type]
    queue.draw(1)
    assert not rung(one), "nobody sleeps"


def test_what_nobody_told_of_is_found_after_a_while(
    ends: tuple[NodeQueue, NodeQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = ends
    clock = ManualClock(1)
    monkeypatch.setattr("tailrace.runtime.shared_queues.node_queue.system_clock", clock)
    one.put(encode([bundle(1)]))
    assert one._core is not None
    assert other._core is not None and other._core.read(1), "taken and not given back, as by one who is slow"
    assert one.take(1)[1] == () and not one
    clock.advance(LOOK_AGAIN_NS)
    assert one, "it is worth another look"
    assert one.take(1)[1] == () and not one


def test_who_draws_says_how_much_at_once(ends: tuple[NodeQueue, NodeQueue]) -> None:
    one, other = ends
    assert one.portion == 1
    other.take(40)
    one.put(encode([bundle(1)]))
    assert one.portion == other.portion == 40
    other.take(10 * MOST)
    one.put(encode([bundle(1)]))
    assert one.portion == MOST


def test_a_batch_is_what_its_operator_takes_at_once() -> None:
    made = offer_ring("unit", "queue")
    queue = _end(made.segment.path.name, made.segment.nonce.hex(), batch=16)
    made.withdraw()
    made.close()
    queue.take(1)
    assert queue.portion == 16
    queue.close()


def test_a_full_queue_takes_no_more_until_there_is_room(ends: tuple[NodeQueue, NodeQueue]) -> None:
    one, other = ends
    payload = encode([new_bundle(0, 0, 0, 0, None, [b"x" * 100_000])])
    put = 0
    while one.put(payload):
        put += 1
    assert put == 10 and abs(other.queued - put) <= 1
    assert other.take(1)[1] and one.put(payload)


def test_an_end_that_is_closed_takes_all_and_has_nothing(ends: tuple[NodeQueue, NodeQueue]) -> None:
    one, other = ends
    one.put(encode([bundle(1)]))
    other.close()
    assert other.put(b"lost, as all that is in a queue that is over") and other.take(1) == (0, ()) and not other
    assert other.bell() is None and other.queued == 0
    other.pass_on()
    assert one.take(1)[1] == [bundle(1)], "what others do with it is up to them"


def test_rubbish_in_the_ring_is_an_error(ends: tuple[NodeQueue, NodeQueue]) -> None:
    one, _ = ends
    one.put(encode([bundle(1)]))
    memory = one.part.segment.memory
    memory[layout.DATA[layout.SHARED] + 8] ^= 0xFF  # the length of the first record
    memory[layout.DATA[layout.SHARED] + 11] = 0xFF
    with pytest.raises(RingError, match=r"a node's queue is broken: .*; did something else write there\?"):
        one.take(1)


def test_the_spare_word_is_in_nobody_s_way() -> None:
    used = layout.OFFSETS["ring_shared.sleepers"] + 4
    assert used <= layout.SPARE <= layout.OFFSETS["ring_shared.slots"] - 4


# -- node groups


def _topology() -> Topology:
    topology = Topology("groups")
    stream = topology.source("s", SimSource("s", 1), tasks=1).map("work", mark("w"), tasks=3)
    stream.map("load", mark("l"), tasks=3, grouping=least_work(len)).sink("out", SimSink(), tasks=1)
    return topology


def test_workers_of_a_machine_find_one_circle_and_its_maker_has_tasks() -> None:
    plan = make_plan(_topology(), 4)
    work, load = plan.operators[1], plan.operators[2]
    assert plan.homes(work) == (1, 2, 3)
    here = {worker: Member(worker + 10, ("here", worker)) for worker in range(3)}
    members = {**here, 3: Member(13, ("there", 3))}
    groups = [node_group_of(plan, work, members, worker) for worker in range(5)]
    assert groups[0] == groups[1] == groups[2] == NodeGroup(1, ((0, 10), (1, 11), (2, 12)))
    assert groups[3] is None, "it is alone on its machine"
    assert groups[4] is None, "it is no member"
    assert node_group_of(plan, load, members, 1) is None, "those behind an edge by load share by worker"
    assert load.scope("node") == "worker"
    replaced = node_group_of(plan, work, {**members, 0: Member(14, ("here", 0))}, 1)
    assert replaced != groups[1], "a new epoch is a new node group, though it only puts"
    alone = node_group_of(plan, work, {worker: member for worker, member in members.items() if worker != 2}, 1)
    assert alone is None, "one worker with tasks needs no queue but its own"
