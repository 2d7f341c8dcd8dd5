"""TurboStream's scheduler (Sec. V and VI): where its tasks go, and what that leaves between nodes.

Round robin, the paper's rule, and ours place the paper's two topologies; and, together with a search of all placements,
every small graph there is. A cell is one graph under one rule. Tasks, traffic and nodes are given: nothing is simulated
over time, and what latencies follow from a placement is a model of costs by hop (``figures``).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from random import Random
from statistics import median
from time import perf_counter
from typing import Any

from tailrace.policy.hashing import stable_hash
from tailrace.policy.placement.api import Placement, PlacementProblem, PlacementRule, over_workers
from tailrace.policy.placement.coarse import coarse_grained
from tailrace.policy.placement.limits import blocks_of
from tailrace.policy.placement.optimal import MOST_BLOCKS, optimal
from tailrace.policy.placement.problem import placement_problem
from tailrace.policy.placement.round_robin import round_robin_placement
from tailrace_research.reproduce.study import Cell, Claim, Study
from tailrace_research.reproduce.turbostream.figures import (
    BEST,
    OFFLINE,
    OURS,
    PAPER,
    ROUND_ROBIN,
    figure_9,
    figure_cut,
    table_2,
)
from tailrace_research.reproduce.turbostream.graphs import Graph, best_by_counts, connected_graphs, graph_of, nodes_of

RULES: dict[str, PlacementRule] = {
    rule.name: rule for rule in (round_robin_placement(), coarse_grained(refined=False), coarse_grained(), optimal())
}
COMPARED = (ROUND_ROBIN, PAPER, OURS, BEST)

SHAPES = ("1+1", "2+1", "1+1+1", "2+1+1", "3+2+1")
VERTICES = range(2, 7)
RANDOM_TASKS = (8, 10, 12)
SMALL = {"sol": (1, 2, 3), "throughput": (2, 3, 4, 5), "chain": (2, 3, 4), "star": (5, 8, 11), "fan_in": (1, 2, 3)}

TABLE_2 = ("1+1+1+1+1+1+1+1", "2+2+2+2", "4+4", "1", "1+1+1+1", "2+2", "1+1", "2")
TABLE_2_TASKS = 8  # of each bolt, so that every worker has equally many

SOL_TASKS = range(1, 7)
THROUGHPUT_TASKS = 4
THROUGHPUT = ("1+1+1+1", "1+1", "2+2", "4", "2")
SKEWED = ("1+1+1+1", "1+1")

PARAMETERS = {"family": str, "tasks": int, "code": int, "nodes": str, "rule": str, "stream": int, "seed": int}
MEASURES = {"cut": float, "between_workers": float, "total": float, "above_limits": float, "fullest": float}


def run_cell(cell: Cell) -> dict[str, Any]:
    """A rule whose name ends in ``_offline`` sees the topology's structure, any other what tasks send and cost."""
    graph = graph_of(cell["family"], cell["tasks"], cell["code"], cell["stream"])
    nodes = nodes_of(cell["nodes"])
    problem = graph.problem(nodes)
    placement = _place(cell, graph, problem)
    limit, loads = blocks_of(problem).limit, placement.loads(problem)
    total_cpu, workers = sum(problem.cpu), sum(nodes.values())
    return {
        "cut": placement.cut(problem),
        "between_workers": placement.between_workers(problem),
        "total": problem.total_traffic,
        "above_limits": sum(max(0.0, load - most) for load, most in zip(loads, limit, strict=True)),
        "fullest": max(load * workers / room / total_cpu for load, room in zip(loads, nodes.values(), strict=True)),
    }


