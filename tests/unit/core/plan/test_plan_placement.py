"""The placement problem of a plan: who talks to whom by the topology alone, and by what was measured."""

from __future__ import annotations

from random import Random

import pytest

import tailrace as tr
from tailrace.core.plan.placement_problems import measured_problem, structure_problem
from tailrace.core.plan.plan import Plan
from tailrace.core.plan.planner import make_plan
from tailrace.errors import OptionError
from tailrace.policy.placement.coarse import coarse_grained
from tailrace.policy.placement.round_robin import round_robin_placement


def plan(workers: int = 3) -> Plan:
    """in (2) -> parse (2, local) -> work (3) -> out (1), and parse -> audit (2, broadcast)."""
    topology = tr.Topology("t")
    parsed = topology.source("in", tr.from_iterable([1]), tasks=2).map("parse", abs, tasks=2, grouping=tr.local())
    parsed.map("work", abs, tasks=3).sink("out", tr.to_list([]), tasks=1)
    parsed.sink("audit", tr.to_list([]), tasks=2, grouping=tr.broadcast())
    return make_plan(topology, workers)


def by_name(traffic: tuple[tuple[int, int, float], ...], names: tuple[str, ...]) -> dict[tuple[str, str], float]:
    return {(names[a], names[b]): tuples for a, b, tuples in traffic}


def test_structure_says_who_can_talk_to_whom() -> None:
    problem = structure_problem(plan(), {"a": 2, "b": 1})
    traffic = by_name(problem.traffic, problem.tasks)
    assert traffic["in/0", "parse/0"] == 0.5  # half of what the source emits
    assert ("in/0", "parse/1") not in traffic
    assert traffic["parse/1", "work/2"] == pytest.approx(1 / 6)
    assert traffic["parse/1", "audit/0"] == traffic["parse/1", "audit/1"] == 0.5  # each of them gets all
    assert traffic["work/0", "out/0"] == pytest.approx(1 / 3)
    assert len(traffic) == 2 + 6 + 4 + 3
    assert set(problem.cpu) == {1.0}


def test_local_edges_keep_tasks_together() -> None:
    problem = structure_problem(plan(), {"a": 2, "b": 1}, together=[("out", "audit/0")])
    names = [tuple(problem.tasks[task] for task in tasks) for tasks in problem.together]
    assert sorted(map(sorted, names)) == [["audit/0", "out/0"], ["in/0", "parse/0"], ["in/1", "parse/1"]]


def test_measured_traffic_and_cpu_are_taken_as_they_are() -> None:
    made = plan()
    cpu = [float(task) for task in range(len(made.home))]
    problem = measured_problem(made, {"a": 2, "b": 1}, {(2, 4): 70, (4, 2): 1}, cpu, spread=["work"])
    assert problem.traffic == ((2, 4, 71.0),)
    assert problem.cpu == tuple(cpu)
    assert coarse_grained().place(problem, Random(0)).cut(problem) == 0.0


def test_round_robin_is_what_a_plan_does() -> None:
    made = plan(workers=3)
    placed = round_robin_placement().place(structure_problem(made, {"a": 1, "b": 1, "c": 1}), Random(0))
    assert placed.node_of == made.home


def test_nodes_and_plan_must_agree() -> None:
    with pytest.raises(OptionError) as caught:
        structure_problem(plan(), {"a": 2, "b": 2})
    assert str(caught.value) == "the plan has another number of workers: workers=3 nodes={'a': 2, 'b': 2}"
