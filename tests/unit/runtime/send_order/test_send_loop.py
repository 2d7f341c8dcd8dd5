"""The send loop sends for tasks in a scheduler's order, past receivers that are behind, and gives links back."""

from __future__ import annotations

import socket
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from kit.neighbours import NobodyHere
from kit.tasks import context_of, task_of
from tailrace.clock import SECOND_NS, system_clock
from tailrace.core.bundles import new_bundle
from tailrace.core.plan.plan import Plan
from tailrace.core.plan.planner import make_plan
from tailrace.core.protocol.ledger import LedgerLimits
from tailrace.core.protocol.messages import Member
from tailrace.core.send_order.uplink_budget import UplinkBudget
from tailrace.core.tasks.base import PlainTask
from tailrace.policy import SendScheduler, fields, fifo, lbf, round_robin
from tailrace.runtime.execution.runner import Runner
from tailrace.runtime.execution.sender import Sender
from tailrace.runtime.links.channels import Channel
from tailrace.runtime.links.frames import FrameReader, decode_bundles
from tailrace.runtime.links.link import OutLink
from tailrace.runtime.send_order.send_loop import SendLoop
from tailrace.sim.faults.topologies import SimSink, SimSource
from tailrace.topology import Topology

TARGETS = 2


class World(NobodyHere):
    """Receivers live in another worker, each at the far end of a pair of sockets for each sender."""

    def __init__(self) -> None:
        self.far: dict[int, list[socket.socket]] = {}  # by receiver
        self.sent_by: dict[int, list[Any]] = {}
        self.epoch = 1
        self.lost = 0
        self.buffer = 1 << 18  # of each link
        self.dialed: list[tuple[OutLink, Callable[[Channel | None], None]]] = []
        self.dials_at_once = True
        self._readers: dict[socket.socket, FrameReader] = {}

    def member(self, worker: int) -> Member | None:
        return Member(self.epoch, ("nowhere", 0)) if self.epoch else None

    def connect(self, link: OutLink, member: Member, done: Callable[[Channel | None], None]) -> None:
        if self.dials_at_once:
            done(self.channel(link) if link.kind == "bundles" else None)
        else:
            self.dialed.append((link, done))

    def channel(self, link: OutLink) -> Channel:
        near, far = socket.socketpair()
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.buffer)
        far.setblocking(False)
        self.far.setdefault(link.target, []).append(far)
        self._readers[far] = FrameReader()
        return Channel(near)

    def lost_link(self, worker: int, epoch: int) -> None:
        self.lost += 1

    def arrived(self, receiver: int) -> list[Any]:
        found: list[Any] = []
        for far in self.far.get(receiver, []):
            try:
                while data := far.recv(1 << 20):
                    for _, _, payload in self._readers[far].feed(data):
                        found += [value for bundle in decode_bundles(payload) for value in bundle[5]]
            except BlockingIOError:
                pass
        return found


class Host:
    """A host without a runner of its own: what is posted is done at once."""

    def __init__(self, task: PlainTask, world: World) -> None:
        self.task = task
        self.number = task.number
        self.woken = 0
        self.sender = Sender(task, world, self.post)  # type: ignore[arg-type]
        self.runner = Runner(task.label, lambda error: None)
        self.sender.moved_to(self.runner)

    def post(self, action: Callable[[], None]) -> None:
        action()

    def request_turn(self) -> None:
        self.woken += 1

    def send_through(self, output: Any) -> None:
        self.sender.send_through(output)

    def emit(self, *values: Any) -> bool:
        """Whether it is held back then."""
        for value in values:
            self.task.receive([new_bundle(value[1], 0, value[1], 1, None, [value])])
        self.task.run(SECOND_NS)
        return self.sender.flush()


