"""A sender hands over or sends what its task has left, holds back in time, and drops nothing silently."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from functools import reduce
from operator import xor
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from kit.neighbours import NobodyHere
from kit.tasks import context_of, task_of
from tailrace.core.bundles import new_bundle
from tailrace.core.feedback.sender import MAX_HELD
from tailrace.core.plan.planner import make_plan
from tailrace.core.protocol.ledger import LedgerLimits
from tailrace.core.protocol.messages import Member
from tailrace.core.tasks.base import PlainTask
from tailrace.errors import TaskError
from tailrace.policy import broadcast, power_of_two, pull
from tailrace.policy.groupings.pull.receiver import Credit
from tailrace.runtime.execution.runner import Runner
from tailrace.runtime.execution.sender import LANE_BUNDLES, Sender
from tailrace.runtime.links import frames as wire
from tailrace.runtime.links.channels import Channel
from tailrace.runtime.links.frames import FrameReader, decode_bundles
from tailrace.runtime.links.link import OutLink
from tailrace.sim.faults.topologies import SimSink, SimSource
from tailrace.topology import Topology


class OtherWorker(NobodyHere):
    """All other tasks live in another worker, at the far end of a socket pair."""

    def __init__(self) -> None:
        self.near_end, self.far_end = socket.socketpair()
        self.far_end.setblocking(False)
        self.renewed = False
        self.there = True

    def member(self, worker: int) -> Member | None:
        return Member(1, ("nowhere", 0)) if self.there else None

    def connect(self, link: OutLink, member: Member, done: Callable[[Channel | None], None]) -> None:
        done(Channel(self.near_end.dup()) if link.kind == "bundles" else None)

    def lost_link(self, worker: int, epoch: int) -> None:
        raise AssertionError("no link should break")

    def renew(self) -> None:
        self.renewed = True


class Desk:
    """A map task whose results go to a sink elsewhere, of two tasks if they are chosen by load."""

    def __init__(self, on_error: str = "fail", grouping: Any = None) -> None:
        topology = Topology("t")
        stream = topology.source("s", SimSource("s", 1)).map("m", lambda value: value, on_error=on_error)
        if grouping is None:
            stream.sink("out", SimSink())
        else:
            stream.sink("out", SimSink(committing=False), tasks=2, grouping=grouping)
        plan = make_plan(topology, 2)
        context = context_of(plan, limits=LedgerLimits(10, 1), seed=3)
        task = task_of(context, function=lambda value: value)
        assert isinstance(task, PlainTask)
        self.task = task
        self.world = OtherWorker()
        self.sender = Sender(task, self.world, lambda action: action())  # type: ignore[arg-type]
        self.sender.moved_to(Runner("test", lambda error: None))

    def emit(self, *values: Any) -> None:
        for offset, value in enumerate(values):
            self.task.receive([new_bundle(offset, 0, offset, 1, [7 + offset], [value])])
        self.task.run(10)

    def arrived(self) -> list[Any]:
        frames = FrameReader().feed(self.world.far_end.recv(1 << 22))
        return [value for _, _, payload in frames for bundle in decode_bundles(payload) for value in bundle[5]]


def test_what_is_left_is_sent_as_one_frame() -> None:
    desk = Desk()
    desk.emit(1, "two", [3])
    assert not desk.sender.flush()
    assert desk.arrived() == [1, "two", [3]]


def test_a_tuple_that_cannot_be_pickled_ends_the_run() -> None:
    desk = Desk()
    desk.emit(1, Random(), (x for x in []), 4)
    with pytest.raises(TaskError, match=r"a tuple cannot be sent: from=m to=out cause=TypeError: .*generator"):
        desk.sender.flush()


def test_a_tuple_that_cannot_be_pickled_is_skipped_and_acknowledged() -> None:
    desk = Desk(on_error="skip")
    desk.emit(1, (x for x in []), 3)
    before = dict(desk.task.acks[0].both)
    desk.sender.flush()
    assert desk.arrived() == [1, 3]
    assert desk.task.wirings[0].counters.skipped == 1
    changed = {emission for emission, ids in desk.task.acks[0].both.items() if ids != before.get(emission)}
    assert changed == {1}, "the bundle that was dropped counts as done"


def test_large_tuples_are_held_back_by_bytes() -> None:
    desk = Desk()
    desk.emit(bytes(400_000))
    desk.sender.flush()
    assert desk.sender.limit < 8, "a megabyte is not many of these"
    desk.emit(*[bytes(400_000) for _ in range(10)])
    assert desk.sender.flush(), "ten large tuples wait, which is too much"


def test_small_tuples_are_held_back_by_number() -> None:
    desk = Desk()
    for _ in range(40):
        desk.emit(1)
        desk.sender.flush()
        desk.arrived()
    assert desk.sender.limit == LANE_BUNDLES


# -- what is too large for a frame


@pytest.fixture
def small_frames() -> Iterator[int]:
    with patch.object(wire, "MAX_FRAME", 4000):
        yield 4000


def test_a_bundle_that_is_too_large_for_a_frame_is_divided(small_frames: int) -> None:
    """Its parts make up its ack id, so that it is done when all of them are."""
    desk = Desk(on_error="skip")
    values = [bytes([number]) * 500 for number in range(20)]
    desk.task.receive([new_bundle(5, 0, 0, 1, list(range(20)), values)])
    desk.task.run(10)
    (bundle,) = (bundle for lane in desk.task.lanes for bundle in lane.bundles)
    before = dict(desk.task.acks[0].both)
    desk.sender.flush()
    frames = list(FrameReader().feed(desk.world.far_end.recv(1 << 20)))
    parts = [part for _, _, payload in frames for part in decode_bundles(payload)]
    assert len(frames) > 2 and [value for part in parts for value in part[5]] == values
    assert reduce(xor, (part[3] for part in parts)) == bundle[3] and len({part[3] for part in parts}) == len(parts)
    assert desk.task.acks[0].both == before and desk.task.wirings[0].counters.skipped == 0


def test_one_tuple_that_is_too_large_is_refused_and_the_others_are_sent(small_frames: int) -> None:
    desk = Desk(on_error="skip")
    desk.task.receive([new_bundle(5, 0, 0, 1, [0, 1, 2], [b"a", bytes(5000), b"c"])])
    desk.task.run(10)
    desk.sender.flush()
    assert desk.arrived() == [b"a", b"c"] and desk.task.wirings[0].counters.skipped == 1


def test_a_tuple_that_is_too_large_says_so(small_frames: int) -> None:
    desk = Desk()
    desk.emit(bytes(5000))
    with pytest.raises(TaskError, match=r"frame too large: bytes=5\d+ limit=4000; is one tuple that big\?"):
        desk.sender.flush()


def test_a_tuple_that_cannot_be_broadcast_is_one_error() -> None:
    """However many tasks elsewhere do not get it."""
    topology = Topology("t")
    stream = topology.source("s", SimSource("s", 1)).map("m", lambda value: value, on_error="skip")
    stream.map("all", lambda value: value, tasks=6, grouping=broadcast()).sink("out", SimSink())
    plan = make_plan(topology, 2)
    context = context_of(plan, limits=LedgerLimits(10, 1), seed=3)
    task = task_of(context, function=lambda value: value)
    world = OtherWorker()
    sender = Sender(task, world, lambda action: action())  # type: ignore[arg-type]
    sender.moved_to(Runner("test", lambda error: None))
    task.receive([new_bundle(0, 0, 0, 1, [7], [(x for x in [])])])
    assert isinstance(task, PlainTask)
    task.run(10)
    assert len(task.lanes) == 6
    sender.flush()
    assert task.wirings[0].counters.skipped == 1 and not any(lane.bundles for lane in task.lanes)


# -- load-aware edges


def test_feedback_is_weighed() -> None:
    desk = Desk(grouping=pull())
    line = next(iter(desk.task.feedback_edges.values()))
    for task in (0, 1):
        line.hear(task, 0, Credit(True, False))
    desk.emit("tuple")
    desk.sender.flush()
    counters = desk.task.counters[0]
    assert desk.arrived() == ["tuple"]
    assert counters.feedback_messages == 1 and 10 < counters.feedback_bytes < 200


def test_notes_for_nobody_are_dropped_and_tuples_wait() -> None:
    desk = Desk(grouping=pull())
    desk.world.there = False
    line = next(iter(desk.task.feedback_edges.values()))
    line.hear(0, 0, Credit(True, False))
    desk.emit("sent", "held")
    assert [len(lane.bundles) for lane in desk.task.lanes] == [2, 1]
    desk.sender.flush()
    assert [[bundle[5] for bundle in lane.bundles] for lane in desk.task.lanes] == [[["sent"]], []]


def test_a_tuple_that_never_leaves_renews_what_was_told_of_it() -> None:
    desk = Desk(on_error="skip", grouping=power_of_two())
    desk.emit(1, (x for x in []), 3)
    for lane in desk.task.lanes[1:]:
        desk.task.lanes[0].bundles += lane.take()
    desk.sender.flush()
    assert sorted(desk.arrived()) == [1, 3] and desk.world.renewed


def test_a_full_line_holds_its_task_back() -> None:
    desk = Desk(grouping=pull())
    desk.world.there = False
    desk.emit(*range(MAX_HELD - 1))
    assert not desk.sender.flush()
    desk.emit("one more")
    assert desk.sender.flush()
