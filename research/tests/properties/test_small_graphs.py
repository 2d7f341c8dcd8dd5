"""Placements of small graphs against the least cut there is."""

from __future__ import annotations

from random import Random

import pytest

from tailrace.policy.placement.api import over_workers
from tailrace.policy.placement.coarse import coarse_grained
from tailrace.policy.placement.optimal import optimal
from tailrace_research.reproduce.turbostream.graphs import best_by_counts, connected_graphs, graph_of, nodes_of


@pytest.mark.parametrize("shape", ["2+1", "1+1+1"])
def test_ours_is_within_a_tenth_of_the_least_on_every_connected_graph_of_five_tasks(shape: str) -> None:
    for code in connected_graphs(5):
        problem = graph_of("atlas", 5, code, 0).problem(nodes_of(shape))
        least = optimal().place(problem, Random(0)).cut(problem)
        assert coarse_grained().place(problem, Random(0)).cut(problem) <= 1.1 * least, code


@pytest.mark.parametrize(("family", "tasks"), [("sol", 2), ("throughput", 3), ("fan_in", 2), ("star", 8)])
@pytest.mark.parametrize("shape", ["1+1", "2+1"])
def test_counts_of_tasks_tell_the_least_cut_of_a_topology(family: str, tasks: int, shape: str) -> None:
    graph = graph_of(family, tasks, 0, 0)
    problem = graph.problem(nodes_of(shape))
    least = optimal().place(problem, Random(0)).cut(problem)
    assert over_workers(problem, best_by_counts(graph, shape)).cut(problem) == pytest.approx(least)
