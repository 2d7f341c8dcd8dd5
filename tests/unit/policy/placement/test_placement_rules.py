"""Placement rules: TurboStream's two algorithms by hand, ours, round robin, and their law."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from tailrace.errors import OptionError
from tailrace.policy.placement.api import Placement, PlacementProblem, PlacementRule, over_workers
from tailrace.policy.placement.bisect import bisect, split
from tailrace.policy.placement.blocks import BlockGraph, unlimited_blocks
from tailrace.policy.placement.coarse import coarse_grained
from tailrace.policy.placement.consolidate import consolidate, expand, levels_of
from tailrace.policy.placement.limits import blocks_of
from tailrace.policy.placement.optimal import optimal
from tailrace.policy.placement.problem import placement_problem
from tailrace.policy.placement.refine import refine
from tailrace.policy.placement.round_robin import round_robin_placement
from tailrace.testing import check_placement

RULES: list[PlacementRule] = [round_robin_placement(), coarse_grained(refined=False), coarse_grained(), optimal()]


def problem(tasks: int, traffic: dict[tuple[int, int], float], workers: list[int], **more: Any) -> PlacementProblem:
    return placement_problem({"t": tasks}, {f"n{i}": n for i, n in enumerate(workers)}, traffic=traffic, **more)


def blocks(tasks: int, traffic: dict[tuple[int, int], float], **more: Any) -> BlockGraph:
    return unlimited_blocks(problem(tasks, traffic, more.pop("workers", [1, 1]), **more))


def clusters(count: int, size: int) -> dict[tuple[int, int], float]:
    """Sets of tasks that talk among each other, numbered at random, and a whisper from each to the next."""
    order = list(range(count * size))
    Random(count).shuffle(order)
    sets = [order[first : first + size] for first in range(0, count * size, size)]
    traffic = {(a, b): 5.0 for tasks in sets for a in tasks for b in tasks if a < b}
    return traffic | {(one[0], other[0]): 1.0 for one, other in pairwise(sets)}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_keeps_the_law(rule: PlacementRule) -> None:
    check_placement(rule)


# -- Algorithm 1


def test_consolidation_takes_the_heaviest_free_neighbour() -> None:
    graph = blocks(5, {(0, 1): 2, (0, 2): 7, (1, 2): 9, (1, 3): 1, (3, 4): 1})
    assert consolidate(graph) == [(0, 2), (1, 3), (4,)]  # 4 has no free neighbour: line 16


def test_consolidation_leaves_heavy_and_bound_blocks_apart() -> None:
    traffic = {(0, 1): 9, (0, 2): 1, (3, 2): 5}
    assert consolidate(blocks(4, traffic, cpu=[2, 2, 1, 1]), heaviest=3) == [(0, 2), (1,), (3,)]
    assert consolidate(blocks(4, traffic, pin={"t/1": "n0"})) == [(0, 2), (1,), (3,)]


def test_parents_keep_the_traffic_between_them() -> None:
    graph = blocks(4, {(0, 1): 9, (2, 3): 9, (0, 2): 1, (1, 3): 2})
    parents = consolidate(graph)
    merged = graph.merged(parents)
    assert (merged.links, merged.weight) == (({1: 3.0}, {0: 3.0}), (2.0, 2.0))
    assert expand(parents, [1, 0]) == [1, 1, 0, 0]


def test_levels_end_at_the_threshold_or_where_nothing_can_be_joined() -> None:
    chain = {(task, task + 1): 1.0 for task in range(15)}
    assert [len(level.blocks) for level in levels_of(blocks(16, chain), 4)] == [8, 4]
    assert [len(level.blocks) for level in levels_of(blocks(4, {}), 2)] == []


# -- Algorithm 2


def test_the_split_gathers_breadth_first_and_takes_the_least_cut() -> None:
    graph = blocks(6, {(0, 1): 5, (1, 2): 5, (2, 3): 1, (3, 4): 5, (4, 5): 5})
    assert set(split(graph, range(6), 0.5, 0.1)) in ({0, 1, 2}, {3, 4, 5})


def test_a_queue_that_runs_empty_goes_on_with_another_block() -> None:
    assert len(set(split(blocks(4, {}), range(4), 0.75, 0.1))) == 3


def test_where_no_start_is_balanced_the_best_balanced_part_is_taken() -> None:
    """From 2 one gets to 0 and to 11 of 16, with little across; from 0 or 1 to 7 or 9, with much."""
    graph = blocks(3, {(0, 2): 9, (0, 1): 1}, cpu=[7, 5, 4])
    assert set(split(graph, range(3), 0.5, 0.01)) in ({0}, {1, 2})


def test_uneven_nodes_get_their_shares() -> None:
    graph = blocks(12, clusters(3, 4), workers=[2, 0, 1, 3])
    node_of = bisect(graph, 0.1)
    assert [node_of.count(node) for node in range(4)] == [4, 0, 2, 6]


# -- ours


def test_ours_finds_clusters_that_were_dealt_out() -> None:
    made = problem(24, clusters(4, 6), [1, 1, 1, 1])
    assert coarse_grained().place(made, Random(0)).cut(made) == 3.0


def test_refinement_passes_through_full_nodes() -> None:
    """Three nodes, all full, and three blocks that are each one node off: no two can change places and both gain."""
    made = problem(6, {(0, 3): 2, (1, 4): 2, (2, 5): 2}, [1, 1, 1])
    graph = blocks_of(made)
    start = [0, 1, 2, 2, 0, 1]
    assert graph.cut(start) == 6
    assert graph.cut(refine(graph, start)) == 0


def test_refinement_never_makes_worse() -> None:
    for seed in range(40):
        rng = Random(seed)
        pairs = {(a, b): float(rng.randint(1, 9)) for a in range(10) for b in range(a) if rng.random() < 0.4}
        graph = blocks_of(problem(10, pairs, [2, 1, 1], cpu=[rng.randint(1, 5) for _ in range(10)]))
        start = [rng.randrange(3) for _ in range(10)]
        assert graph.badness(refine(graph, start)) <= graph.badness(start), seed


def test_many_tasks_are_consolidated_before_they_are_placed() -> None:
    made = problem(300, clusters(30, 10), [1] * 30)
    ours = coarse_grained().place(made, Random(0))
    assert ours.cut(made) == 29.0
    assert blocks_of(made).overload(ours.node_of) == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"factor": 0}, "factor must be a share between 0 and 1: factor=0"),
        ({"parents": 0}, "parents is not a positive integer: parents=0: a node needs one at least"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(OptionError) as caught:
        coarse_grained(**options)
    assert str(caught.value) == sentence


# -- round robin, workers, the optimum


def test_round_robin_deals_tasks_over_nodes_and_their_workers() -> None:
    placed = round_robin_placement().place(problem(7, {}, [1, 3]), Random(0))
    assert placed == Placement((0, 1, 1, 1, 0, 1, 1), (0, 0, 1, 2, 0, 0, 1))


def test_inside_a_node_tasks_go_over_its_workers_and_sets_as_one() -> None:
    made = problem(6, {}, [2, 1], together=[("t/0", "t/4")])
    assert over_workers(made, [0, 0, 0, 1, 0, 0]).worker_of == (0, 1, 0, 0, 0, 1)


def test_what_is_between_nodes_and_what_between_workers() -> None:
    made = problem(4, {(0, 1): 1, (0, 2): 2, (0, 3): 4}, [2, 1])
    placed = Placement((0, 0, 0, 1), (0, 1, 0, 0))
    assert (placed.cut(made), placed.between_workers(made), placed.loads(made)) == (4.0, 1.0, [3.0, 1.0])


def test_the_optimum_is_for_few_tasks() -> None:
    with pytest.raises(OptionError) as caught:
        optimal().place(problem(17, {}, [1, 1]), Random(0))
    assert str(caught.value) == (
        "too many tasks to try all placements: blocks=17 at_most=16: did you mean coarse_grained()?"
    )


# -- rules that break the law


@dataclass(frozen=True)
class _Broken:
    law: str
    balanced: bool = True
    name: str = "broken"

    def place(self, problem: PlacementProblem, rng: Random) -> Placement:
        good = optimal().place(problem, rng)
        last = len(problem.nodes) - 1
        if self.law.startswith("every task"):
            return replace(good, node_of=good.node_of[1:])
        if self.law.startswith("a task's worker"):
            return replace(good, worker_of=(99, *good.worker_of[1:]))
        if self.law.startswith("pins"):
            return over_workers(replace(problem, together=()), [last] * len(problem.tasks)) if problem.pins[0] else good
        if self.law.startswith("tasks to be together") and problem.together:
            worker_of = [0] * len(problem.tasks)
            worker_of[problem.together[0][0]] = 1
            return Placement((1,) * len(problem.tasks), tuple(worker_of))
        if self.law.startswith("no node has more") and problem.spread:
            return over_workers(problem, [1 if pin is None else pin for pin in problem.pins])
        if self.law.startswith("a balanced"):
            return over_workers(problem, [0] * len(problem.tasks))
        if self.law.startswith("equal placements"):
            return replace(good, worker_of=(hash("t") % problem.nodes[good.node_of[0]].workers, *good.worker_of[1:]))
        return good


SPREAD = placement_problem({"t": 4, "u": 2}, {"a": 2, "b": 9}, traffic={}, spread=["t"])
TOGETHER = placement_problem({"t": 4}, {"a": 2, "b": 2}, traffic={}, together=[("t/0", "t/1")], slack=9.0)
WIDE = placement_problem({"t": 4}, {"a": 99_991}, traffic={})


@pytest.mark.parametrize(
    ("law", "problems"),
    [
        ("every task gets one node and one worker", None),
        ("a task's worker is one that its node has", None),
        ("pins are kept", [placement_problem({"t": 2}, {"a": 1, "b": 1, "c": 1}, traffic={}, pin={"t": "b"})]),
        ("tasks to be together share a worker", [TOGETHER]),
        ("no node has more of a spread operator's tasks than most_of", [SPREAD]),
        ("a balanced rule loads no node above its limit", None),
        ("equal placements in any process", [WIDE]),
    ],
)
def test_a_broken_rule_is_found(law: str, problems: list[PlacementProblem] | None) -> None:
    with pytest.raises(AssertionError) as caught:
        check_placement(_Broken(law), problems=problems)
    assert str(caught.value).startswith(f"placement rule breaks its law: {law}: rule=broken problem=")


class _Forgetful:
    name, balanced = "forgetful", False

    def __init__(self) -> None:
        self.asked = 0

    def place(self, problem: PlacementProblem, rng: Random) -> Placement:
        self.asked += 1
        return over_workers(problem, [self.asked % 2] * len(problem.tasks))


def test_a_rule_that_remembers_is_found() -> None:
    with pytest.raises(AssertionError, match="equal problems and equal seeds give equal placements: rule=forgetful"):
        check_placement(_Forgetful(), problems=[problem(2, {}, [1, 1])], seeds=[0])


def test_nothing_to_check_is_refused() -> None:
    with pytest.raises(AssertionError, match="nothing to check: problems and seeds need at least one entry each"):
        check_placement(optimal(), seeds=())