def _place(cell: Cell, graph: Graph, problem: PlacementProblem) -> Placement:
    name, nodes = cell["rule"], nodes_of(cell["nodes"])
    if name == BEST and len(problem.tasks) > MOST_BLOCKS:
        return over_workers(problem, best_by_counts(graph, cell["nodes"]))
    seen = graph.structural_problem(nodes) if name.endswith(OFFLINE) else problem
    rng = Random(stable_hash(("turbostream", cell["stream"], cell["seed"])))
    return RULES[name.removesuffix(OFFLINE)].place(seen, rng)


def _cells(
    family: str, tasks: int, shapes: Iterable[str], rules: Iterable[str], streams: int, seeds: int, code: int = 0
) -> list[Cell]:
    """Only ours has random choices to repeat."""
    return [
        dict(zip(PARAMETERS, (family, tasks, code, nodes, rule, stream, seed), strict=True))
        for nodes, rule, stream in product(shapes, rules, range(streams))
        for seed in range(seeds if rule == OURS else 1)
    ]


def small_graphs(streams: int, seeds: int) -> list[Cell]:
    """Every connected graph of up to six tasks, random ones of up to twelve, topologies of up to sixteen."""
    cells: list[Cell] = []
    for tasks in VERTICES:
        shapes = [shape for shape in SHAPES if len(nodes_of(shape)) <= tasks]
        for code in connected_graphs(tasks):
            cells += _cells("atlas", tasks, shapes, COMPARED, 1, seeds, code)
    for tasks in RANDOM_TASKS:
        cells += _cells("random", tasks, SHAPES, COMPARED, streams, seeds)
    for family, counts in SMALL.items():
        for tasks in counts:
            cells += _cells(family, tasks, SHAPES, COMPARED, 1, seeds)
    return cells


def distributions(streams: int, seeds: int) -> list[Cell]:
    return _cells("sol", TABLE_2_TASKS, TABLE_2, (ROUND_ROBIN, PAPER, OURS), 1, seeds)


def benchmarks(streams: int, seeds: int) -> list[Cell]:
    cells: list[Cell] = []
    for tasks in SOL_TASKS:
        cells += _cells("sol", tasks, ["4+4"], COMPARED, 1, seeds)
    cells += _cells("throughput", THROUGHPUT_TASKS, THROUGHPUT, (ROUND_ROBIN, PAPER, OURS), 1, seeds)
    offline = (PAPER + OFFLINE, OURS + OFFLINE)
    cells += _cells("skewed", THROUGHPUT_TASKS, SKEWED, (ROUND_ROBIN, PAPER, OURS, *offline), streams, seeds)
    return cells


def timings() -> list[Claim]:
    """A thousand tasks on fifty nodes, as dense and as deep as topologies get."""
    claims = []
    for key, operators, tasks in (("place_1000_s", 10, 100), ("place_1000_deep_s", 50, 20)):
        problem = _big_chain(operators, tasks)
        text = f"{operators} operators of {tasks} tasks on 50 nodes of 4 workers, seconds"
        claims.append(Claim(key, text, "", None, median(_seconds(problem) for _ in range(3)), where="median of 3"))
    return claims


def _big_chain(operators: int, tasks: int) -> PlacementProblem:
    pairs = product(range(operators - 1), range(tasks), range(tasks))
    traffic = {(upper * tasks + a, (upper + 1) * tasks + b): 1.0 for upper, a, b in pairs}
    counts = {f"operator{number}": tasks for number in range(operators)}
    return placement_problem(counts, {f"node{number}": 4 for number in range(50)}, traffic=traffic)


def _seconds(problem: PlacementProblem) -> float:
    begun = perf_counter()
    RULES[OURS].place(problem, Random(0))
    return perf_counter() - begun


TURBOSTREAM = Study(
    name="turbostream",
    parameters=PARAMETERS,
    measures=MEASURES,
    run_cell=run_cell,
    figures=(figure_cut(small_graphs), table_2(distributions), figure_9(benchmarks)),
    modules=("tailrace_research.reproduce.turbostream.study", "tailrace_research.reproduce.turbostream.graphs"),
    timings=timings,
)
