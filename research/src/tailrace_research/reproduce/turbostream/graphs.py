"""Graphs for TurboStream's scheduler: the paper's topologies, and small graphs of which the best placement is known.

All follow from the parameters of a cell, ``tasks``, ``code`` and ``stream``, alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate, combinations, pairwise, permutations, product
from random import Random
from typing import NamedTuple

from tailrace.policy.hashing import stable_hash
from tailrace.policy.placement.api import PlacementProblem
from tailrace.policy.placement.limits import blocks_of
from tailrace.policy.placement.problem import placement_problem


class Graph(NamedTuple):
    """Operators with their tasks, what pairs of tasks send by the topology's structure, and what they do send."""

    operators: Mapping[str, int]
    structure: Mapping[tuple[int, int], float]
    traffic: Mapping[tuple[int, int], float]
    cpu: Sequence[float]

    def problem(self, nodes: Mapping[str, int]) -> PlacementProblem:
        return placement_problem(self.operators, nodes, traffic=self.traffic, cpu=self.cpu)

    def structural_problem(self, nodes: Mapping[str, int]) -> PlacementProblem:
        return placement_problem(self.operators, nodes, traffic=self.structure)


def nodes_of(shape: str) -> dict[str, int]:
    """``2+1`` is two workers on one node and one on another."""
    return {f"node{number}": int(workers) for number, workers in enumerate(shape.split("+"))}


# -- topologies: every edge is shuffled, every operator passes on what it gets


def _layers(operators: Mapping[str, int], edges: Sequence[tuple[str, str]]) -> Graph:
    first = dict(zip(operators, accumulate(operators.values(), initial=0), strict=False))
    rate = dict.fromkeys(operators, 0.0)
    for name in operators:
        if all(downstream != name for _, downstream in edges):
            rate[name] = 1.0
    traffic: dict[tuple[int, int], float] = {}
    for upstream, downstream in edges:  # in topological order
        rate[downstream] += rate[upstream]
        ups, downs = operators[upstream], operators[downstream]
        for a, b in product(range(ups), range(downs)):
            traffic[first[upstream] + a, first[downstream] + b] = rate[upstream] / (ups * downs)
    return Graph(operators, traffic, traffic, [1.0] * sum(operators.values()))


def _chain(names: Sequence[str], tasks: int, **counts: int) -> Graph:
    return _layers({name: counts.get(name, tasks) for name in names}, list(pairwise(names)))


def _sol(tasks: int) -> Graph:
    """One spout, then five bolts in a row."""
    return _chain(["spout", "bolt1", "bolt2", "bolt3", "bolt4", "bolt5"], tasks, spout=1)


def _throughput(tasks: int) -> Graph:
    return _chain(["spout", "identity", "ack"], tasks)


def _star(tasks: int) -> Graph:
    """One task that feeds many operators of one."""
    leaves = [f"leaf{number}" for number in range(tasks)]
    return _layers({"hub": 1, **dict.fromkeys(leaves, 1)}, [("hub", leaf) for leaf in leaves])


def _fan_in(tasks: int) -> Graph:
    """Three sources into one operator, and that into a sink."""
    sources = ["a", "b", "c"]
    operators = {**dict.fromkeys(sources, tasks), "join": tasks, "sink": 1}
    return _layers(operators, [*((source, "join") for source in sources), ("join", "sink")])


TOPOLOGIES = {
    "sol": _sol,
    "throughput": _throughput,
    "chain": lambda tasks: _chain(["source", "parse", "score", "sink"], tasks),
    "star": _star,
    "fan_in": _fan_in,
}


def _skewed(tasks: int, stream: int) -> Graph:
    """The Throughput Test with pairs that differ: each sends an exponential multiple of what it would if all were even.

    A task costs what it receives and sends.
    """
    even = _throughput(tasks)
    rng = Random(stable_hash(("turbostream", "skewed", tasks, stream)))
    traffic = {pair: tuples * rng.expovariate(1.0) for pair, tuples in even.structure.items()}
    cpu = [0.0] * len(even.cpu)
    for (a, b), tuples in traffic.items():
        cpu[a] += tuples
        cpu[b] += tuples
    return Graph(even.operators, even.structure, traffic, cpu)


