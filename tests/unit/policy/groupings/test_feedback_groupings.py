"""Load-aware groupings keep the law of their kind, and the kit finds those that do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

import tailrace as tr
from tailrace.clock import MILLISECOND_NS as MS
from tailrace.clock import SECOND_NS
from tailrace.policy import (
    HELD,
    Grouping,
    flink_scan,
    full_knowledge,
    latency_balanced,
    least_work,
    osg,
    partial_key,
    power_of_two,
    pull,
    storm_load_aware,
)
from tailrace.policy.groupings.baselines.storm_load_aware import DECK, Load
from tailrace.policy.groupings.feedback import Message
from tailrace.policy.groupings.least_work import LATE_NS
from tailrace.policy.groupings.load.in_flight import HALF_LIFE_NS
from tailrace.policy.groupings.load.reports import MAX_REPORT, MAX_SAMPLES, SAMPLES_EVERY_NS, Done, Reporter
from tailrace.policy.groupings.partial_key import two_tasks
from tailrace.testing import check_grouping

VALUES = [index * index % 61 for index in range(150)]


def itself(value: Any) -> Any:
    return value


@pytest.mark.parametrize(
    "grouping",
    [
        osg(itself, window=8, tolerance=10.0),  # stable at once, so that every state is passed through
        osg(itself, window=8, tolerance=10.0, pooled=True, idle_counts=True),
        osg(itself),
        least_work(itself),
        least_work(itself, capacity=4),
        power_of_two(),
        partial_key(itself),
        flink_scan(),
        storm_load_aware(period_ns=MS, capacity=4),
        pull(),
        latency_balanced(),
        latency_balanced(period_s=0.005, threshold=1.0, unit=0.3),  # so that shares move, down to none
        latency_balanced(fast=True),
        full_knowledge(),
        full_knowledge(cumulated=False),
    ],
    ids=lambda grouping: grouping.name,
)
def test_the_law_of_load_aware_groupings(grouping: Grouping) -> None:
    check_grouping(grouping, values=VALUES)
    assert not grouping.keyed


class _Half:
    """A chooser and a receiver that do nothing, to be broken in one place each."""

    def __init__(self) -> None:
        self.attached: list[tuple[int, Message]] = []
        self.outbox: list[tuple[int, Message]] = []

    def tick(self, now_ns: int) -> None: ...

    def choose_many(self, values: Sequence[Any]) -> Sequence[int]:
        return [0] * len(values)

    def hear(self, peer: int, message: Message, now_ns: int) -> Any:
        return ()

    def received(self, sender: int, attached: Message | None, now_ns: int) -> None: ...

    def received_many(self, *told: Any) -> None: ...

    def executed(self, *told: Any) -> None: ...

    def executed_many(self, *told: Any) -> None:
        self.executed(*told)

    def dropped(self, *told: Any) -> None: ...


class _HoldsForEver(_Half):
    def choose_many(self, values: Sequence[Any]) -> Sequence[int]:
        return [HELD] * len(values)


class _ReleasesTooMany(_Half):
    def hear(self, peer: int, message: Message, now_ns: int) -> Any:
        return (0,)


class _Talks(_Half):
    message: Message = ("hello",)
    peer = 0

    def executed(self, *told: Any) -> None:
        self.outbox.append((self.peer, self.message))


class _TalksToNobody(_Talks):
    peer = 99


class _SendsCode(_Talks):
    message = (lambda: None,)


class _SendsMuch(_Talks):
    message = (bytes(70_000),)


class _Answers(_Talks):
    def hear(self, peer: int, message: Message, now_ns: int) -> Any:
        self.outbox.append((0, message))
        return ()


class _AttachesToNothing(_Half):
    def hear(self, peer: int, message: Message, now_ns: int) -> Any:
        self.attached.append((0, message))
        return ()


@dataclass(frozen=True)
class _Made:
    chooser: type[_Half] = _Half
    receiver: type[_Half] = _Half
    name: str = "made"
    keyed: bool = False

    def bind(self, tasks: int, rng: Random) -> _Half:
        return self.chooser()

    def bind_receiver(self, task: int, tasks: int, senders: int, rng: Random) -> _Half:
        return self.receiver()


@pytest.mark.parametrize(
    ("grouping", "law"),
    [
        (_Made(_HoldsForEver), "a held tuple is released in the end"),
        (_Made(_ReleasesTooMany, _Talks), "no more tuples are released than are held"),
        (_Made(_AttachesToNothing, _Talks), "a message is attached to a tuple that leaves"),
        (_Made(receiver=_TalksToNobody), "a message goes to one of the senders"),
        (_Made(receiver=_SendsCode), "messages survive pickling"),
        (_Made(receiver=_SendsMuch), "messages are small"),
        (_Made(_Answers, _Answers), "the two sides come to rest"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_the_kit_finds_a_broken_half(grouping: Any, law: str) -> None:
    with pytest.raises(AssertionError, match=f"^grouping breaks its law: {law}: grouping=made .*tasks=1 senders=1"):
        check_grouping(grouping, tasks=(1,), values=VALUES[:20], seeds=(0,))


def _refused(declare: Callable[[tr.Stream], object]) -> str:
    numbers = tr.Topology("t").source("numbers", tr.from_iterable(range(3)))
    with pytest.raises(tr.TopologyError) as caught:
        declare(numbers)
    return str(caught.value)


def test_a_topology_refuses_what_only_a_simulation_can_know() -> None:
    assert _refused(lambda numbers: numbers.map("double", str, grouping=full_knowledge())) == (
        "this grouping knows what tuples cost beforehand, as only a simulation can: "
        "operator=double grouping=full_knowledge: did you mean least_work(…)?"
    )


def test_load_does_not_choose_among_the_tasks_of_a_committing_sink() -> None:
    assert _refused(lambda numbers: numbers.sink("out", tr.to_list(), tasks=2, grouping=pull())) == (
        "a sink that commits must get a re-emitted tuple in the task that knows it, so load cannot decide: "
        "operator=out grouping=pull: did you mean shuffle() or fields(…)?"
    )


def test_load_does_not_spread_state_that_nobody_merges() -> None:
    assert _refused(lambda numbers: numbers.map("count", str, stateful=True, grouping=partial_key(itself))) == (
        "a grouping by load spreads what belongs together over several tasks, and their state with it: "
        "operator=count grouping=partial_key stateful=True: did you mean fields(…), or is what the tasks keep merged "
        "further down, which mergeable=True says?"
    )
    numbers = tr.Topology("t").source("numbers", tr.from_iterable(range(3)))
    numbers.map("count", str, stateful=True, mergeable=True, tasks=2, grouping=partial_key(itself))


# -- reports


def test_reports_add_up_and_an_idle_task_reports_at_once() -> None:
    reporter = Reporter(2, itself, Random(1))
    for _ in range(3):
        reporter.received(0, None, 0)
    reporter.received(1, None, 0)
    reporter.executed(0, 7, None, 50, 3, SECOND_NS)  # the first report is due
    reporter.executed(0, 8, None, 60, 2, SECOND_NS + 1)  # too soon after it
    assert reporter.outbox == [(0, Done(1, (7, 50), 1))]
    reporter.outbox.clear()
    reporter.executed(1, 9, None, 70, 1, SECOND_NS + 2)
    reporter.executed(0, 8, None, 80, 0, SECOND_NS + 3)
    assert reporter.outbox == [(0, Done(2, (), 0)), (1, Done(1, (9, 70), 0))], "two samples wait for others"


def test_samples_travel_together_and_none_waits_for_long() -> None:
    reporter = Reporter(1, itself, Random(1))
    for place in range(1 + MAX_SAMPLES + 2):
        reporter.executed(0, place, None, 10, 0, SECOND_NS + place)
    reporter.executed(0, 9, None, 10, 0, SECOND_NS + MAX_SAMPLES + SAMPLES_EVERY_NS)
    samples = [message.samples[::2] for _, message in reporter.outbox if isinstance(message, Done)]
    assert samples == [(0,), (), (), (), (1, 2, 3, 4), (), (), (5, 6, 9)]


def test_a_dropped_tuple_is_counted_and_teaches_nothing() -> None:
    reporter = Reporter(2, itself, Random(1))
    for sender in (0, 0, 1):
        reporter.received(sender, None, 0)
    reporter.executed(0, 7, None, 50, 2, 1)
    reporter.dropped(0, None, 1, 2)
    reporter.dropped(1, None, 0, 3)
    assert reporter.outbox == [(0, Done(2, (7, 50), 0)), (1, Done(1, (), 0))]


def test_a_report_is_bounded() -> None:
    reporter = Reporter(1, itself, Random(1))
    for _ in range(MAX_REPORT):
        reporter.received(0, None, 0)
        reporter.executed(0, 7, None, 1, 5, 1)
    assert [message.tuples for _, message in reporter.outbox if isinstance(message, Done)] == [MAX_REPORT]


@pytest.mark.parametrize("senders", [1, 2])
def test_many_at_once_are_told_as_their_sum(senders: int) -> None:
    reporter = Reporter(senders, itself, Random(1))
    reporter.received_many(0, 4, 0)
    reporter.executed_many(0, [7, 8], [50, 60], 2, 1)
    assert reporter.outbox == [], "it is too soon, and more is queued"
    reporter.executed_many(0, [7, 8], [80, 90], 0, 2)
    assert reporter.outbox == [(0, Done(4, (7, 50, 8, 60, 7, 80, 8, 90), 0, late=True))]


def test_few_of_many_tell_how_long_they_took() -> None:
    reporter = Reporter(1, itself, Random(1))
    reporter.executed(0, 1, None, 10, 99, 1)
    reporter.executed_many(0, range(100), [20] * 100, 0, 2)
    for number in range(MAX_SAMPLES + 1):
        reporter.executed(0, number, None, 30, 1, 3)
    reporter.executed(0, 1, None, 30, 0, 3)
    told = [message for _, message in reporter.outbox if isinstance(message, Done)]
    assert [message.tuples for message in told] == [101, MAX_SAMPLES + 2]
    assert [len(message.samples) // 2 for message in told] == [MAX_SAMPLES, MAX_SAMPLES]
    assert told[0].samples[:2] == (1, 10) and set(told[0].samples[3::2]) == {20}


# -- tuples in flight


def test_power_of_two_prefers_the_task_with_fewer_in_flight() -> None:
    chooser = power_of_two().bind(2, Random(0))
    assert Counter(chooser.choose_many(range(100))) == {0: 50, 1: 50}
    chooser.hear(1, Done(20, (), 0), 0)
    assert list(chooser.choose_many(range(20))) == [1] * 20


def test_what_is_in_flight_is_forgotten_in_time() -> None:
    chooser = power_of_two().bind(2, Random(0))
    chooser.in_flight[0] = 80.0
    chooser.tick(HALF_LIFE_NS)
    assert chooser.in_flight == [40.0, 0.0]
    chooser.hear(0, Done(50, (), 0), HALF_LIFE_NS)
    assert chooser.in_flight[0] == 0.0, "a late report does not make a task emptier than empty"


def test_partial_key_sends_a_key_to_two_tasks_at_most() -> None:
    chooser = partial_key(itself).bind(8, Random(0))
    seen: dict[int, set[int]] = {}
    for value in VALUES * 3:
        seen.setdefault(value, set()).update(chooser.choose_many([value]))
    assert all(tasks <= set(two_tasks(value, 8)) for value, tasks in seen.items())
    assert max(map(len, seen.values())) == 2
    assert all(len(set(two_tasks(value, 8))) == 2 for value in range(1_000))


def test_partial_key_halves_the_burden_of_a_hot_key() -> None:
    choices = Counter(partial_key(itself).bind(8, Random(0)).choose_many(["hot"] * 100))
    assert sorted(choices.values()) == [50, 50]


def test_flink_scans_four_and_takes_the_first_empty_one() -> None:
    chooser = flink_scan().bind(8, Random(0))
    chooser._current = 0
    chooser.in_flight[:] = [0, 5, 4, 3, 2, 0, 0, 0]
    assert chooser.choose_many([1]) == [4], "the least of four, though the fifth is empty"
    assert chooser.choose_many([1]) == [5]


def test_storm_contracts_fast_and_grows_slowly() -> None:
    chooser = storm_load_aware(capacity=100).bind(2, Random(0))
    chooser.hear(0, Load(0.5), 0)
    chooser.tick(SECOND_NS)
    assert Counter(chooser.choose_many(range(DECK)))[0] == pytest.approx(DECK * 90 / 190, abs=2)
    chooser.hear(0, Load(0.04), SECOND_NS)
    chooser.tick(2 * SECOND_NS)
    assert Counter(chooser.choose_many(range(DECK)))[0] == pytest.approx(DECK * 91 / 191, abs=2)


# -- oracle


def test_full_knowledge_balances_sums_and_least_work_left_balances_what_is_left() -> None:
    paper, ours = full_knowledge().bind(2, Random(0)), full_knowledge(cumulated=False).bind(2, Random(0))
    for chooser, expected in ((paper, [0, 1, 1, 1, 1]), (ours, [0, 1, 0, 1, 0])):
        given = []
        for cost_ns in (100, 1, 10, 10, 10):  # each arrives after all before it are done
            chooser.tick(1_000 * len(given))
            given += chooser.choose_many([cost_ns])
        assert given == expected


# -- least work


def test_least_work_learns_prices_and_strikes_off_what_is_done() -> None:
    chooser = least_work(itself).bind(2, Random(0))
    chooser.hear(0, Done(0, (hash_of("slow"), 100 * MS, hash_of("fast"), 1 * MS) * 8, 0), 0)
    chooser.hear(1, Done(0, (hash_of("slow"), 100 * MS, hash_of("fast"), 1 * MS) * 8, 0), 0)
    chooser.tick(0)
    assert list(chooser.choose_many(["slow", "fast", "fast", "fast", "slow", "fast"])) == [0, 1, 1, 1, 1, 0]
    chooser.hear(0, Done(2, (), 0), MS)
    chooser.tick(MS)
    assert chooser.choose_many(["slow"]) == [0]


def test_least_work_avoids_a_task_that_is_late() -> None:
    chooser = least_work(itself).bind(2, Random(0))
    for task in (0, 1):
        chooser.hear(task, Done(0, (hash_of("a"), 10 * MS) * 8, 0), 0)
    chooser.tick(0)
    assert list(chooser.choose_many(["a", "a"])) == [0, 1]
    chooser.hear(1, Done(1, (), 0), 10 * MS)
    chooser.tick(30 * MS)
    assert list(chooser.choose_many(["a", "a"])) == [1, 1], "20 ms late, so 20 more are expected"


@pytest.mark.parametrize(("late", "choice"), [(False, 1), (True, 0)])
def test_least_work_expects_a_task_that_reports_late_to_have_gone_on(late: bool, choice: int) -> None:
    chooser = least_work(itself).bind(2, Random(0))
    for task in (0, 1):
        chooser.hear(task, Done(0, (hash_of("a"), 10 * MS) * 8, 0), 0)
    chooser.tick(0)
    assert list(chooser.choose_many(["a"] * 6)) == [0, 1] * 3
    chooser.hear(0, Done(1, (), 0, late), 10 * MS)
    chooser.hear(1, Done(1, (), 0), 15 * MS)
    chooser.tick(29 * MS)  # 9 ms late with the second of three; 4 ms late
    assert list(chooser.choose_many(["a"])) == [choice]


def test_least_work_does_not_wait_for_ever_for_a_task_that_reports_late() -> None:
    chooser = least_work(itself).bind(2, Random(0))
    for task in (0, 1):
        chooser.hear(task, Done(0, (hash_of("a"), 10 * MS) * 8, 0), 0)
    chooser.tick(0)
    assert list(chooser.choose_many(["a"] * 4)) == [0, 1] * 2
    chooser.hear(0, Done(1, (), 0, late=True), MS)
    chooser.hear(1, Done(1, (), 0), 2 * LATE_NS)
    chooser.tick(2 * LATE_NS)
    assert list(chooser.choose_many(["a"])) == [1]


def test_the_number_of_a_key_is_the_same_in_every_process() -> None:
    keys = [7, -7, True, 2**70, "7", b"7", 7.5, ("a", 7)]
    half = least_work(itself).bind_receiver(0, 1, 1, Random(1))
    for place, key in enumerate(keys):
        half.executed(0, key, None, MS, 0, (1 + place) * SECOND_NS)
    items = [message.samples[0] for _, message in half.outbox if isinstance(message, Done)]
    assert items == [7, -7, *map(hash_of, keys[2:])]


def test_least_work_counts_what_others_have_queued() -> None:
    chooser = least_work(itself).bind(2, Random(0))
    chooser.hear(0, Done(0, (hash_of("a"), 10 * MS), 5), 0)
    chooser.tick(0)
    assert list(chooser.choose_many(["a"] * 4)) == [1] * 4


def hash_of(key: Any) -> int:
    return tr.policy.stable_hash(key)