class Desk:
    """Some map tasks in one worker, sinks in another; values are (receiver, number)."""

    def __init__(self, tasks: int = 3, most_tuples: int = 1_000, budget: UplinkBudget | None = None) -> None:
        topology = Topology("t")
        stream = topology.source("s", SimSource("s", 1)).map("m", _itself, tasks=tasks)
        stream.sink("out", SimSink(committing=False), tasks=TARGETS, grouping=fields(_receiver))
        self.plan: Plan = make_plan(topology, 2)
        self.world = World()
        self.hosts = [Host(self._task(number), self.world) for number in range(1, tasks + 1)]
        self.receivers = [number for number, index in enumerate(self.plan.operator_of) if index == 2]
        self.loop = SendLoop(
            Runner("send", _fail),
            self.hosts,  # type: ignore[arg-type]
            self.plan,
            self.world,  # type: ignore[arg-type]
            most_tuples=most_tuples,
            budget=budget,
            rng=Random(1),
        )

    def _task(self, number: int) -> PlainTask:
        context = context_of(self.plan, limits=LedgerLimits(10, 1), seed=3)
        task = task_of(context, number, _itself)
        assert isinstance(task, PlainTask)
        return task

    def switch(self, scheduler: SendScheduler | None) -> None:
        self.loop.switch(scheduler)
        self.turn()

    def turn(self, times: int = 3) -> None:
        for _ in range(times):
            self.loop.runner.turn(wait=False)

    def arrived(self) -> list[Any]:
        return [value for receiver in self.receivers for value in self.world.arrived(receiver)]


def _itself(value: Any) -> Any:
    return value


def _receiver(value: Any) -> Any:
    return value[0]


def _fail(error: BaseException) -> None:
    raise error


def test_what_tasks_leave_is_sent_by_the_loop_and_not_before() -> None:
    desk = Desk()
    desk.switch(lbf())
    desk.hosts[0].emit(("a", 1), ("b", 2))
    assert desk.arrived() == []
    desk.turn()
    assert sorted(desk.arrived()) == [("a", 1), ("b", 2)]
    assert desk.hosts[0].sender.backlog == (0, 2)


def test_the_fullest_queue_is_emptied_first() -> None:
    budget = UplinkBudget(1_000_000)
    desk = Desk(budget=budget)
    desk.switch(lbf())
    big = bytes(4_000)
    desk.hosts[0].emit(("a", 0, big))
    desk.hosts[1].emit(*[("a", 10 + n, big) for n in range(6)])
    budget.free_ns = system_clock() + SECOND_NS
    desk.turn()  # connects
    order: list[int] = []
    for _ in range(30):
        budget.free_ns = 0
        budget.spend(0, system_clock())
        desk.turn(1)
        order += [value[1] for value in desk.arrived()]
    assert sorted(order) == [0, 10, 11, 12, 13, 14, 15]
    assert order.index(0) >= 4, "until both hold one the longer queue is first"
    assert [number for number in order if number >= 10] == [10, 11, 12, 13, 14, 15]


def test_a_receiver_that_is_behind_holds_up_nobody_else() -> None:
    desk = Desk()
    desk.world.buffer = 4_096
    desk.switch(fifo())
    first, second = _two_keys(desk)
    desk.hosts[0].emit(*[(first, n, bytes(3_000)) for n in range(40)])
    desk.turn(10)
    desk.hosts[0].emit((second, 100))
    desk.turn(10)
    assert desk.hosts[0].sender.backlog[0] > 0, "the first receiver has not read, and not all went into the socket"
    assert [value[1] for value in desk.world.arrived(desk.receivers[1])] == [100]
    found: list[int] = []
    for _ in range(60):
        desk.turn(2)
        found += [value[1] for value in desk.world.arrived(desk.receivers[0])]
    assert found == list(range(40))


def _two_keys(desk: Desk) -> tuple[str, str]:
    """Keys that lead to the first and to the second receiver."""
    chooser = desk.plan.edges[1].grouping.bind(TARGETS, Random(0))
    by_choice = {chooser.choose_many([(key,)])[0]: key for key in "abcdefgh"}
    return by_choice[0], by_choice[1]


def test_a_full_queue_holds_its_task_back_until_half_has_left() -> None:
    desk = Desk(most_tuples=8)
    desk.switch(round_robin())
    assert not desk.hosts[0].emit(*[("a", n) for n in range(7)])
    assert desk.hosts[0].emit(("a", 7), ("a", 8), ("a", 9))
    assert desk.hosts[0].sender.backlog == (8, 8)
    desk.turn()
    assert desk.hosts[0].woken == 1
    assert not desk.hosts[0].emit()
    desk.turn()
    assert [value[1] for value in desk.arrived()] == list(range(10))


