"""Balancing by latency: the shares, the paper's rule by hand, and what both rules make of a slow task."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.clock import MILLISECOND_NS as MS
from tailrace.clock import SECOND_NS
from tailrace.errors import OptionError
from tailrace.policy import latency_balanced
from tailrace.policy.groupings.latency_balanced import Ask, LatencyBalanced, Took
from tailrace.policy.groupings.latency_balanced_fast import PERIOD_NS, QUIET, LatencyBalancedFast
from tailrace.policy.groupings.load.reports import Done
from tailrace.policy.groupings.load.shares import Shares
from tailrace.sim import Exponential, Model, Node, Poisson, Report, simulate

TASKS = 5


# -- shares


@given(st.lists(st.integers(0, 20), min_size=1, max_size=8).filter(any), st.integers(0, 7), st.integers(1, 400))
def test_no_task_is_a_whole_tuple_ahead_of_its_share(weights: list[int], first: int, tuples: int) -> None:
    shares = Shares(len(weights), first % len(weights))
    shares.of = [weight / sum(weights) for weight in weights]
    counts = [0] * len(weights)
    for sent in range(1, tuples + 1):
        counts[shares.next()] += 1
        for count, share in zip(counts, shares.of, strict=True):
            assert count < sent * share + 1 + 1e-6


@given(st.integers(1, 9), st.integers(0, 8))
def test_equal_shares_are_round_robin(tasks: int, first: int) -> None:
    shares = Shares(tasks, first % tasks)
    assert [shares.next() for _ in range(50 * tasks)] == [(first + turn) % tasks for turn in range(50 * tasks)]


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 4), st.integers(0, 4)), max_size=50))
def test_shares_stay_shares(moves: list[tuple[float, int, int]]) -> None:
    shares = Shares(TASKS, 0)
    for unit, slow, fast in moves:
        shares.move(unit, slow, fast)
        assert min(shares.of) >= 0
        assert sum(shares.of) == pytest.approx(1)


def test_those_that_are_passed_over_make_up_for_nothing() -> None:
    shares = Shares(3, 0)
    first = [shares.next(but=(0,)) for _ in range(1_000)]
    assert Counter(first) == {1: 500, 2: 500}
    assert Counter(shares.next() for _ in range(300)) == {0: 100, 1: 100, 2: 100}


# -- the paper's rule


def balanced(latencies_ms: list[list[float]], **options: float) -> list[float]:
    """The shares of a sender after periods with these mean latencies, by task."""
    grouping = latency_balanced(**options)  # type: ignore[arg-type]
    assert isinstance(grouping, LatencyBalanced)
    chooser = grouping.bind(len(latencies_ms[0]), Random(0))
    told = [Took(0, 0)] * len(latencies_ms[0])
    chooser.tick(0)
    now_ns = 0
    for period in latencies_ms:
        now_ns += grouping.period_ns
        chooser.tick(now_ns)
        assert [message for _, message in chooser.outbox] == [Ask()] * len(period)
        chooser.outbox.clear()
        for task, latency in enumerate(period):
            told[task] = Took(told[task].tuples + 10, told[task].total_ns + round(10 * latency * MS))
            assert chooser.hear(task, told[task], now_ns) == ()
    return [round(share, 6) for share in chooser.shares.of]


def test_pairs_from_the_outside_in() -> None:
    assert balanced([[10, 40, 20, 16, 12]]) == [0.21, 0.19, 0.19, 0.2, 0.21]
    assert balanced([[10, 40, 13, 12, 12]]) == [0.21, 0.19, 0.2, 0.2, 0.2], "13 and 12 differ by less"


def test_nothing_moves_below_the_threshold() -> None:
    assert balanced([[10, 12, 11, 11]]) == [0.25] * 4
    assert balanced([[10, 12.1, 11, 11]]) == [0.26, 0.24, 0.25, 0.25]


def test_latencies_age_by_half() -> None:
    """20 after 10 counts as 15: the first period moves nothing, the second 1%, the third 1%."""
    assert balanced([[10, 10], [10, 20], [10, 10]]) == [0.52, 0.48]
    assert balanced([[10, 10], [10, 20], [10, 10], [10, 10]]) == [0.52, 0.48], "then it is 11.25"


def test_a_share_does_not_fall_below_zero() -> None:
    assert balanced([[10, 100]] * 60) == [1.0, 0.0]
    assert balanced([[10, 100]] * 3, unit=0.3) == [1.0, 0.0]


def test_a_period_without_tuples_changes_no_latency() -> None:
    grouping = latency_balanced()
    chooser = grouping.bind(2, Random(0))
    assert isinstance(grouping, LatencyBalanced)
    for task in range(2):
        chooser.hear(task, Took(10, 10 * (task + 1) * MS), 0)
    for task in range(2):
        chooser.hear(task, Took(10, 10 * (task + 1) * MS), 0)
    assert chooser.shares.of[0] > 0.5


def test_a_task_tells_what_tuples_took_from_entering_the_queue() -> None:
    receiver = latency_balanced().bind_receiver(0, 2, 1, Random(0))
    for at_ns in (0, 1, 2):
        receiver.received(0, None, at_ns)
    receiver.executed(0, "a", None, 5, 1, 10)
    receiver.dropped(0, None, 0, 10)
    receiver.executed(0, "c", None, 5, 0, 20)
    receiver.hear(0, Ask(), 30)
    assert receiver.outbox == [(0, Took(2, 28))]


def test_bad_options() -> None:
    with pytest.raises(OptionError, match=r"a unit of traffic up to 1: period_s=5.0 threshold=1.2 unit=0"):
        latency_balanced(unit=0)
    with pytest.raises(OptionError, match=r"balancing needs a period above 0, .*: period_s=nan "):
        latency_balanced(period_s=float("nan"))
    with pytest.raises(
        OptionError, match=r"fast=True has no other parameters: period_s=3 .*: did you mean fast=False\?"
    ):
        latency_balanced(fast=True, period_s=3)
    assert latency_balanced(fast=True) == LatencyBalancedFast()


# -- the fast rule


def test_a_crowded_task_is_passed_over_before_anything_was_measured() -> None:
    chooser = latency_balanced(fast=True).bind(TASKS, Random(0))
    sent: Counter[int] = Counter()
    for turn in range(60):
        chooser.tick(turn * MS)
        task = chooser.choose_many([turn])[0]
        sent[task] += 1
        if task != 3:
            chooser.hear(task, Done(1, (), 0), turn * MS)
    assert sent[3] == 1


def test_a_task_that_was_slow_gets_a_tuple_now_and_then() -> None:
    chooser = latency_balanced(fast=True).bind(2, Random(0))
    seen = []
    for turn in range(20 * QUIET):
        now_ns = turn * PERIOD_NS
        chooser.tick(now_ns)
        task = chooser.choose_many([turn])[0]
        chooser.hear(task, Done(1, (), 0), now_ns + (100 if task else 1) * MS)
        seen.append(task)
    assert 10 <= seen[QUIET:].count(1) <= 20


# -- both, among tasks of which one is four times slower


def simulated(name: str, seconds: int, slow: bool = True) -> Report:
    nodes = (Node(0.25 if slow else 1.0), *[Node()] * 4)
    capacity = sum(node.speed for node in nodes) / 0.02
    model = Model(
        Poisson(load=0.6), Exponential(20 * MS), tuples=int(0.6 * capacity * seconds), tasks=TASKS, nodes=nodes
    )
    return simulate(model, name, seed=3)


def mean_ms(report: Report, begin_s: int, end_s: int) -> float:
    found = [
        done_ns - due_ns
        for due_ns, done_ns in zip(report.due_ns, report.done_ns, strict=True)
        if begin_s * SECOND_NS <= due_ns < end_s * SECOND_NS
    ]
    return sum(found) / len(found) / MS


@pytest.mark.parametrize(("name", "seconds"), [("latency_balanced", 100), ("latency_balanced_fast", 5)])
def test_both_converge(name: str, seconds: int) -> None:
    report = simulated(name, seconds + 60)
    assert mean_ms(report, seconds, seconds + 60) < 60
    assert mean_ms(simulated("shuffle", 60), 30, 60) > 1_000, "round robin does not"


@pytest.mark.parametrize(("name", "most"), [("latency_balanced", 1.05), ("latency_balanced_fast", 0.9)])
def test_where_tasks_are_equal(name: str, most: float) -> None:
    """Thirty tuples a second and task: the paper's rule takes noise for slow tasks, and loses a little."""
    plain, balanced = simulated("shuffle", 100, slow=False), simulated(name, 100, slow=False)
    assert balanced.mean_ns < most * plain.mean_ns
