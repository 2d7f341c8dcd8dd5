"""Plans: task counts, what is fused, who lives where, and what tells splits and edges apart."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.core.plan.plan import EdgePlan, Plan
from tailrace.core.plan.planner import make_plan
from tailrace.policy import broadcast, fields, local, shuffle
from tailrace.sim.faults.topologies import SimSink, SimSource
from tailrace.topology import Stream, Topology, union


def same(value: Any) -> Any:
    return value


async def later(value: Any) -> Any:
    return value


@pytest.fixture
def topology() -> Topology:
    return Topology("t")


def source(topology: Topology, name: str = "s", tasks: int = 2) -> Stream:
    return topology.source(name, SimSource(name, 1), tasks=tasks)


def edge(plan: Plan, upstream: str, downstream: str) -> EdgePlan:
    names = [operator.name for operator in plan.operators]
    (found,) = (e for e in plan.edges if (names[e.upstream], names[e.downstream]) == (upstream, downstream))
    return found


def tasks_of(plan: Plan, name: str) -> list[int]:
    return [task for task in range(len(plan.home)) if plan.operators[plan.operator_of[task]].name == name]


def test_tasks_are_numbered_through_all_operators(topology: Topology) -> None:
    source(topology).map("a", same, tasks=3).sink("out", SimSink(), tasks=2)
    plan = make_plan(topology, 2)
    assert plan.operator_of == (0, 0, 1, 1, 1, 2, 2)
    assert [plan.label(task) for task in (0, 4, 5)] == ["s/0", "a/2", "out/0"]
    assert [plan.task_index(task) for task in range(7)] == [0, 1, 0, 1, 2, 0, 1]


def test_an_operator_without_a_count_gets_a_task_a_worker(topology: Topology) -> None:
    source(topology).map("a", same, kind="cpu").sink("out", SimSink(), tasks=1)
    assert len(tasks_of(make_plan(topology, 5), "a")) == 5


def test_places_are_dealt_out_like_cards(topology: Topology) -> None:
    source(topology).map("a", same, tasks=3).sink("out", SimSink(), tasks=2)
    assert make_plan(topology, 3).home == (0, 1, 2, 0, 1, 2, 0)
    assert make_plan(topology, 1).home == (0,) * 7


def test_what_is_fused_lives_with_its_leader(topology: Topology) -> None:
    chain = source(topology).map("a", same, grouping=local()).map("b", same, grouping=local())
    chain.map("c", same, tasks=2).sink("out", SimSink(), tasks=1)
    plan = make_plan(topology, 2)
    assert edge(plan, "s", "a").fused and edge(plan, "a", "b").fused and not edge(plan, "b", "c").local
    leaders = [plan.unit_of[task] for name in ("s", "a", "b") for task in tasks_of(plan, name)]
    assert leaders == [0, 1, 0, 1, 0, 1]
    units = dict(plan.units(0))
    assert units[0] == (0, *(tasks_of(plan, name)[0] for name in ("a", "b")))


def test_every_task_is_in_one_unit_on_one_worker(topology: Topology) -> None:
    stream = source(topology, tasks=3).map("a", same, grouping=local())
    stream.flat_map("f", lambda v: [v], tasks=4).sink("out", SimSink(), tasks=2)
    plan = make_plan(topology, 2)
    found = [(worker, leader, task) for worker in range(2) for leader, unit in plan.units(worker) for task in unit]
    assert sorted(task for _, _, task in found) == list(range(len(plan.home)))
    assert all(plan.home[task] == worker and plan.unit_of[task] == leader for worker, leader, task in found)


@pytest.mark.parametrize("how", ["batch", "async", "two inputs"])
def test_a_local_edge_that_cannot_be_fused_keeps_its_place(topology: Topology, how: str) -> None:
    stream = source(topology)
    if how == "batch":
        stream = stream.map_batch("x", lambda values: values, grouping=local())
    elif how == "async":
        stream = stream.map("x", later, grouping=local())
    else:
        stream = union(stream, source(topology, "t").map("m", same, grouping=local())).map("x", same, grouping=local())
    stream.sink("out", SimSink(), tasks=1)
    plan = make_plan(topology, 2)
    found = edge(plan, "s", "x")
    assert found.local and not found.fused
    for upstream, task in zip(tasks_of(plan, "s"), tasks_of(plan, "x"), strict=True):
        assert plan.unit_of[task] == task and plan.home[task] == plan.home[upstream]


def test_a_local_chain_follows_the_number_of_workers(topology: Topology) -> None:
    stream = source(topology).map("a", same, kind="cpu").map("b", same, grouping=local())
    stream.sink("out", SimSink(), tasks=1)
    plan = make_plan(topology, 3)
    assert len(tasks_of(plan, "a")) == len(tasks_of(plan, "b")) == 3
    assert [plan.unit_of[task] for task in tasks_of(plan, "b")] == tasks_of(plan, "a")


def test_lineages_travel_only_where_a_committing_sink_lies_ahead(topology: Topology) -> None:
    stream = source(topology)
    stream.map("a", same, tasks=1).sink("sure", SimSink(), tasks=1)
    stream.map("b", same, tasks=1).sink("loose", SimSink(committing=False), tasks=1)
    plan = make_plan(topology, 1)
    pairs = [("s", "a"), ("a", "sure"), ("s", "b"), ("b", "loose")]
    assert [edge(plan, *pair).lineages for pair in pairs] == [True, True, False, False]


@pytest.mark.parametrize(
    ("grouping", "committing", "by_lineage"),
    [
        (shuffle(), True, True),
        (shuffle(), False, False),
        (fields(0), True, False),
        (broadcast(), True, False),
    ],
)
def test_only_a_shuffle_into_a_committing_sink_goes_by_lineage(
    topology: Topology, grouping: Any, committing: bool, by_lineage: bool
) -> None:
    source(topology).sink("out", SimSink(committing), tasks=2, grouping=grouping)
    assert edge(make_plan(topology, 1), "s", "out").by_lineage is by_lineage


def test_splits_are_told_apart_across_sources(topology: Topology) -> None:
    union(source(topology, "s", 2), source(topology, "t", 2)).sink("out", SimSink(), tasks=1)
    plan = make_plan(topology, 2)
    assert [split.key for split in plan.splits] == ["s/0", "s/1", "t/0", "t/1"]
    assert len({split.salt for split in plan.splits}) == 4
    assert plan.owners == (0, 1, 2, 3)
    assert [split.index for split in plan.splits_of(2)] == [2]


def test_more_splits_than_tasks_are_shared_out(topology: Topology) -> None:
    class Partitioned(SimSource):
        def splits(self, tasks: int) -> list[str]:
            return ["p0", "p1", "p2", "p3", "p4"]

    topology.source("s", Partitioned("s", 1), tasks=2).sink("out", SimSink(), tasks=1)
    assert make_plan(topology, 1).owners == (0, 1, 0, 1, 0)


def test_edges_have_salts_of_their_own_that_outlast_an_edited_topology(topology: Topology) -> None:
    stream = source(topology)
    left, right = stream.map("l", same, tasks=1), stream.map("r", same, tasks=1)
    union(left, right).sink("out", SimSink(), tasks=1)
    plan = make_plan(topology, 1)
    assert len({e.salt for e in plan.edges}) == 4
    edited = Topology("edited")
    begun = edited.source("s", SimSource("s", 1), tasks=2)
    begun.map("new", same, tasks=1).sink("other", SimSink(), tasks=1)
    begun.map("l", same, tasks=1).sink("out", SimSink(), tasks=1)
    assert edge(make_plan(edited, 3), "l", "out").salt == edge(plan, "l", "out").salt


def test_who_sends_beside_another(topology: Topology) -> None:
    """What send schedulers are for: two tasks of an operator in one worker, with something to send to another."""
    near = source(topology).map("m", same, tasks=4).map("near", same, tasks=4, grouping=local())
    near.sink("out", SimSink(), tasks=4)
    plan = make_plan(topology, 2)
    sending = [plan.label(task) for task in range(len(plan.home)) if plan.sends_beside(task)]
    assert sending == [f"m/{number}" for number in range(4)]
    alone = make_plan(topology, 1)
    assert not any(alone.sends_beside(task) for task in range(len(alone.home)))
