"""Feedback has a share of a core, which the tasks of a worker spend together."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.neighbours import Stepped, Worker
from kit.tasks import context_of, task_of
from tailrace.clock import MICROSECOND_NS, MILLISECOND_NS, SECOND_NS, system_clock
from tailrace.core.feedback.budget import BOUND, FEEDBACK_SHARE, READERS, REPORTS, RESERVED_NS, SAVED_NS, FeedbackBudget
from tailrace.core.feedback.receiver import LATE_NS, LONG_EACH_NS, LONG_TOTAL_NS, URGENT_TUPLES, FeedbackReceiver
from tailrace.core.plan.planner import make_plan
from tailrace.metrics.counters import TaskCounters
from tailrace.policy import Grouping, power_of_two, pull
from tailrace.runtime.connectors import from_iterable, to_call
from tailrace.runtime.execution.task_host import TaskHost
from tailrace.testing.clock import ManualClock
from tailrace.testing.processes import wait_until
from tailrace.topology import Kind, Topology

MS = MILLISECOND_NS
DAY_NS = 86_400 * SECOND_NS
ORIGIN = (0, 0, 0)
SHARE = FEEDBACK_SHARE * REPORTS  # which all but what tuples wait for have


def test_what_is_spent_must_be_earned() -> None:
    feedback_budget = FeedbackBudget()
    feedback_budget.spend(30 * MICROSECOND_NS, DAY_NS)
    assert feedback_budget.free_ns <= DAY_NS, "a worker that spent nothing has saved that much"
    for _ in range(20):
        feedback_budget.spend(30 * MICROSECOND_NS, DAY_NS)
    assert feedback_budget.free_ns == pytest.approx(DAY_NS - SAVED_NS + 21 * 30 * MICROSECOND_NS / SHARE)


def test_many_workers_that_report_to_one_spend_less_each() -> None:
    few, many = FeedbackBudget(READERS), FeedbackBudget(4 * READERS)
    for feedback_budget in (few, many):
        feedback_budget.spend(MS // 10, DAY_NS)
    saved_ns = DAY_NS - SAVED_NS
    assert many.free_ns - saved_ns == pytest.approx(4 * (few.free_ns - saved_ns))


def test_who_wants_to_spend_more_may() -> None:
    usual, more = FeedbackBudget(), FeedbackBudget(share=3 * FEEDBACK_SHARE)
    for feedback_budget in (usual, more):
        feedback_budget.spend(MS // 10, DAY_NS)
    saved_ns = DAY_NS - SAVED_NS
    assert usual.free_ns - saved_ns == pytest.approx(3 * (more.free_ns - saved_ns))
    assert usual.bound_ns - saved_ns == pytest.approx(3 * (more.bound_ns - saved_ns))


@given(
    costs_us=st.lists(st.integers(1, 500), min_size=1, max_size=300),
    gaps_us=st.lists(st.integers(0, 5_000), min_size=300, max_size=300),
)
def test_whoever_waits_spends_no_more_than_the_share(costs_us: list[int], gaps_us: list[int]) -> None:
    feedback_budget, now_ns, spent_ns = FeedbackBudget(), DAY_NS, 0
    for cost_us, gap_us in zip(costs_us, gaps_us, strict=False):
        now_ns = max(now_ns + gap_us * MICROSECOND_NS, feedback_budget.free_ns)
        feedback_budget.spend(cost_us * MICROSECOND_NS, now_ns)
        spent_ns += cost_us * MICROSECOND_NS
    assert spent_ns <= SHARE * (now_ns - DAY_NS + SAVED_NS) + costs_us[-1] * MICROSECOND_NS + len(costs_us)


def test_what_nobody_could_wait_for_is_owed_for_a_while_only() -> None:
    feedback_budget = FeedbackBudget()
    for _ in range(100):
        feedback_budget.spend(MS, DAY_NS)
    assert feedback_budget.free_ns == DAY_NS + SAVED_NS


def test_what_pays_for_a_telling_is_its_price_shared_out_among_tasks() -> None:
    feedback_budget = FeedbackBudget()
    assert feedback_budget.paying_ns == 0, "nothing is known yet"
    feedback_budget.tasks = 3
    for _ in range(200):
        feedback_budget.spend(20 * MICROSECOND_NS, DAY_NS)
        feedback_budget.spend(10 * MICROSECOND_NS, DAY_NS)
        feedback_budget.report_sent()
    assert feedback_budget.paying_ns == pytest.approx(3 * 30 * MICROSECOND_NS / SHARE, rel=0.01)
    for _ in range(200):
        feedback_budget.spend(20 * MICROSECOND_NS, DAY_NS)
        feedback_budget.spend_within_bound(40 * MICROSECOND_NS, DAY_NS)
        feedback_budget.report_sent()
    assert feedback_budget.paying_ns == pytest.approx(3 * 60 * MICROSECOND_NS / SHARE, rel=0.01), "whoever waits for it"


def test_what_tuples_wait_for_has_a_larger_share_within_one_bound() -> None:
    feedback_budget = FeedbackBudget()
    half_ns = int(FEEDBACK_SHARE * BOUND * SAVED_NS / 2)
    feedback_budget.spend_within_bound(half_ns, DAY_NS)
    assert feedback_budget.free_ns == 0 and feedback_budget.bound_ns == pytest.approx(DAY_NS - SAVED_NS // 2)
    feedback_budget.spend(half_ns, DAY_NS)
    assert feedback_budget.bound_ns == pytest.approx(DAY_NS) and feedback_budget.free_ns > DAY_NS - SAVED_NS // 2


class Desk:
    """The receiving halves of a task in a worker of four that has spent all it may for the next second."""

    def __init__(self, grouping: Grouping, senders: int = 1, clock: ManualClock | None = None) -> None:
        topology = Topology("t")
        source = topology.source("s", from_iterable(range(3)), tasks=senders)
        source.map("work", str, tasks=2, grouping=grouping).sink("out", to_call(print))
        plan = make_plan(topology, 1)
        self.clock, self.feedback_budget = clock or ManualClock(DAY_NS), FeedbackBudget()
        self.counters = TaskCounters("work", 0, 0)
        edges = [edge for edge in plan.edges if edge.feedback]
        self.halves = FeedbackReceiver(plan, senders, edges, self.counters, self.feedback_budget, self.clock, Random(1))
        assert self.feedback_budget.tasks == 1
        self.feedback_budget.tasks = 4
        self.halves.process_pending()
        self.halves.outbox.clear()
        self.feedback_budget.free_ns = DAY_NS + SECOND_NS

    def run(self, tuples: int, each_ns: int) -> None:
        self.halves.arrived([(n, 0, n, 1, None, [n], ORIGIN, None) for n in range(tuples)], mixed=False)
        self.halves.executed_run(ORIGIN, list(range(tuples)), [each_ns] * tuples)

    def due_after_ns(self, idle: bool = False) -> int:
        return self.halves.due_ns(idle) - DAY_NS


@pytest.mark.parametrize("idle", [True, False])
def test_short_calls_are_told_of_when_there_is_ample_and_soon_in_any_case(idle: bool) -> None:
    desk = Desk(power_of_two())
    assert not desk.halves.due(idle) and not desk.halves.pending
    desk.run(3, MICROSECOND_NS)
    assert desk.halves.pending and not desk.halves.due(idle)
    assert desk.due_after_ns(idle) == 4 * LATE_NS, "all four of them together once in that time"
    desk.feedback_budget.free_ns = DAY_NS + 2 * LATE_NS
    assert desk.due_after_ns(idle) == 2 * LATE_NS, "it is urgent by then"
    desk.feedback_budget.free_ns = DAY_NS + 2 * MS - RESERVED_NS
    desk.clock.advance(2 * MS - 1)
    assert not desk.halves.due(idle)
    desk.clock.advance(1)
    assert desk.halves.due(idle)
    desk.halves.process_pending()
    assert not desk.halves.pending
    ((*_, done),) = desk.halves.outbox[0]
    assert done.tuples == 3 and done.late


def test_long_calls_of_a_task_that_has_run_dry_are_urgent() -> None:
    desk = Desk(power_of_two())
    desk.feedback_budget.free_ns = DAY_NS + MS
    desk.run(1, LONG_TOTAL_NS - LONG_EACH_NS)
    assert desk.due_after_ns(idle=True) > MS
    desk.run(1, LONG_EACH_NS)
    assert desk.due_after_ns(idle=True) == MS, "together they were long enough"
    assert desk.due_after_ns(idle=False) > MS, "with more to run nobody waits for it"
    spent_ns = desk.feedback_budget.free_ns
    desk.clock.advance(MS)
    desk.halves.process_pending()
    assert desk.feedback_budget.free_ns >= spent_ns


def test_many_short_calls_are_not_urgent() -> None:
    desk = Desk(power_of_two())
    desk.feedback_budget.free_ns = DAY_NS + MS
    desk.run(100, LONG_EACH_NS - 1)
    assert desk.due_after_ns(idle=True) > MS


def test_a_task_that_has_worked_for_its_part_of_the_share_need_not_wait_for_others() -> None:
    desk = Desk(power_of_two())
    for _ in range(200):
        desk.feedback_budget.spend(10 * MICROSECOND_NS, DAY_NS)
        desk.feedback_budget.report_sent()
    paying_ns = desk.feedback_budget.paying_ns
    desk.run(1, paying_ns - 1)
    assert not desk.halves.due(idle=False)
    desk.run(1, 1)
    assert desk.halves.due(idle=False)


@pytest.mark.parametrize(("grouping", "urgent"), [(power_of_two(), False), (pull(), True)])
def test_many_calls_are_urgent_where_senders_wait_for_it(grouping: Grouping, urgent: bool) -> None:
    desk = Desk(grouping)
    desk.feedback_budget.free_ns = DAY_NS + MS
    desk.run(URGENT_TUPLES - 1, 1)
    assert desk.due_after_ns() > MS
    desk.run(1, 1)
    assert (desk.due_after_ns() == MS) is urgent


@pytest.mark.parametrize("senders", [1, 2])
def test_nobody_is_kept_waiting_for_a_task_with_long_calls_within_the_bound(senders: int) -> None:
    desk = Desk(pull(), senders)
    desk.run(1, LONG_TOTAL_NS)
    assert desk.halves.due(idle=True) and desk.halves.due(idle=False)
    spent_ns = desk.feedback_budget.free_ns
    desk.halves.process_pending()
    assert desk.feedback_budget.free_ns == spent_ns, "which is not what others have to wait for"
    desk.feedback_budget.spend_within_bound(3 * MS, DAY_NS)
    desk.run(1, LONG_TOTAL_NS)
    assert not desk.halves.due(idle=True) and desk.due_after_ns(idle=True) == 4 * LATE_NS


class Costly(ManualClock):
    """While somebody looks up, whatever looks at it takes a while."""

    tick_ns = 0

    def __call__(self) -> int:
        self.advance(self.tick_ns)
        return super().__call__()

    def process_pending(self, halves: FeedbackReceiver) -> None:
        self.tick_ns = 40 * MICROSECOND_NS
        halves.process_pending()
        self.tick_ns = 0


@pytest.mark.parametrize("grouping", [power_of_two(), pull()])
@pytest.mark.parametrize("senders", [1, 3])
@pytest.mark.parametrize("call_ns", [MS // 10, 2 * MS, 3 * MS, 6 * MS])
@pytest.mark.parametrize("heard_ns", [0, 60 * MICROSECOND_NS])
def test_all_that_a_busy_worker_tells_and_hears_is_within_its_share(
    grouping: Grouping, senders: int, call_ns: int, heard_ns: int
) -> None:
    clock = Costly(DAY_NS)
    desk = Desk(grouping, senders, clock)
    desk.feedback_budget.tasks = 1
    for second in range(3):
        began_ns, spent_ns, told = clock(), -desk.counters.feedback_ns, 0
        while clock() < began_ns + SECOND_NS:
            desk.halves.arrived([(1, 0, 1, 1, None, [1], ORIGIN, None)], mixed=False)
            if desk.halves.due(idle=False):
                clock.process_pending(desk.halves)
            clock.advance(call_ns)
            desk.halves.executed_run(ORIGIN, [1], [call_ns])
            if desk.halves.due(idle=True):
                clock.process_pending(desk.halves)
                told += 1
                desk.feedback_budget.spend(heard_ns, clock())
                spent_ns += heard_ns
        spent_ns += desk.counters.feedback_ns
        if second:
            assert told > 10 and spent_ns < FEEDBACK_SHARE * (clock() - began_ns)


# -- what a host makes of it


class HostDesk(Stepped):
    """One task behind an edge by load, on a runner whose turns the test takes, in a worker that has spent too much."""

    def __init__(self) -> None:
        super().__init__("work/0")
        topology = Topology("t")
        source = topology.source("s", from_iterable(range(3)), tasks=1)
        source.filter("work", bool, tasks=2, grouping=power_of_two()).sink("out", to_call(print), tasks=1)
        plan = make_plan(topology, 1)
        context = context_of(plan, system_clock)
        self.feedback_budget = context.feedback_budget
        self.host = TaskHost(task_of(context), Worker(), Kind.AUTO)
        self.adopt(self.host)
        assert self.host.task.feedback_receiver is not None
        self.halves = self.host.task.feedback_receiver
        self.halves.process_pending()
        self.feedback_budget.free_ns = system_clock() + 50 * MS

    def put(self) -> None:
        self.host.task.receive([(1, 0, 1, 1, [1], [0], ORIGIN, None)])


def test_a_task_that_may_not_tell_yet_sleeps_until_it_may() -> None:
    desk = HostDesk()
    desk.put()
    desk.step(1)
    assert desk.halves.pending and not desk.host.has_work, "it was run, and is not told of"
    for fold in desk.host.task.acks.values():
        fold.take()  # or it would look for a connection, again and again
    now_ns = system_clock()
    assert now_ns < desk.host.wake_ns(now_ns) <= desk.halves.due_ns(idle=True) <= desk.feedback_budget.ample_ns
    wait_until(lambda: desk.halves.due(idle=True), 5, "what was spent to be earned")
    assert desk.host.has_work
    desk.step(1)
    assert not desk.halves.pending


def test_what_tuples_wait_for_leaves_less_for_what_is_urgent() -> None:
    budget = FeedbackBudget()
    budget.spend_within_bound(SECOND_NS, DAY_NS)
    assert budget.free_ns < DAY_NS < budget.bound_ns == budget.urgent_ns < budget.ample_ns
