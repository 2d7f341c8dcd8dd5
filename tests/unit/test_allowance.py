"""Feedback has a share of a core, which the tasks of a worker spend together."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from neighbours import Stepped, Worker

from tailrace.clock import MICROSECOND_NS, MILLISECOND_NS, SECOND_NS, system_clock
from tailrace.core.allowance import HEARERS, SAVED_NS, SHARE, Allowance
from tailrace.core.assembly import Bodies, Surroundings, assemble
from tailrace.core.ledger import LedgerLimits
from tailrace.core.messages import Position
from tailrace.core.plan import make_plan
from tailrace.core.receivinghalf import LATEST_NS, LONG_NS, PAYING_NS, TOGETHER, ReceivingHalves
from tailrace.metrics.counters import TaskCounters
from tailrace.policy import Grouping, power_of_two, pull
from tailrace.runtime.connectors import from_iterable, to_call
from tailrace.runtime.taskhost import TaskHost
from tailrace.testing.clock import ManualClock
from tailrace.testing.processes import wait_until
from tailrace.topology import Kind, Topology

MS = MILLISECOND_NS
DAY_NS = 86_400 * SECOND_NS
ORIGIN = (0, 0, 0)


def test_what_is_spent_must_be_earned() -> None:
    allowance = Allowance()
    allowance.spend(30 * MICROSECOND_NS, DAY_NS)
    assert allowance.free_ns <= DAY_NS, "a worker that spent nothing has saved that much"
    for _ in range(100):
        allowance.spend(30 * MICROSECOND_NS, DAY_NS)
    assert allowance.free_ns == pytest.approx(DAY_NS - SAVED_NS + 101 * 30 * MICROSECOND_NS / SHARE)


def test_many_workers_that_report_to_one_spend_less_each() -> None:
    few, many = Allowance(HEARERS), Allowance(4 * HEARERS)
    for allowance in (few, many):
        allowance.spend(MS, DAY_NS)
    saved_ns = DAY_NS - SAVED_NS
    assert many.free_ns - saved_ns == pytest.approx(4 * (few.free_ns - saved_ns))


@given(
    costs_us=st.lists(st.integers(1, 500), min_size=1, max_size=300),
    gaps_us=st.lists(st.integers(0, 5_000), min_size=300, max_size=300),
)
def test_whoever_waits_spends_no_more_than_the_share(costs_us: list[int], gaps_us: list[int]) -> None:
    allowance, now_ns, spent_ns = Allowance(), DAY_NS, 0
    for cost_us, gap_us in zip(costs_us, gaps_us, strict=False):
        now_ns = max(now_ns + gap_us * MICROSECOND_NS, allowance.free_ns)
        allowance.spend(cost_us * MICROSECOND_NS, now_ns)
        spent_ns += cost_us * MICROSECOND_NS
    assert spent_ns <= SHARE * (now_ns - DAY_NS + SAVED_NS) + costs_us[-1] * MICROSECOND_NS + len(costs_us)


class Desk:
    """The receiving halves of a task in a worker that has spent all it may for the next second."""

    def __init__(self, grouping: Grouping, senders: int = 1) -> None:
        topology = Topology("t")
        source = topology.source("s", from_iterable(range(3)), tasks=senders)
        source.map("work", str, tasks=2, grouping=grouping).sink("out", to_call(print))
        plan = make_plan(topology, 1)
        self.clock, self.allowance = ManualClock(DAY_NS), Allowance()
        counters = TaskCounters("work", 0, 0)
        edges = [edge for edge in plan.edges if edge.feedback]
        self.halves = ReceivingHalves(plan, senders, edges, counters, self.allowance, self.clock, Random(1))
        self.halves.look_up()
        self.halves.notes.clear()
        self.allowance.free_ns = DAY_NS + SECOND_NS

    def run(self, tuples: int, each_ns: int) -> None:
        self.halves.arrived([(n, 0, n, 1, None, [n], ORIGIN, None) for n in range(tuples)], mixed=False)
        self.halves.executed_run(ORIGIN, list(range(tuples)), [each_ns] * tuples)


def test_short_calls_are_told_of_when_it_has_been_earned_and_soon_in_any_case() -> None:
    desk = Desk(power_of_two())
    assert not desk.halves.due and not desk.halves.pending
    desk.run(3, MICROSECOND_NS)
    assert desk.halves.pending and not desk.halves.due
    assert desk.halves.due_ns == DAY_NS + LATEST_NS
    desk.allowance.free_ns = DAY_NS + MS
    desk.clock.advance(MS - 1)
    assert not desk.halves.due
    desk.clock.advance(1)
    assert desk.halves.due and desk.halves.due_ns == DAY_NS + MS
    desk.halves.look_up()
    assert not desk.halves.pending
    ((_, _, _, done),) = desk.halves.notes[0]
    assert done.tuples == 3


def test_long_calls_pay_for_being_told_of() -> None:
    desk = Desk(power_of_two())
    desk.run(1, PAYING_NS - LONG_NS)
    assert not desk.halves.due
    desk.run(1, LONG_NS)
    assert desk.halves.due, "together they were long enough"
    spent = desk.allowance.free_ns
    desk.halves.look_up()
    assert desk.allowance.free_ns == spent


def test_many_short_calls_pay_for_nothing() -> None:
    desk = Desk(power_of_two())
    desk.run(100, LONG_NS - 1)
    assert not desk.halves.due


@pytest.mark.parametrize(("grouping", "waits"), [(power_of_two(), True), (pull(), False)])
def test_many_calls_are_told_of_at_once_where_senders_wait_for_it(grouping: Grouping, waits: bool) -> None:
    desk = Desk(grouping)
    desk.run(TOGETHER - 1, 1)
    assert not desk.halves.due
    desk.run(1, 1)
    assert desk.halves.due is not waits


# -- what a host makes of it


class HostDesk(Stepped):
    """One task behind an edge by load, on a runner whose turns the test takes, in a worker that has spent too much."""

    def __init__(self) -> None:
        super().__init__("work/0")
        topology = Topology("t")
        source = topology.source("s", from_iterable(range(3)), tasks=1)
        source.filter("work", bool, tasks=2, grouping=power_of_two()).sink("out", to_call(print), tasks=1)
        plan = make_plan(topology, 1)
        around = Surroundings(plan, 0, 1, LedgerLimits(9, 1_000), system_clock, Random(1))
        self.allowance = around.allowance
        body = plan.operators[1].operator.body
        self.host = TaskHost(
            assemble(1, Bodies({1: body}, {}, {}, {0: Position(0, None)}), around), Worker(), Kind.AUTO
        )
        self.adopt(self.host)
        assert self.host.task.receiving is not None
        self.halves = self.host.task.receiving
        self.halves.look_up()
        self.allowance.free_ns = system_clock() + 50 * MS

    def put(self) -> None:
        self.host.task.receive([(1, 0, 1, 1, [1], [0], ORIGIN, None)])


def test_a_task_that_may_not_tell_yet_sleeps_until_it_may() -> None:
    desk = HostDesk()
    desk.put()
    desk.step(1)
    assert desk.halves.pending and not desk.host.has_news, "it was run, and is not told of"
    for fold in desk.host.task.acks.values():
        fold.take()  # or it would look for a connection, again and again
    now_ns = system_clock()
    assert now_ns < desk.host.wake_ns(now_ns) <= desk.halves.due_ns <= desk.allowance.free_ns
    wait_until(lambda: desk.halves.due, 5, "what was spent to be earned")
    assert desk.host.has_news
    desk.step(1)
    assert not desk.halves.pending
