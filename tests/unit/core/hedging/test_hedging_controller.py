"""Hedging: late roots are emitted once more, the first incarnation to be complete counts, the other is thrown away."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import tailrace as tr
from kit.tasks import context_of, source_of
from tailrace.clock import MILLISECOND_NS, SECOND_NS
from tailrace.connector import SplitStart
from tailrace.core.bundles import FEEDBACK
from tailrace.core.emissions import hedge_of, race_until, turn_of
from tailrace.core.hedging.controller import NEVER, check_hedging
from tailrace.core.plan.plan import Plan
from tailrace.core.plan.planner import make_plan
from tailrace.core.protocol.ledger import LedgerLimits, Root
from tailrace.core.protocol.messages import Recover, Techniques
from tailrace.metrics.counters import TaskSnapshot
from tailrace.policy.groupings.api import Grouping
from tailrace.policy.groupings.pull.receiver import Credit
from tailrace.policy.hedging.api import HedgeRule, Load
from tailrace.policy.techniques import PLAIN, Tail
from tailrace.runtime.driver.load import LoadMeter
from tailrace.sim.faults.topologies import SimSink, SimSource
from tailrace.testing import ManualClock
from tailrace.topology import Topology

MS = MILLISECOND_NS
TIMEOUT = tr.fixed_timeout(10)
SHUFFLE = tr.shuffle()
TASKS = 3


class Kit:
    """A source whose roots go to three tasks, and a sink that keeps no promise."""

    def __init__(self, rule: HedgeRule | None = TIMEOUT, grouping: Grouping = SHUFFLE, held_limit: int = 1) -> None:
        topology = Topology("t")
        stream = topology.source("s", SimSource("s", 100)).map("a", str, tasks=TASKS, grouping=grouping)
        stream.sink("out", SimSink(committing=False))
        self.clock = ManualClock(1)
        self.plan = make_plan(topology, 1)
        limits = LedgerLimits(50, SECOND_NS)
        context = context_of(self.plan, self.clock, limits, held_limit=held_limit, tail=Tail(rule))
        reader = self.plan.operators[0].operator.body.open(SplitStart("0"))
        task = source_of(context, reader)
        self.task = task
        self.task.handle(Recover())

    @property
    def roots(self) -> list[Root]:
        return list(self.task.ledger)

    def pass_ms(self, ms: float) -> None:
        self.clock.advance(int(ms * MS))
        if self.task.runnable:
            self.task.run(MS)
        self.task.ledger.validate()
        if self.task.hedging is not None:
            self.task.hedging.validate()

    def be_lucky(self) -> None:
        """Most hedges have been first."""
        hedging: Any = self.task.hedging
        for _ in range(30):
            hedging._hedger.budget.completed(hedges=1, won=True)

    def lane_of(self, emission: int) -> int:
        (lane,) = [lane for lane in self.task.lanes if any(bundle[0] == emission for bundle in lane.bundles)]
        return lane.target

    def complete(self, emission: int) -> None:
        """All that was sent for it has been run."""
        acks = [bundle[3] for lane in self.task.lanes for bundle in lane.bundles if bundle[0] == emission]
        assert len(acks) == 1
        self.task.apply({}, {emission: acks[0]}, {})

    def figures(self) -> tuple[int, int, int]:
        counters = self.task.wiring.counters
        return counters.hedges, counters.hedges_won, counters.hedges_wasted


def test_a_root_is_hedged_at_the_very_moment_it_is_late_and_at_another_task() -> None:
    kit = Kit()
    kit.task.read(1)
    kit.pass_ms(0)
    (root,) = kit.roots
    assert kit.task.hedge_ns == root.emitted_ns + 10 * MS + 1
    kit.pass_ms(10)
    assert root.emissions == root.emissions[:1] and not root.hedges
    kit.clock.advance(1)
    assert kit.task.runnable
    kit.pass_ms(0)
    first, hedge = root.emissions
    assert hedge == hedge_of(first) and root.hedges == 1 and kit.figures() == (1, 0, 0)
    assert kit.lane_of(first) != kit.lane_of(hedge)
    assert kit.task.hedge_ns == NEVER and kit.task.ledger.reemitted == 0
    kit.pass_ms(100)
    assert len(root.emissions) == 2, "one hedge a root, as long as nobody knows who is first"


@pytest.mark.parametrize("winner", [0, 1])
def test_the_first_to_be_complete_counts_and_the_other_is_cancelled(winner: int) -> None:
    kit = Kit()
    kit.task.read(1)
    kit.pass_ms(20)
    (root,) = kit.roots
    pair = list(root.emissions)
    kit.complete(pair[winner])
    assert root.complete_ns and kit.task.ledger.complete_latency.count == 1
    assert kit.task.cancels == [pair[1 - winner]]
    assert kit.figures() == (1, winner, 1 - winner)
    kit.complete(pair[1 - winner])  # it was under way already
    assert kit.task.ledger.complete_latency.count == 1 and kit.figures() == (1, winner, 1 - winner)
    assert kit.task.cancels == [pair[1 - winner]]


@pytest.mark.parametrize("winner", [0, 1, 2])
def test_a_hedge_that_is_late_is_hedged_at_a_third_task_and_all_but_the_first_to_be_complete_are_cancelled(
    winner: int,
) -> None:
    kit = Kit()
    kit.be_lucky()
    kit.task.read(1)
    kit.pass_ms(11)
    kit.pass_ms(10)
    (root,) = kit.roots
    assert len(root.emissions) == 2, "ten milliseconds, and not more"
    kit.pass_ms(1)
    race = list(root.emissions)
    assert race == [*race_until(race[-1])] and len(race) == 3 and root.hedges == 2
    assert len({kit.lane_of(emission) for emission in race}) == 3
    kit.pass_ms(50)
    assert root.emissions == race, "and no third"
    kit.complete(race[winner])
    assert kit.task.cancels == [emission for emission in race if emission != race[winner]]
    assert kit.figures() == (2, winner > 0, 2 - (winner > 0)) and kit.task.ledger.complete_latency.count == 1


@pytest.mark.parametrize("winner", [1, 2, 3])
def test_a_second_hedge_races_what_recovery_has_emitted_since_the_first(winner: int) -> None:
    kit = Kit()
    kit.be_lucky()
    kit.task.read(1)
    kit.pass_ms(11)
    kit.task.handle(Recover())
    kit.task.run(MS)
    kit.pass_ms(11)
    (root,) = kit.roots
    first, hedge, again, second = root.emissions
    assert (hedge, second) == (hedge_of(first), hedge_of(again)) and root.hedges == 2
    kit.complete(root.emissions[winner])
    assert kit.task.cancels == {1: [], 2: [second], 3: [again]}[winner]


def test_a_root_that_waits_for_room_in_line_is_hedged_once_when_there_is_some() -> None:
    kit = Kit(grouping=tr.pull(), held_limit=1)
    kit.be_lucky()
    (line,) = kit.task.feedback_edges.values()
    kit.task.read(1)
    kit.pass_ms(11)
    kit.pass_ms(11)
    assert kit.figures()[0] == 0, "both hedges are due"
    for task in range(TASKS):
        kit.task.hear([(FEEDBACK, line.edge.index, task, line.version, Credit(token=False))])
        kit.pass_ms(0)
    kit.pass_ms(50)
    assert kit.figures()[0] == 1


def test_a_root_that_is_complete_in_time_is_not_hedged() -> None:
    kit = Kit()
    kit.task.read(1)
    kit.complete(kit.roots[0].emissions[0])
    kit.pass_ms(50)
    assert kit.figures() == (0, 0, 0) and kit.task.cancels == []


def test_a_rule_that_does_not_cancel_lets_both_run() -> None:
    kit = Kit(tr.replicate(1.0))
    kit.task.read(1)
    kit.pass_ms(0)
    (root,) = kit.roots
    kit.complete(root.emissions[1])
    assert kit.figures() == (1, 1, 0) and kit.task.cancels == []


@pytest.mark.parametrize("winner", [0, 1, 2])
def test_recovery_forgets_a_hedge(winner: int) -> None:
    """What is complete from before a loss may never be durable: then all depends on what recovery has emitted."""
    kit = Kit()
    kit.task.read(1)
    kit.pass_ms(20)
    kit.task.handle(Recover())
    kit.task.run(MS)
    (root,) = kit.roots
    assert len(root.emissions) == 3 and kit.task.ledger.reemitted == 1
    kit.pass_ms(50)
    assert len(root.emissions) == 3, "one hedge a root, as long as nobody knows who is first"
    kit.complete(root.emissions[winner])
    assert root.complete_ns and kit.task.cancels == [] and kit.figures() == (1, winner == 1, winner != 1)


def test_a_root_that_recovery_emits_again_is_late_from_then_on() -> None:
    kit = Kit()
    kit.task.read(1)
    kit.pass_ms(9)
    kit.task.handle(Recover())
    kit.task.run(MS)
    kit.pass_ms(9)
    assert kit.figures() == (0, 0, 0)
    kit.pass_ms(2)
    (root,) = kit.roots
    _, again, hedge = root.emissions
    assert hedge == hedge_of(again)
    kit.complete(hedge)
    assert kit.task.cancels == [again]


def test_an_incarnation_from_before_a_loss_cancels_nothing() -> None:
    kit = Kit()
    kit.task.read(1)
    kit.task.handle(Recover())
    kit.task.run(MS)
    kit.pass_ms(20)
    (root,) = kit.roots
    assert len(root.emissions) == 3 and root.hedges == 1
    kit.complete(root.emissions[0])
    assert root.complete_ns and kit.task.cancels == []


def test_hedges_wait_until_there_is_room_in_line() -> None:
    """Many roots are late at one moment, and the tasks that they go to want none of them."""
    kit = Kit(grouping=tr.pull(), held_limit=6)
    (line,) = kit.task.feedback_edges.values()
    kit.task.read(4)
    kit.pass_ms(20)
    assert [root.hedges for root in kit.roots] == [1, 1, 0, 0]
    assert len(line.held) == 6 and kit.task.held_full and kit.task.runnable and kit.figures()[0] == 2
    for task in range(TASKS):  # the first three leave, of which the third is complete
        kit.task.hear([(FEEDBACK, line.edge.index, task, line.version, Credit(token=False))])
    kit.complete(kit.roots[2].emissions[0])
    kit.pass_ms(0)
    assert [root.hedges for root in kit.roots] == [1, 1, 0, 1] and len(line.held) == 4
    assert not kit.task.runnable and kit.figures()[0] == 3


def test_a_root_that_recovery_emits_again_does_not_wait_for_a_hedge_any_more() -> None:
    kit = Kit(grouping=tr.pull(), held_limit=3)
    (line,) = kit.task.feedback_edges.values()
    kit.task.read(2)
    kit.pass_ms(20)
    assert [root.hedges for root in kit.roots] == [1, 0]
    kit.task.handle(Recover())
    for _ in range(3):
        for task in range(TASKS):
            kit.task.hear([(FEEDBACK, line.edge.index, task, line.version, Credit(token=False))])
        kit.pass_ms(1)
    assert [root.hedges for root in kit.roots] == [1, 0] and kit.task.ledger.reemitted == 2


def test_hedging_goes_off_and_on_while_roots_are_pending() -> None:
    kit = Kit()
    kit.task.read(2)
    kit.pass_ms(20)
    kit.task.read(1)
    kit.task.handle(Techniques(PLAIN))
    assert kit.task.hedging is None and kit.task.hedge_ns is None
    kit.complete(kit.roots[0].emissions[1])
    assert kit.task.cancels == kit.roots[0].emissions[:1] and kit.figures() == (2, 1, 0), "races go on"
    kit.pass_ms(20)
    assert kit.figures()[0] == 2
    kit.task.handle(Techniques(Tail(TIMEOUT)))
    kit.pass_ms(20)
    hedged, again, late = kit.roots
    assert [len(root.emissions) for root in (hedged, again, late)] == [2, 2, 2] and kit.figures()[0] == 3
    before = kit.task.hedging
    kit.task.handle(Techniques(Tail(tr.fixed_timeout(10))))
    assert kit.task.hedging is before, "the same rule goes on as it was"
    for root in (again, late):
        kit.complete(root.emissions[0])
    assert kit.task.cancels == [hedged.emissions[0], again.emissions[1], late.emissions[1]]
    assert kit.figures() == (3, 1, 2)


def test_what_a_rule_without_cancels_has_hedged_is_run_under_any_other() -> None:
    kit = Kit(tr.replicate(1.0))
    kit.task.read(1)
    kit.pass_ms(0)
    kit.task.handle(Techniques(Tail(TIMEOUT)))
    kit.complete(kit.roots[0].emissions[0])
    assert kit.task.cancels == [] and kit.figures() == (1, 0, 1)


def test_gauges_are_of_the_rule_that_is_on() -> None:
    kit = Kit(tr.fixed_timeout(10, budget=0.5))
    counters = kit.task.wiring.counters
    kit.task.show()
    assert (counters.timeout_ns, counters.hedges_left) == (10 * MS, 0.0)
    kit.task.handle(Techniques(Tail(TIMEOUT)))
    kit.task.show()
    assert (counters.timeout_ns, counters.hedges_left) == (10 * MS, None), "nothing limits them"
    kit.task.handle(Techniques(PLAIN))
    kit.task.show()
    assert (counters.timeout_ns, counters.hedges_left) == (0, 0.0)


def test_a_hedge_goes_where_the_least_waits() -> None:
    kit = Kit()
    kit.task.read(6)
    lanes = [kit.lane_of(root.emissions[0]) for root in kit.roots]
    quick = lanes[1]
    for root, lane in zip(kit.roots, lanes, strict=True):
        if lane == quick:
            kit.complete(root.emissions[0])
    kit.pass_ms(20)
    hedges = [kit.lane_of(root.emissions[1]) for root in kit.roots if root.hedges]
    assert len(hedges) == 4 and hedges[:2] == [quick, quick], "the others have two each that wait"


def test_a_root_that_its_hedge_has_completed_still_waits_where_it_was() -> None:
    kit = Kit()
    kit.task.read(1)
    kit.pass_ms(20)
    stuck = kit.roots[0]
    kit.complete(stuck.emissions[1])
    kit.task.read(2)
    idle = kit.roots[2]
    kit.complete(idle.emissions[0])
    kit.pass_ms(20)
    late = kit.roots[1]
    assert kit.lane_of(late.emissions[1]) == kit.lane_of(idle.emissions[0]) != kit.lane_of(stuck.emissions[0])


def test_nothing_is_hedged_before_there_is_work_to_pay_for_it() -> None:
    kit = Kit(tr.fixed_timeout(10, budget=0.5, gate=0.9))
    kit.task.read(5)
    kit.pass_ms(20)
    assert kit.figures()[0] == 0
    for root in kit.roots[:4]:
        kit.complete(root.emissions[0])
    kit.task.handle(Load(0.3, roots=1000, hedges=0, work_ns=1000 * MS, unrun_ns=0))
    kit.task.read(8)
    for root in kit.roots[5:]:
        kit.complete(root.emissions[0])
    kit.pass_ms(0)
    assert kit.figures()[0] == 1, "eight roots' work at a half pays for the one that is late"


# -- where hedges go


@pytest.mark.parametrize("tasks", [2, 3, 5, 8])
def test_hedges_avoid_the_task_they_race_and_are_spread_over_the_others(tasks: int) -> None:
    roots = range(10_000, 10_000 + 100 * tasks * (tasks - 1))
    assert len(set(Counter(turn_of(root, tasks) for root in roots).values())) == 1
    stuck = [root for root in roots if turn_of(root, tasks) == 1]
    hedges = Counter(turn_of(hedge_of(root), tasks) for root in stuck)
    assert set(hedges) == set(range(tasks)) - {1}
    assert len(set(hedges.values())) == 1
    assert all(turn_of(root, tasks) != turn_of(hedge_of(root), tasks) for root in roots)
    if tasks > 2:
        assert all(turn_of(hedge_of(root), tasks) != turn_of(hedge_of(hedge_of(root)), tasks) for root in roots)


# -- where they are allowed


def _plan(stateful: bool, idempotent: bool) -> Plan:
    topology = Topology("t")
    clean = topology.source("clean", SimSource("clean", 5)).map("plain", str)
    counted = topology.source("counted", SimSource("counted", 5))
    counted = counted.map("count", str, stateful=stateful).map("charge", str, idempotent=idempotent)
    tr.union(clean, counted).sink("out", SimSink())
    return make_plan(topology, 1)


def test_sources_that_lead_to_state_are_left_alone() -> None:
    assert check_hedging(_plan(False, True), Tail(TIMEOUT)) == []
    assert check_hedging(_plan(True, False), PLAIN) == []
    refused = check_hedging(_plan(True, False), Tail(TIMEOUT))
    assert refused == ["counted: count (stateful), charge (idempotent=False)"]


def test_a_topology_in_which_nothing_may_be_hedged_is_refused() -> None:
    topology = Topology("t")
    topology.source("s", SimSource("s", 5)).map("count", str, stateful=True).sink("out", SimSink())
    with pytest.raises(tr.OptionError) as refusal:
        topology.run(workers=1, tail=Tail(tr.adaptive_timeout()))
    assert str(refusal.value) == (
        "no root may be hedged: hedge=adaptive_timeout s: count (stateful): "
        "could these operators do without state, or do it all twice?"
    )


# -- what it costs


def test_load_is_measured_between_snapshots() -> None:
    topology = Topology("t")
    topology.source("s", SimSource("s", 5)).map("a", str, tasks=2).sink("out", SimSink())
    meter = LoadMeter(make_plan(topology, 1))

    def snapshots(at_ns: int, busy_ns: int, done: int) -> list[TaskSnapshot]:
        source = TaskSnapshot("s", 0, completed=done, hedges=done // 10, received=done, at_ns=at_ns)
        tasks = [
            TaskSnapshot("a", 0, at_ns=at_ns, busy_ns=busy_ns, received=done, unrun=done // 10),
            TaskSnapshot("a", 1, at_ns=at_ns + 7, busy_ns=busy_ns, received=done, unrun_hedges=done // 25),
        ]
        return [source, *tasks, TaskSnapshot("out", 0, at_ns=at_ns, busy_ns=1, received=2 * done)]

    assert meter.measure(snapshots(100, 0, 0)) is None, "no room is no news"
    load = meter.measure(snapshots(1100, 600, 50))
    assert load == Load(0.6, roots=50, hedges=5, work_ns=1200, unrun_ns=7 * 12)


def test_a_tuple_that_is_thrown_away_spares_all_that_it_would_have_become() -> None:
    """Two operators in a row and a third behind both: each tuple of the first becomes two of the second."""
    topology = Topology("t")
    first = topology.source("s", SimSource("s", 5)).map("first", str)
    second = first.map("second", str)
    tr.union(first, second).sink("out", SimSink())
    meter = LoadMeter(make_plan(topology, 1))

    def snapshots(unrun: int) -> list[TaskSnapshot]:
        return [
            TaskSnapshot("s", 0, received=100, at_ns=1),
            TaskSnapshot("first", 0, received=100, busy_ns=1_000, unrun=unrun, at_ns=1),
            TaskSnapshot("second", 0, received=200, busy_ns=6_000, unrun_hedges=unrun, at_ns=1),
            TaskSnapshot("out", 0, received=300, busy_ns=300, at_ns=1),
        ]

    assert meter.measure(snapshots(0)) is None
    load = meter.measure(snapshots(5))
    assert load is not None and load.unrun_ns == 5 * (10 + 1 + 2 * (30 + 1)) + 5 * (30 + 1)
