"""Blocks: tasks that go to the same node, because the problem asks for it or because they were consolidated.

All placement rules work on a graph of blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

from tailrace.policy.placement.api import PlacementProblem


@dataclass(frozen=True)
class BlockGraph:
    """Blocks with their weights, traffic and constraints, and the nodes with their limits."""

    members: tuple[tuple[int, ...], ...]  # the tasks of each block
    weight: tuple[float, ...]  # of each block
    links: tuple[dict[int, float], ...]  # the neighbours of each block, and the traffic with them
    pin: tuple[int | None, ...]  # the node that each block is pinned to
    of_spread: tuple[tuple[tuple[int, int], ...], ...]  # for each block: spread operators, and how many tasks of them
    most_of: tuple[int, ...]  # for each spread operator: most tasks on one node
    limit: tuple[float, ...]  # most weight of each node
    room: tuple[int, ...]  # workers of each node; a node without any takes no tasks

    def __len__(self) -> int:
        return len(self.members)

    @cached_property
    def usable(self) -> tuple[int, ...]:
        return tuple(node for node, workers in enumerate(self.room) if workers)

    @cached_property
    def bound(self) -> tuple[bool, ...]:
        """For each block, whether it is pinned or has tasks of a spread operator."""
        return tuple(pin is not None or bool(spread) for pin, spread in zip(self.pin, self.of_spread, strict=True))

    def loads(self, node_of: Sequence[int]) -> list[float]:
        loads = [0.0] * len(self.room)
        for block, node in enumerate(node_of):
            loads[node] += self.weight[block]
        return loads

    def overload(self, node_of: Sequence[int]) -> float:
        """The weight above the limits, of all nodes together."""
        return overload(self.loads(node_of), self.limit)

    def cut(self, node_of: Sequence[int]) -> float:
        return sum(
            traffic
            for block, links in enumerate(self.links)
            for other, traffic in links.items()
            if block < other and node_of[block] != node_of[other]
        )

    def badness(self, node_of: Sequence[int]) -> tuple[float, float]:
        """The measure of a placement: overload first, then the cut. Smaller is better."""
        return self.overload(node_of), self.cut(node_of)

    def tasks(self, node_of: Sequence[int]) -> list[int]:
        """The node of each task."""
        nodes = [0] * sum(map(len, self.members))
        for block, tasks in enumerate(self.members):
            for task in tasks:
                nodes[task] = node_of[block]
        return nodes

    def merged(self, parents: Sequence[Sequence[int]]) -> BlockGraph:
        """The graph with blocks joined into larger ones, with the same limits."""
        parent_of = {block: parent for parent, blocks in enumerate(parents) for block in blocks}
        links: list[dict[int, float]] = [{} for _ in parents]
        for block, neighbours in enumerate(self.links):
            mine = links[parent_of[block]]
            for other, traffic in neighbours.items():
                parent = parent_of[other]
                if parent != parent_of[block]:
                    mine[parent] = mine.get(parent, 0.0) + traffic
        return replace(
            self,
            members=tuple(tuple(task for block in blocks for task in self.members[block]) for blocks in parents),
            weight=tuple(sum(self.weight[block] for block in blocks) for blocks in parents),
            links=tuple(links),
            pin=tuple(_first(self.pin[block] for block in blocks) for blocks in parents),
            of_spread=tuple(_added(self.of_spread[block] for block in blocks) for blocks in parents),
        )


def overload(loads: Sequence[float], limits: Sequence[float]) -> float:
    """By how much loads exceed their limits, in all."""
    return sum(load - limit for load, limit in zip(loads, limits, strict=True) if load > limit)


def _first(pins: Iterable[int | None]) -> int | None:
    return next((pin for pin in pins if pin is not None), None)


def _added(counts: Iterable[Iterable[tuple[int, int]]]) -> tuple[tuple[int, int], ...]:
    added: dict[int, int] = {}
    for spread, count in (pair for pairs in counts for pair in pairs):
        added[spread] = added.get(spread, 0) + count
    return tuple(added.items())


def unlimited_blocks(problem: PlacementProblem) -> BlockGraph:
    """The blocks of a problem, without limits: one for each set of tasks that must be together, one for each other."""
    links: list[dict[int, float]] = [{} for _ in problem.tasks]
    for a, b, tuples in problem.traffic:
        links[a][b] = links[b][a] = tuples
    single = BlockGraph(
        members=tuple((task,) for task in range(len(problem.tasks))),
        weight=problem.cpu,
        links=tuple(links),
        pin=problem.pins,
        of_spread=tuple(
            tuple((spread, 1) for spread, tasks in enumerate(problem.spread) if task in tasks)
            for task in range(len(problem.tasks))
        ),
        most_of=problem.most_of,
        limit=(inf,) * len(problem.nodes),
        room=tuple(node.workers for node in problem.nodes),
    )
    leader = {task: tasks for tasks in problem.together for task in tasks}
    parents = [leader.get(task, (task,)) for task in range(len(problem.tasks)) if leader.get(task, (task,))[0] == task]
    return single.merged(parents) if problem.together else single
