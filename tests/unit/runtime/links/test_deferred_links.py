"""A source processes acks when it works anyway, and is woken for them only while it needs them at once."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from kit.neighbours import Stepped, Worker
from kit.tasks import context_of, source_of
from tailrace.clock import system_clock
from tailrace.connector import SplitStart
from tailrace.core.plan.planner import make_plan
from tailrace.core.protocol.ledger import LedgerLimits
from tailrace.core.protocol.messages import Barrier, Drain, Recover, Techniques
from tailrace.policy import adaptive_timeout
from tailrace.policy.techniques import Tail
from tailrace.runtime.execution.task_host import TaskHost
from tailrace.runtime.links.channels import Channel, offer_ring, take_ring
from tailrace.runtime.links.frames import ACKS, FEEDBACK, encode_feedback, encode_folds
from tailrace.runtime.links.link import OutLink
from tailrace.sim.faults.topologies import SimSink, SimSource
from tailrace.topology import Kind, Topology

ROOM = 4
ROOTS = 9


class Desk:
    """A source that has emitted a root, on a runner that the test turns, and the link by which a task acknowledges."""

    def __init__(self) -> None:
        topology = Topology("t")
        source = SimSource("s", ROOTS)
        topology.source("s", source, tasks=1).map("m", lambda v: v, tasks=1).sink("out", SimSink(), tasks=1)
        context = context_of(make_plan(topology, 1), system_clock, limits=LedgerLimits(ROOM, 1 << 60))
        task = source_of(context, source.open(SplitStart("0", 0)))
        self.task = task
        self.worker = Worker()
        self.host = TaskHost(task, self.worker, Kind.AUTO)
        self.runner = Stepped("s/0")
        self.runner.adopt(self.host)
        near, far = socket.socketpair()
        offer = offer_ring("deferred", "acks")
        taken = take_ring(offer.segment.path.name, offer.segment.nonce.hex())
        offer.withdraw()
        self.link = OutLink("acks", 0, 0, lambda epoch: None)
        self.link.attach(Channel(near, offer), Stepped("m/0"))
        self.bell = taken.bell
        self.host.take_link(Channel(far, taken), "acks", 1, 1)
        self.runner.step()
        task.handle(Recover())
        self.emit(1)

    def emit(self, roots: int) -> None:
        self.task.read(roots)

    def ack(self) -> tuple[dict[int, int], dict[int, int], dict[int, int]]:
        """Of all that was emitted and not acknowledged."""
        return {one[0]: one[3] for lane in self.task.lanes for one in lane.take()}, {}, {}

    @property
    def complete(self) -> int:
        return self.task.ledger.complete_latency.count

    @property
    def rung(self) -> bool:
        return bool(select.select([self.bell], (), (), 0)[0])

    def close(self) -> None:
        self.link.close()
        self.host.relink(frozenset())
        self.host.input.moved_to(None)


@pytest.fixture
def desk() -> Iterator[Desk]:
    one = Desk()
    yield one
    one.close()


def test_an_ack_wakes_nobody_and_is_taken_in_at_the_next_turn(desk: Desk) -> None:
    assert desk.runner.prepare_sleep()
    desk.link.send(ACKS, encode_folds(desk.ack(), system_clock()))
    assert not desk.rung
    assert desk.complete == 0
    desk.runner.awake()
    desk.host.work(system_clock())
    assert desk.complete == 1


def test_what_lies_on_the_link_of_one_who_was_replaced_is_not_taken(desk: Desk) -> None:
    """Its host may have been busy since, and not have heard that the link is to be closed."""
    desk.link.send(ACKS, encode_folds(desk.ack(), system_clock()))
    desk.worker.lowest = 2
    desk.host.work(system_clock())
    desk.runner.step()
    assert desk.complete == 0


def test_a_root_was_complete_when_its_ack_was_sent(desk: Desk) -> None:
    sent_ns = system_clock()
    (root,) = desk.task.ledger
    root.due_ns = sent_ns - 1_000_000
    desk.link.send(ACKS, encode_folds(desk.ack(), sent_ns))
    time.sleep(0.002)
    desk.host.work(system_clock())
    assert desk.task.ledger.complete_latency.max == 1_000_000


def no_room(desk: Desk) -> None:
    desk.emit(ROOM - 1)


def drained(desk: Desk) -> None:
    desk.task.handle(Drain())


def asked_to_pass_a_barrier(desk: Desk) -> None:
    desk.task.handle(Barrier(1))


def hedging(desk: Desk) -> None:
    desk.task.handle(Techniques(Tail(hedge=adaptive_timeout())))


@pytest.mark.parametrize("reason", [no_room, drained, asked_to_pass_a_barrier, hedging])
def test_a_source_that_needs_acks_now_is_woken(desk: Desk, reason: Callable[[Desk], None]) -> None:
    reason(desk)
    emitted = desk.task.ledger.pending
    assert desk.runner.prepare_sleep()
    desk.link.send(ACKS, encode_folds(desk.ack(), system_clock()))
    assert desk.rung
    desk.runner.awake()
    desk.runner.step(1)
    assert desk.complete == emitted


def test_a_source_that_needs_acks_now_does_not_sleep_before_an_ack_that_is_there(desk: Desk) -> None:
    no_room(desk)
    emitted = desk.task.ledger.pending
    desk.link.send(ACKS, encode_folds(desk.ack(), system_clock()))
    assert not desk.runner.prepare_sleep()
    desk.runner.awake()
    desk.host.work(system_clock())
    assert desk.complete == emitted


def test_the_same_for_tasks_of_its_own_worker(desk: Desk) -> None:
    assert desk.runner.prepare_sleep()
    desk.host.receive_acks(desk.ack(), system_clock())
    assert desk.runner.idle and desk.host.has_work
    desk.runner.awake()
    desk.emit(ROOM)
    assert desk.runner.prepare_sleep()
    desk.host.receive_acks(desk.ack(), system_clock())
    assert not desk.runner.idle, "it has no room, and can go on now"
    desk.runner.awake()


def test_what_wants_an_answer_wakes_a_source_that_did_not_ask(desk: Desk) -> None:
    assert desk.runner.prepare_sleep()
    payload = encode_feedback([], system_clock())
    desk.link.send(FEEDBACK, payload)
    assert not desk.rung
    desk.link.send(FEEDBACK, payload, urgent=True)
    assert desk.rung
    desk.runner.awake()