# -- small graphs


def _random(tasks: int, stream: int) -> Graph:
    """Some sparse, some dense; traffic of 1 to 20; half of them with tasks that weigh 1 to 8."""
    rng = Random(stable_hash(("turbostream", "random", tasks, stream)))
    density = rng.choice((0.3, 0.5, 0.8))
    traffic = {pair: float(rng.randint(1, 20)) for pair in combinations(range(tasks), 2) if rng.random() < density}
    cpu = [float(rng.randint(1, 8)) if stream % 2 else 1.0 for _ in range(tasks)]
    return Graph({"task": tasks}, traffic, traffic, cpu)


def _atlas(tasks: int, code: int) -> Graph:
    traffic = dict.fromkeys(_edges(tasks, code), 1.0)
    return Graph({"task": tasks}, traffic, traffic, [1.0] * tasks)


def _edges(vertices: int, code: int) -> list[tuple[int, int]]:
    """A graph's code has a bit for each pair of its vertices."""
    return [pair for bit, pair in enumerate(combinations(range(vertices), 2)) if code >> bit & 1]


@cache
def connected_graphs(vertices: int) -> tuple[int, ...]:
    """Codes of all connected graphs, one of each shape.

    From a connected graph some vertex can be taken away that leaves it connected: each is a smaller one and a vertex.
    """
    if vertices == 1:
        return (0,)
    bit = {pair: number for number, pair in enumerate(combinations(range(vertices), 2))}
    last = vertices - 1
    found: set[int] = set()
    for smaller in connected_graphs(last):
        base = [*_edges(last, smaller)]
        for joined in range(1, 2**last):
            edges = [*base, *((other, last) for other in range(last) if joined >> other & 1)]
            found.add(_canonical(vertices, edges, bit))
    return tuple(sorted(found))


def _canonical(vertices: int, edges: Sequence[tuple[int, int]], bit: Mapping[tuple[int, int], int]) -> int:
    """The least code over all numberings that put vertices in the order of their degrees."""
    degree = [sum(vertex in edge for edge in edges) for vertex in range(vertices)]
    groups = [[vertex for vertex in range(vertices) if degree[vertex] == wanted] for wanted in sorted(set(degree))]
    least = None
    for order in product(*map(permutations, groups)):
        place = {vertex: number for number, vertex in enumerate(vertex for group in order for vertex in group)}
        code = sum(1 << bit[min(place[a], place[b]), max(place[a], place[b])] for a, b in edges)
        least = code if least is None else min(least, code)
    assert least is not None
    return least


def graph_of(family: str, tasks: int, code: int, stream: int) -> Graph:
    if family == "atlas":
        return _atlas(tasks, code)
    if family == "random":
        return _random(tasks, stream)
    if family == "skewed":
        return _skewed(tasks, stream)
    return TOPOLOGIES[family](tasks)


# -- the best placement where tasks of an operator are alike


def best_by_counts(graph: Graph, shape: str) -> list[int]:
    """The best placement on two nodes of a topology whose tasks differ only by operator: by counts of tasks.

    There are few enough of these where there are too many placements.
    """
    nodes = nodes_of(shape)
    assert len(nodes) == 2, f"counts of tasks are tried on two nodes only: nodes={shape}"
    blocks = blocks_of(graph.problem(nodes))
    counts = list(graph.operators.values())
    return min(
        (node_of for node_of in _by_counts(counts) if blocks.overload(node_of) == 0),
        key=blocks.cut,
    )


def _by_counts(counts: Sequence[int]) -> Iterator[list[int]]:
    for here in product(*(range(tasks + 1) for tasks in counts)):
        yield [int(index >= first) for first, tasks in zip(here, counts, strict=True) for index in range(tasks)]
