"""Pull by a sender that is alone: who gets what is in line, who gets one ahead, and who does not."""

from __future__ import annotations

from random import Random

import pytest

from tailrace.clock import MICROSECOND_NS, MILLISECOND_NS
from tailrace.core.bundles import FEEDBACK, MESSAGE, FeedbackMessage
from tailrace.core.feedback.budget import FeedbackBudget
from tailrace.core.feedback.receiver import FeedbackReceiver
from tailrace.core.plan.planner import make_plan
from tailrace.metrics.counters import TaskCounters
from tailrace.policy import Grouping, latency_balanced, power_of_two, pull
from tailrace.policy.groupings.api import FIRST, HELD
from tailrace.policy.groupings.feedback import Message, wants_answer
from tailrace.policy.groupings.load.reports import Done
from tailrace.policy.groupings.osg import Reply
from tailrace.policy.groupings.pull.lone_sender import MAX_AHEAD, MAX_RUN, LoneReceiver, LoneSender, Ran
from tailrace.policy.groupings.pull.receiver import Credit, Held
from tailrace.runtime.connectors import from_iterable, to_call
from tailrace.runtime.links.frames import decode_feedback, encode_feedback
from tailrace.testing.clock import ManualClock
from tailrace.topology import Topology

MS = MILLISECOND_NS
TRIP_NS = 100 * MICROSECOND_NS


def choose(alone: LoneSender, now_ns: int) -> int:
    return alone.choose_many(1, now_ns)[0]


def sender(tasks: int, duration_ns: int) -> LoneSender:
    """That has seen a call and knows how long it took, trip aside."""
    alone = LoneSender(tasks)
    task = choose(alone, 0)
    assert list(alone.hear(task, Ran(1, duration_ns), duration_ns + TRIP_NS)) == []
    return alone


def test_a_tuple_goes_to_whoever_is_idle_and_waits_if_nobody_is() -> None:
    alone = LoneSender(3)
    assert sorted(choose(alone, 0) for _ in range(3)) == [0, 1, 2]
    assert [choose(alone, 0) for _ in range(2)] == [HELD, HELD]
    assert next(iter(alone.hear(1, Ran(1, 8 * MS), 8 * MS))) == 1


def test_while_two_wait_whoever_has_run_longest_gets_the_first_of_them() -> None:
    alone = sender(3, 8 * MS)
    busy = [choose(alone, at * MS) for at in (10, 11, 12)]
    assert [choose(alone, 13 * MS) for _ in range(5)] == [
        HELD,
        *(FIRST - task for task in busy),
        HELD,
    ]  # no task gets two ahead
    assert list(alone.hear(busy[1], Ran(1, 3 * MS), 14 * MS)) == [busy[1]]  # it has begun on what it had ahead
    assert list(alone.hear(busy[1], Ran(2, 3 * MS), 17 * MS)) == [busy[1]]


def test_nothing_goes_behind_a_call_that_seems_stuck() -> None:
    alone = sender(2, 8 * MS)
    stuck, other = choose(alone, 10 * MS), choose(alone, 10 * MS)
    assert list(alone.hear(other, Ran(1, 8 * MS), 20 * MS)) == []
    assert choose(alone, 20 * MS) == other
    assert [choose(alone, 30 * MS) for _ in range(3)] == [HELD, FIRST - other, HELD]
    assert list(alone.hear(other, Ran(2, 16 * MS), 40 * MS)) == [other]
    assert [choose(alone, 41 * MS) for _ in range(2)] == [FIRST - other, HELD]
    assert list(alone.hear(stuck, Ran(1, 32 * MS), 42 * MS)) == [stuck]


def test_many_go_ahead_where_calls_are_shorter_than_trips() -> None:
    for duration_ns, most in ((TRIP_NS // 10, 12), (100, 1 + MAX_AHEAD)):
        alone = sender(1, duration_ns)
        choices = [choose(alone, MS) for _ in range(2 * MAX_AHEAD)]
        assert choices[:3] == [0, HELD, FIRST - 0]
        assert abs(1 + choices.count(FIRST) - most) <= 1


def test_a_task_tells_of_all_it_was_told_of_and_not_too_often() -> None:
    task = LoneReceiver()
    assert task.outbox.pop() == (0, Ran(0, 0))
    for number in range(1000):
        task.executed(0, number, None, 1000, 1, MS + number * 1000)  # a millisecond in all, and never idle
    task.dropped(0, None, 0, 2 * MS)
    assert len(task.outbox) <= 3 + 1000 // MAX_RUN
    assert (sum(ran.tuples for _, ran in task.outbox), sum(ran.busy_ns for _, ran in task.outbox)) == (
        1001,
        1000 * 1000,
    )


def test_what_came_before_the_sender_knew_it_is_alone_is_not_forgotten() -> None:
    half = pull().bind(2, Random(1))
    half.tick(0)
    assert half.choose_many(["a", "b", "c"]) == [HELD] * 3
    assert list(half.hear(0, Ran(0, 0), 5)) == [0, 1]
    assert list(half.hear(1, Ran(0, 0), 5)) == []
    assert list(half.hear(1, Ran(1, 8 * MS), 9 * MS)) == [1]


def test_only_a_grant_must_be_answered_by_a_sender_with_nothing_in_line() -> None:
    assert [wants_answer(said) for said in (Credit(False), Credit(True), Ran(1, 1), Done(1, (), 0))] == [
        True,
        *[False] * 3,
    ]
    half = pull().bind(2, Random(1))
    assert list(half.hear(0, Credit(False), 5)) == [] and half.outbox == [(0, Held(0, 0, token=True, returned=1))]
    half.tick(6)
    assert half.choose_many(["a"]) == [0]  # by what was kept
    assert list(half.hear(1, Credit(False, ahead=True), 7)) == []
    assert half.outbox.pop() == (1, Held(0, 0, returned=1)) and half.choose_many(["b"]) == [HELD]


@pytest.mark.parametrize(
    ("grouping", "senders", "patient"),
    [
        (pull(), 1, True),
        (pull(), 2, False),
        (power_of_two(), 1, True),
        (power_of_two(), 2, False),
        (latency_balanced(), 1, False),
    ],
)
def test_arrivals_are_told_before_a_call_unless_nobody_minds(grouping: Grouping, senders: int, patient: bool) -> None:
    topology = Topology("t")
    source = topology.source("s", from_iterable(range(3)), tasks=senders)
    source.map("work", str, grouping=grouping).sink("out", to_call(print))
    plan = make_plan(topology, 1)
    halves = FeedbackReceiver(
        plan, senders, plan.edges[:1], TaskCounters("work", 0, 0), FeedbackBudget(), ManualClock(1), Random(1)
    )
    assert (halves.arrivals_can_wait, halves.has_one_sender) == (patient, senders == 1)


class Own(tuple[int, ...]):
    """A message of a grouping that the engine has not heard of."""


@pytest.mark.parametrize("message", [Done(1, (2, 3), 0), Ran(1, 5), Credit(True), Held(1, 2), Reply(1, 2.0), Own((7,))])
def test_notes_come_out_as_they_went_in(message: Message) -> None:
    notes: list[FeedbackMessage] = [(FEEDBACK, 3, 1, 7, message), (FEEDBACK, 3, 2, 7, Ran(0, 0))]
    found, sent_ns = decode_feedback(memoryview(encode_feedback(notes, 7)))
    assert sent_ns == 7
    assert found == notes
    assert [type(note[MESSAGE]) for note in found] == [type(message), Ran]