def test_switched_off_and_on_in_mid_stream_nothing_is_overtaken() -> None:
    desk = Desk(tasks=2)
    desk.world.buffer = 4_096
    found: list[int] = []
    for number in range(60):
        desk.hosts[0].emit(("a", number, bytes(1_000)))
        if number % 3 == 0:
            desk.loop.switch((lbf(), None, fifo(), None)[number // 3 % 4])
        if number % 4 == 0:
            desk.turn(1)
            desk.hosts[0].emit()
        found += [value[1] for value in desk.arrived()]
    for _ in range(20):
        desk.turn()
        desk.hosts[0].emit()
        found += [value[1] for value in desk.arrived()]
    assert found == list(range(60))
    assert desk.world.lost == 0


def test_links_are_there_before_what_was_put_in_after_they_were_given() -> None:
    desk = Desk(tasks=2)
    desk.hosts[0].emit(("a", 1))
    desk.loop.switch(lbf())
    desk.hosts[0].emit(("a", 2))
    desk.loop.work(0)  # in the midst of a turn: what has been posted since it began is still to be done
    desk.turn()
    assert desk.arrived() == [("a", 1), ("a", 2)]
    assert len(desk.world.far[desk.receivers[0]] + desk.world.far.get(desk.receivers[1], [])) == 1


@pytest.mark.parametrize("back", [False, True])
def test_a_connection_that_is_made_while_its_link_changes_hands(back: bool) -> None:
    desk = Desk(tasks=2)
    desk.world.dials_at_once = False
    desk.hosts[0].emit(("a", 1))
    desk.loop.switch(lbf())  # the link is on its way to the loop
    if back:
        desk.loop.switch(None)
    desk.hosts[0].emit(("a", 2))
    (dialed,) = [(link, done) for link, done in desk.world.dialed if link.kind == "bundles"]
    dialed[1](desk.world.channel(dialed[0]))
    for _ in range(5):
        desk.turn()
        desk.hosts[0].emit()
    assert [value[1] for value in desk.arrived()] == [1, 2]


def test_a_connection_that_is_made_for_a_link_that_has_just_left_again() -> None:
    desk = Desk(tasks=2)
    desk.world.dials_at_once = False
    host = desk.hosts[0]
    host.emit(("a", 1))
    desk.switch(lbf())
    desk.loop.switch(None)  # nothing was put in: the loop is to give the link back, when it comes to that
    (dialed,) = [(link, done) for link, done in desk.world.dialed if link.kind == "bundles"]
    dialed[1](desk.world.channel(dialed[0]))
    desk.turn()
    host.emit()
    assert desk.arrived() == [("a", 1)]
    assert dialed[0]._loop is host.runner, "it is watched by somebody who no longer has it"


def test_what_waits_for_a_dead_worker_goes_to_the_one_that_takes_its_place() -> None:
    desk = Desk(tasks=2)
    desk.switch(lbf())
    desk.hosts[0].emit(("a", 1))
    desk.turn()
    assert desk.arrived() == [("a", 1)]
    desk.world.epoch = 0
    desk.hosts[0].emit(("a", 2))
    desk.turn()
    assert desk.arrived() == []
    desk.world.epoch = 2
    desk.loop.relink(frozenset({1}))
    desk.turn()
    assert desk.arrived() == [("a", 2)]


def test_one_task_alone_is_left_alone_unless_the_link_is_limited() -> None:
    desk = Desk(tasks=1)
    desk.switch(lbf())
    desk.hosts[0].emit(("a", 1))
    assert desk.arrived() == [("a", 1)], "it sends by itself"
    limited = Desk(tasks=1, budget=UplinkBudget(1_000_000_000))
    limited.switch(None)
    limited.hosts[0].emit(("a", 1))
    assert limited.arrived() == []
    limited.turn()
    assert limited.arrived() == [("a", 1)]
