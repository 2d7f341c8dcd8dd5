"""A half that is told of many tuples at once tells what it would have told of each."""

from __future__ import annotations

from collections import Counter, deque
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.clock import MICROSECOND_NS, MILLISECOND_NS
from tailrace.policy import FeedbackGrouping, latency_balanced, osg, power_of_two, pull
from tailrace.policy.groupings.api import HELD
from tailrace.policy.groupings.feedback import Receiver
from tailrace.policy.groupings.latency_balanced import Ask
from tailrace.policy.groupings.load.sampling import some_of
from tailrace.policy.groupings.pull.receiver import LONGEST_STAY_NS, STAY_NS, Credit, Held, Revoke
from tailrace.sim.load.policies import itself

MS = MILLISECOND_NS
SENDERS = 2

Batch = tuple[int, int, int]
"""(sender, tuples that come and are run, when)"""

batches = st.lists(st.tuples(st.integers(0, SENDERS - 1), st.integers(1, 40)), min_size=1, max_size=12)


def receiver(grouping: FeedbackGrouping, senders: int = SENDERS) -> Receiver:
    half = grouping.bind_receiver(0, 3, senders, Random(1))
    half.outbox.clear()
    return half


def told(half: Receiver, story: list[Batch], many: bool) -> list[tuple[int, Any]]:
    """All that a half says of batches that come and are run at once."""
    said: list[tuple[int, Any]] = []
    for sender, tuples, at_ns in story:
        durations_ns = [MICROSECOND_NS * (1 + place) for place in range(tuples)]
        if many:
            half.received_many(sender, tuples, at_ns)
            half.executed_many(sender, range(tuples), durations_ns, 0, at_ns + MS // 2)
        else:
            for _ in range(tuples):
                half.received(sender, None, at_ns)
            for place, duration_ns in enumerate(durations_ns):
                half.executed(sender, place, None, duration_ns, tuples - 1 - place, at_ns + MS // 2)
        said += half.outbox
        half.outbox.clear()
    return said


def story_of(drawn: list[tuple[int, int]], senders: int = SENDERS) -> list[Batch]:
    return [(sender % senders, tuples, MS * (1 + place)) for place, (sender, tuples) in enumerate(drawn)]


@given(drawn=batches)
def test_counts_add_up_the_same(drawn: list[tuple[int, int]]) -> None:
    counts: list[Counter[int]] = []
    for many in (False, True):
        counts.append(Counter())
        for sender, done in told(receiver(power_of_two()), story_of(drawn), many):
            counts[-1][sender] += done.tuples
    assert counts[0] == counts[1]


@given(drawn=batches)
def test_a_lone_sender_is_told_the_same_sums(drawn: list[tuple[int, int]]) -> None:
    sums = []
    for many in (False, True):
        said = told(receiver(pull(), senders=1), story_of(drawn, senders=1), many)
        sums.append((sum(ran.tuples for _, ran in said), sum(ran.busy_ns for _, ran in said)))
    assert sums[0] == sums[1]


@given(drawn=batches)
def test_latencies_add_up_the_same(drawn: list[tuple[int, int]]) -> None:
    answers = []
    for many in (False, True):
        half = receiver(latency_balanced())
        told(half, story_of(drawn), many)
        half.hear(0, Ask(), MS)
        answers.append(half.outbox.pop())
    assert answers[0] == answers[1]


@given(shares=st.lists(st.integers(1, 7), min_size=1, max_size=9))
def test_latencies_of_tuples_that_came_together_and_were_run_apart(shares: list[int]) -> None:
    """In whatever parts they are run: sums of latencies know of each tuple when it came."""
    whole = sum(shares)
    half = receiver(latency_balanced())
    half.received_many(0, whole // 2, MS)
    half.received_many(1, whole - whole // 2, 2 * MS)
    for place, share in enumerate(shares):
        half.executed_many(0, range(share), [1] * share, 0, 3 * MS + place)
    half.hear(0, Ask(), MS)
    ((_, took),) = half.outbox
    ended_ns = sum(share * (3 * MS + place) for place, share in enumerate(shares))
    came_ns = whole // 2 * MS + (whole - whole // 2) * 2 * MS
    assert took == (whole, ended_ns - came_ns)


@given(count=st.integers(1, 500), most=st.integers(1, 20), seed=st.integers(0, 9))
def test_a_sample_is_spread_over_all_and_no_larger_than_asked_for(count: int, most: int, seed: int) -> None:
    places = list(range(count)[some_of(count, most, Random(seed))])
    assert 1 <= len(places) <= most
    assert len(places) == count or len(places) >= most // 2
    assert all(later - sooner == places[1] - places[0] for sooner, later in pairwise(places))


def test_what_is_sampled_does_not_keep_step_with_the_stream() -> None:
    rng = Random(3)
    seen = {value for _ in range(200) for value in list(range(64))[some_of(64, 8, rng)]}
    assert seen == set(range(64))


def test_a_sketch_learns_of_all_contents_though_it_looks_at_some() -> None:
    half = receiver(osg(itself, window=64), senders=1)
    values = [place % 4 for place in range(64)]
    for turn in range(1, 400):
        half.executed_many(0, values, [MS * (1 + value) for value in values], 0, turn * MS)
        if half.outbox:
            break
    else:
        pytest.fail("it never became stable")
    ((_, matrices),) = half.outbox
    assert 64 <= max(matrices.content.counts) <= 64 * 8, "a sample, not all"
    means_ns = {total // count for count, total in zip(*matrices.content, strict=True) if count}
    assert means_ns >= {MS, 2 * MS, 3 * MS, 4 * MS}


# -- pull


def test_a_task_grants_at_once_what_it_has_room_for() -> None:
    half = receiver(pull())
    half.received(0, Held(0, 0, token=True), MS)
    assert half.outbox == [(1, Revoke())]
    half.outbox.clear()
    half.executed(0, "a", None, MS * 6 // 10, 0, MS)
    half.hear(0, Held(50, MS), MS)
    assert half.outbox == [(0, Credit(False))], "one, before it knows how long a trip takes"
    half.outbox.clear()
    half.received(0, Held(49, MS), 2 * MS)
    half.executed(0, "b", None, MS * 6 // 10, 0, 2 * MS)
    assert half.outbox == [(0, Credit(False, tuples=3))], "a trip is as long as one call and a bit"


class Open:
    """A task with calls so short that it gives standing credits, and who has heard what it said so far."""

    def __init__(self) -> None:
        self.half: Any = receiver(pull())
        self.half._round_trip_ns, self.half._duration_ns = float(MS), MS / 8
        self.half.received(0, Held(0, 0, token=True), MS)
        self.run(1, MS // 8)

    def run(self, tuples: int, each_ns: int) -> None:
        self.half.executed_many(0, range(tuples), [each_ns] * tuples, 0, 2 * MS)

    def said(self) -> list[tuple[int, Any]]:
        said = list(self.half.outbox)
        self.half.outbox.clear()
        return said


def test_a_task_with_very_short_calls_stands_open() -> None:
    task = Open()
    assert task.said() == [(0, Credit(True, tuples=5, standing=True)), (1, Credit(True, tuples=4, standing=True))]
    task.half.received_many(0, 3, MS)
    task.half.hear(1, Held(9, MS), MS)
    assert task.said() == [], "three are here and two may come, whoever waits"
    task.run(2, MS // 8)
    assert task.said() == [], "not for so few"
    task.run(1, MS // 8)
    assert task.said() == [(0, Credit(True, tuples=3, standing=True))]


def test_a_task_that_stood_open_grants_nothing_before_it_has_all_its_tokens_back() -> None:
    task = Open()
    task.said()
    task.half.hear(1, Held(2, MS), MS)
    task.half.received_many(0, 2, MS)
    task.run(1, 100 * MS)
    task.run(1, 100 * MS)
    assert task.said() == [(0, Revoke(answer=True)), (1, Revoke(answer=True))]
    task.half.received_many(1, 1, MS)  # it was on its way
    task.half.executed_many(1, range(1), [100 * MS], 0, 2 * MS)
    assert task.said() == []
    task.half.hear(1, Held(1, MS, revoked=True), 3 * MS)
    assert task.said() == [(1, Credit(False))]
    task.half.hear(0, Held(0, 0, revoked=True), 3 * MS)
    assert task.said() == [], "it is busy, and has none to revoke"


def test_what_is_sent_to_a_task_that_stands_open_says_nothing() -> None:
    half = pull().bind(2, Random(1))
    half.tick(MS)
    assert list(half.hear(0, Credit(True, tuples=4, standing=True), MS)) == []
    assert list(half.hear(1, Credit(True, tuples=2, standing=True), MS)) == []
    assert list(half.choose_many("abcde")) == [0, 1, 0, 1, 0], "in turn"
    assert not half.attached
    half.hear(0, Revoke(answer=True), MS)
    assert half.credits == 0 and half.outbox == [(0, Held(0, 0, revoked=True))]
    assert list(half.hear(0, Credit(True), MS)) == []
    assert list(half.choose_many("fg")) == [0, HELD] and half.attached == [(0, Held(0, 0, token=True))]


class LateTask:
    """A task with calls of a millisecond, which is told of each so late, and answered by senders at once."""

    def __init__(self, round_trip_ns: float) -> None:
        self.half: Any = receiver(pull())
        self.half._round_trip_ns, self.half._duration_ns = round_trip_ns, float(MS)
        self.now_ns = MS

    def run(self, late_ns: int, calls: int = 50) -> bool:
        """Whether it gives standing credits afterwards."""
        self.half.late_ns = late_ns
        for _ in range(calls):
            self.now_ns += MS
            self.half.received(0, Held(0, 0, token=True), self.now_ns)
            self.half.executed(0, 0, None, MS, 0, self.now_ns)
            said = list(self.half.outbox)
            self.half.outbox.clear()
            for to, message in said:
                if isinstance(message, Revoke) and message.answer:
                    self.half.hear(to, Held(0, 0, revoked=True), self.now_ns)
        return bool(self.half._standing)


@pytest.mark.parametrize("round_trip_ns", [0.0, MS / 2])
def test_a_task_that_is_told_late_gives_standing_credits_for_a_while(round_trip_ns: float) -> None:
    task = LateTask(round_trip_ns)
    assert not task.run(0)
    assert not task.run(MS // 2), "it waits less for that than calls take"
    assert task.run(3 * MS)
    opened_ns = task.now_ns
    assert task.run(0), "less than a second ago it was told late"
    task.now_ns = opened_ns + STAY_NS
    assert not task.run(0)
    assert task.run(3 * MS)
    opened_ns = task.now_ns
    task.now_ns = opened_ns + STAY_NS
    assert task.run(0), "to close was too early the last time"
    task.now_ns = opened_ns + 2 * STAY_NS
    assert not task.run(0)
    task.now_ns += 9 * STAY_NS
    assert task.run(3 * MS)
    task.now_ns += STAY_NS
    assert not task.run(0), "it had been closed for long"


def test_a_task_that_has_to_open_again_and_again_stays_open_for_some_seconds_at_most() -> None:
    task = LateTask(MS / 2)
    for _ in range(9):
        task.now_ns += task.half._stay_ns
        task.run(0)
        assert task.run(3 * MS)
    assert task.half._stay_ns == LONGEST_STAY_NS


@pytest.mark.parametrize(("late_ns", "room"), [(3 * MS, 2), (9 * MS, 4)])
def test_a_task_makes_room_for_what_it_runs_before_it_is_told(late_ns: int, room: int) -> None:
    task = LateTask(0.0)
    task.run(late_ns, 200)
    assert task.half._tokens_out[1] == room


def test_nobody_tells_a_task_that_stands_open_who_waits() -> None:
    half = pull().bind(3, Random(1))
    half.tick(MS)
    assert list(half.hear(0, Credit(True, standing=True), MS)) == []
    assert list(half.choose_many("abc")) == [0, HELD, HELD]
    assert [to for to, _ in half.outbox] == [1, 2]
    half.outbox.clear()
    assert list(half.hear(0, Credit(True, standing=True), 9 * MS)) == [0] and not half.attached
    assert [to for to, _ in half.outbox] == [1, 2], "it is time to tell those again"
    half.outbox.clear()
    half.hear(0, Revoke(answer=True), 9 * MS)
    assert half.outbox == [(0, Held(1, 8 * MS, revoked=True))]


def test_a_sender_returns_what_it_has_nothing_for() -> None:
    half = pull().bind(2, Random(1))
    half.tick(0)
    assert list(half.choose_many(["a", "b"])) == [HELD, HELD]
    half.outbox.clear()
    assert list(half.hear(0, Credit(False, ahead=True, tuples=5), MS)) == [0, 0]
    assert half.attached == [(1, Held(0, 0))]
    assert (0, Held(0, 0, returned=3)) in half.outbox and half.credits == 0


@given(drawn=batches)
def test_what_was_granted_comes_or_is_returned_and_then_all_have_tokens(drawn: list[tuple[int, int]]) -> None:
    half = receiver(pull())
    half._round_trip_ns, half._duration_ns = float(MS), MS * 0.6  # type: ignore[attr-defined]
    tokens = set(range(SENDERS))
    granted: deque[tuple[int, int]] = deque()

    def read() -> None:
        for to, said in half.outbox:
            if said == Revoke():
                tokens.remove(to)
            elif said.token:
                tokens.add(to)
            else:
                granted.append((to, said.tuples))
        half.outbox.clear()

    for place, (sender, waiting) in enumerate(drawn):
        half.hear(sender, Held(waiting, MS), place * MS)
        read()
        assert not granted or not tokens, "who is busy has no tokens out"
        while granted:
            to, tuples = granted.popleft()
            come = tuples - tuples // 3
            half.received_many(to, come, place * MS)
            if come < tuples:
                half.hear(to, Held(0, 0, returned=tuples - come), place * MS)
            read()
            half.executed_many(to, range(come), [MS * 6 // 10] * come, 0, place * MS)
            read()
    assert tokens == set(range(SENDERS))
