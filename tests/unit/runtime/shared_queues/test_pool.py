"""What a pool does with tuples that came over links, from other machines: asleep tasks first, then the node's queue."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kit.neighbours import Worker
from kit.tasks import context_of, plan_of, task_of
from tailrace.core.bundles import new_bundle
from tailrace.core.plan.node_groups import NodeGroup
from tailrace.core.queues.rounds import ANY, QUEUE_BUNDLES
from tailrace.policy.techniques import Tail
from tailrace.runtime.execution.runner import Runner
from tailrace.runtime.execution.task_host import TaskHost
from tailrace.runtime.links.channels import offer_ring, take_ring
from tailrace.runtime.links.frames import BUNDLES, decode_bundles, encode
from tailrace.runtime.shared_queues.node_queue import NodeQueue
from tailrace.runtime.shared_queues.pool import Pool
from tailrace.sim.faults.topologies import mark
from tailrace.topology import Kind

TASKS = 3


def _failed(error: BaseException) -> None:
    raise error


def _no_runner(name: str) -> Runner:
    raise AssertionError("it has one")


class Desk:
    """Tasks with runners of their own, which sleep or do not, and somebody else's end of the node's queue."""

    def __init__(self) -> None:
        plan = plan_of(lambda source: source.map("work", mark("w"), tasks=TASKS))
        tail = Tail(shared_queues="node")
        context = context_of(plan, tail=tail)
        near = Worker()
        self.hosts: list[TaskHost] = []
        for number in range(1, 1 + TASKS):
            task = task_of(context, number)
            self.hosts.append(TaskHost(task, near, Kind.BLOCKING))
        self.runners = [Runner(f"work/{number}", _failed) for number in range(TASKS)]
        self.reader = Runner("intake", _failed)
        self.pool = Pool(context.queues[1], self.hosts, near, self.reader, _no_runner)
        for runner, host in zip(self.runners, self.hosts, strict=True):
            runner.adopt(host)
        made = offer_ring("pool", "queue")
        name, nonce = made.segment.path.name, made.segment.nonce.hex()
        group = NodeGroup(0, ((0, 1), (1, 2)))
        self.node, self.other = (NodeQueue(take_ring(name, nonce, "queue"), group) for _ in range(2))
        made.withdraw()
        made.close()
        self.node.hand_over, self.node.decode, self.other.decode = self.pool.hand_over, self.pool.decode, decode_bundles
        self.pool.draw_from(self.node)

    def asleep(self, *which: int) -> None:
        self.node.take(1)  # whoever sleeps has looked
        for number, runner in enumerate(self.runners):
            runner.awake()
            if number in which:
                assert runner.prepare_sleep()

    def come(self, *sizes: int, bytes_each: int = 1) -> None:
        """A frame, with bundles of so many tuples."""
        value = b"x" * bytes_each
        bundles = [new_bundle(number, 0, 0, number, None, [value] * size) for number, size in enumerate(sizes)]
        left = self.pool.members[0].read(BUNDLES, memoryview(encode(bundles)))
        if left:
            self.pool.members[0].receive(left)

    @property
    def here(self) -> list[int]:
        """Tuples in each bundle of the worker's own queue."""
        return [len(bundle[5]) for _, _, bundle in self.pool.queue.entries]

    @property
    def there(self) -> list[int]:
        """Tuples in each record of the node's."""
        found = []
        while bundles := self.other.take(1)[1]:
            found.append(sum(len(bundle[5]) for bundle in bundles))
        return found

    def close(self) -> None:
        self.pool.draw_from(None)
        self.pool.empty(None)
        self.reader.run_posted()
        for member in self.pool.members:
            member.listen()
        self.node.close()
        self.other.close()


@pytest.fixture
def desk() -> Iterator[Desk]:
    one = Desk()
    yield one
    one.close()


def test_what_comes_while_all_are_busy_goes_to_the_node_a_portion_a_record(desk: Desk) -> None:
    desk.asleep()
    desk.come(1, 3, 2)
    assert (desk.here, desk.there) == ([], [1] * 6)


def test_records_are_as_large_as_those_who_draw_want_them(desk: Desk) -> None:
    desk.asleep()
    desk.node.take(4)
    desk.come(1, 3, 2)
    assert (desk.here, desk.there) == ([], [4, 2])


def test_tasks_that_sleep_get_a_portion_each_by_reference(desk: Desk) -> None:
    desk.asleep(0, 2)
    desk.come(1, 3, 2)
    assert (desk.here, desk.there) == ([1, 1], [1] * 4)
    assert not any(runner.idle for runner in desk.runners), "they are woken"


def test_nobody_overtakes_what_waits_in_the_node_s_queue(desk: Desk) -> None:
    desk.asleep(0)
    desk.other.put(encode([new_bundle(9, 0, 0, 9, None, [b"first"])]))
    desk.node.bell_rang()
    desk.come(1)
    assert (desk.here, desk.there) == ([], [1, 1])


def test_what_does_not_fit_stays_and_holds_senders_back_when_it_is_too_much(desk: Desk) -> None:
    desk.asleep()
    while desk.pool.rounds.room("a link") != ANY:
        assert not desk.here, "an empty queue grows"
    desk.come(*[1] * 9, bytes_each=200_000)
    assert len(desk.here) == 4, "five fill the ring"
    assert desk.pool.rounds.room("a link") and not desk.pool.rounds.behind
    desk.come(*[1] * TASKS * QUEUE_BUNDLES, bytes_each=200_000)
    assert not desk.pool.rounds.room("a link")
    assert desk.there == [1] * 5


def test_a_tuple_that_no_queue_is_made_for_stays(desk: Desk) -> None:
    desk.asleep()
    desk.come(1, bytes_each=600_000)
    assert (desk.here, desk.there) == ([1], [])


def test_a_task_with_nothing_of_its_own_draws_from_the_node(desk: Desk) -> None:
    desk.other.put(encode([new_bundle(5, 0, 0, 5, [7], [("s", 0, 5)])]))
    task = desk.hosts[1].task
    assert task.runnable
    task.run(0)
    assert [bundle[5] for lane in task.lanes for bundle in lane.bundles] == [[("s", 0, 5, "w")]]
    assert not task.runnable, "it has looked, and will be told"


def test_a_queue_that_is_no_longer_wanted_is_emptied_into_tasks_in_turn_whenever_others_put(desk: Desk) -> None:
    for member in desk.pool.members[:2]:
        member.leave()
    desk.other.put(encode([new_bundle(1, 0, 0, 1, None, [b"x"])]))
    desk.pool.draw_from(None)
    desk.pool.empty(desk.node)
    desk.reader.run_posted()
    for emission in (2, 3, 4):  # from a worker that has not heard of it yet
        assert desk.reader.prepare_sleep()
        desk.other.put(encode([new_bundle(emission, 0, 0, emission, None, [b"x"])]))
        desk.reader.turn(wait=False)
        desk.reader.awake()
    own = [[bundle[0] for bundle in host.task.queue] for host in desk.hosts[:2]]  # type: ignore[attr-defined]
    assert own == [[1, 4], [2]]
    assert [bundle[0] for _, _, bundle in desk.pool.queue.entries] == [3], "the third task still shares"
    assert desk.there == []


def test_nothing_is_passed_on_to_a_queue_that_is_no_longer_wanted(desk: Desk) -> None:
    desk.asleep()
    desk.pool.draw_from(None)
    desk.come(1, 3)
    assert (desk.here, desk.there) == ([1, 3], [])
