"""Behind the first edge an incarnation and its hedge go to different tasks, though nobody says where either went."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tailrace as tr
from kit.tasks import context_of, task_of
from tailrace.core.assembly import passes_one
from tailrace.core.bundles import new_bundle
from tailrace.core.emissions import hedge_of
from tailrace.core.plan.plan import Plan
from tailrace.core.plan.planner import make_plan
from tailrace.core.protocol.ledger import LedgerLimits
from tailrace.core.protocol.messages import Techniques
from tailrace.core.tasks.base import Task
from tailrace.policy.hedging.api import MOST_HEDGES, HedgeRule
from tailrace.policy.hedging.disjoint_halves import DisjointHalves
from tailrace.policy.techniques import PLAIN, Tail
from tailrace.sim.faults.topologies import SimSink, SimSource
from tailrace.topology import Topology

TIMEOUT = tr.fixed_timeout(10)


@given(st.integers(2, 9), st.integers(0, hedge_of(0) - 10), st.integers(0, (1 << 64) - 1), st.data())
def test_an_incarnation_and_the_next_never_meet(tasks: int, first: int, salt: int, data: st.DataObject) -> None:
    """Whoever sends them, and whatever they have sent before."""
    senders = [
        DisjointHalves(tasks, salt, start) for start in data.draw(st.lists(st.integers(0, 99), min_size=2, max_size=3))
    ]
    met: dict[int, set[int]] = {}
    for _ in range(60):
        emission = data.draw(st.integers(first, first + 9))
        hedge = data.draw(st.integers(0, MOST_HEDGES))
        task = data.draw(st.sampled_from(senders)).choose(emission, hedge)
        assert 0 <= task < tasks
        met.setdefault(emission + hedge * hedge_of(0), set()).add(task)
    for emission, places in met.items():
        assert places.isdisjoint(met.get(hedge_of(emission), ()))


@pytest.mark.parametrize("tasks", [2, 3, 5, 8])
@pytest.mark.parametrize("step", [1, 2, 5, 8, 25, 64])
def test_tasks_get_equal_shares_whatever_the_numbers_have_in_common(tasks: int, step: int) -> None:
    sides = DisjointHalves(tasks, 12345, 7)
    for hedge in (0, 1):
        got = Counter(sides.choose(step * turn, hedge) for turn in range(4_000))
        share = 4_000 / tasks
        assert set(got) == set(range(tasks))
        if not hedge or tasks % 2 == 0:  # of hedges the smaller side gets what the larger one has of the others
            assert all(0.8 * share < count < 1.2 * share for count in got.values())


def test_of_emissions_in_a_row_each_side_gets_its_share_to_the_tuple() -> None:
    sides = DisjointHalves(5, 99, 0)
    for block in range(100):
        tasks = [sides.choose(5 * block + place, hedge=0) for place in range(5)]
        assert sum(task < 2 for task in tasks) == 2


# -- where it is done


def _plan() -> Plan:
    topology = Topology("t")
    first = topology.source("s", SimSource("s", 9)).map("a", str, tasks=2)
    second = first.filter("b", bool, tasks=3).map("c", str, tasks=4)
    several = second.flat_map("d", list, tasks=2).map("e", str, tasks=2)
    first.map("k", str, tasks=2, grouping=tr.fields(str)).sink("near", SimSink(committing=False))
    tr.union(several, second).map("u", str, tasks=2).map("v", str, tasks=2).sink("out", SimSink(), tasks=2)
    return make_plan(topology, 1)


def test_it_is_done_where_at_most_one_tuple_of_a_root_can_pass() -> None:
    """The tuples of one root would all be on one side."""
    plan = _plan()
    ends = [(tuple(plan.operators[end].name for end in edge.ends), passes_one(plan, edge)) for edge in plan.edges]
    assert {ends for ends, one in ends if one} == {
        ("s", "a"), ("a", "b"), ("b", "c"), ("c", "d"), ("c", "u"), ("a", "k"), ("k", "near"),
    }  # fmt: skip
    assert {ends for ends, one in ends if not one} == {("d", "e"), ("e", "u"), ("u", "v"), ("v", "out")}


def _sender(number: int, rule: HedgeRule | None) -> Task:
    """One of the tasks of the first operator."""
    plan = _plan()
    context = context_of(plan, limits=LedgerLimits(3, 1_000), seed=number, tail=Tail(rule))
    return task_of(context, number, str)


def _place(task: Task, emission: int) -> int:
    """Which task of the filter gets a tuple of this emission."""
    task.receive([new_bundle(emission, 0, 0, 1, [1], ["x"])])
    task.run(0)
    targets = [lane.target for lane in task.lanes if lane.edge == 1 and lane.take()]
    for lane in task.lanes:
        lane.take()
    assert len(targets) == 1
    return targets[0]


def test_a_hedge_passes_by_what_it_races_whichever_task_sends_it() -> None:
    one, two = _sender(1, TIMEOUT), _sender(2, TIMEOUT)
    for emission in range(200):
        places = _place(one, emission), _place(two, hedge_of(emission))
        assert places[0] != places[1]


def test_without_hedges_that_cancel_tuples_take_turns() -> None:
    task = _sender(1, None)
    turns = [_place(task, emission % 2) for emission in range(6)]
    assert turns[:3] == turns[3:] and len(set(turns)) == 3
    task.handle(Techniques(Tail(TIMEOUT)))
    assert {_place(task, emission) for emission in [4] * 9} != set(turns), "they keep to a side"
    task.handle(Techniques(Tail(tr.replicate(0.5))))
    assert {_place(task, emission) for emission in [4] * 3} == set(turns)
    task.handle(Techniques(PLAIN))
    assert {_place(task, emission) for emission in [4] * 3} == set(turns)
