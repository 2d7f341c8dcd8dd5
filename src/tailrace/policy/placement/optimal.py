"""The best placement, found by trying all: for small problems, and to compare other rules with.

Decides by branch and bound on the cut. A branch ends when its cut cannot become smaller than the best found: it grows
at least by what each unplaced block would add on its best node. Of several empty and equal nodes, only one is tried.
Law: that of ``PlacementRule``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from random import Random

from tailrace.errors import OptionError
from tailrace.policy.placement.api import Placement, PlacementProblem, over_workers
from tailrace.policy.placement.blocks import BlockGraph
from tailrace.policy.placement.limits import blocks_of
from tailrace.policy.placement.settle import Counts

MOST_BLOCKS = 16
"""Blocks up to which the search takes seconds on three nodes. Its time is exponential in the number of blocks."""


@dataclass(frozen=True)
class Optimal:
    """The placement with the least traffic between nodes, within the limits. ``optimal()`` makes one."""

    name = "optimal"
    balanced = True

    def place(self, problem: PlacementProblem, rng: Random) -> Placement:
        blocks = blocks_of(problem)
        if len(blocks) > MOST_BLOCKS:
            raise OptionError(
                f"too many tasks to try all placements: blocks={len(blocks)} at_most={MOST_BLOCKS}: "
                "did you mean coarse_grained()?"
            )
        return over_workers(problem, blocks.tasks(_Search(blocks).run()))


def optimal() -> Optimal:
    """Find the best placement, where there are few enough tasks to try them all.

    Example:
        >>> from random import Random
        >>> from tailrace.policy import optimal, placement_problem
        >>> problem = placement_problem({"read": 2, "work": 2}, {"a": 2, "b": 2}, traffic={(0, 2): 5.0, (1, 3): 5.0})
        >>> placement = optimal().place(problem, Random(1))
        >>> placement.node_of[0] == placement.node_of[2]
        True
    """
    return Optimal()


class _Search:
    def __init__(self, blocks: BlockGraph) -> None:
        self._blocks = blocks
        self._order = _densest_first(blocks)
        self._node_of = [-1] * len(blocks)
        self._best = list(self._node_of)
        self._least = inf
        self._loads = [0.0] * len(blocks.room)
        self._near = [[0.0] * len(blocks.room) for _ in range(len(blocks))]  # traffic of a block with each node
        self._counts = Counts(blocks)
        self._grain = 1e-9 * sum(sum(links.values()) for links in blocks.links)

    def run(self) -> list[int]:
        self._place(0, 0.0)
        return self._best

    def _place(self, depth: int, cut: float) -> None:
        if cut + sum(self._must_add(block) for block in self._order[depth:]) + self._grain > self._least:
            return
        if depth == len(self._order):
            self._least, self._best = cut, list(self._node_of)
            return
        block = self._order[depth]
        placed_near = sum(self._near[block])
        for node in self._nodes_for(block):
            before = self._loads[node]
            self._put(block, node, 1)
            self._place(depth + 1, cut + placed_near - self._near[block][node])
            self._put(block, node, -1)
            self._loads[node] = before

    def _must_add(self, block: int) -> float:
        near = self._near[block]
        return sum(near) - max(near)

    def _nodes_for(self, block: int) -> list[int]:
        blocks = self._blocks
        pin = blocks.pin[block]
        if pin is not None:
            return [pin] if self._fits(block, pin) else []
        used = set(self._node_of)
        alike: set[tuple[int, float]] = set()
        nodes = []
        for node in blocks.usable:
            if not self._fits(block, node):
                continue
            if node not in used and node not in blocks.pin:
                kind = blocks.room[node], blocks.limit[node]
                if kind in alike:
                    continue
                alike.add(kind)
            nodes.append(node)
        return sorted(nodes, key=lambda node: -self._near[block][node])

    def _fits(self, block: int, node: int) -> bool:
        load = self._loads[node] + self._blocks.weight[block]
        return load <= self._blocks.limit[node] and self._counts.fits(block, node)

    def _put(self, block: int, node: int, sign: int) -> None:
        self._node_of[block] = node if sign > 0 else -1
        self._loads[node] += sign * self._blocks.weight[block]
        self._counts.add(block, node, sign)
        for other, traffic in self._blocks.links[block].items():
            self._near[other][node] += sign * traffic


def _densest_first(blocks: BlockGraph) -> list[int]:
    """Pinned blocks first, then always the block with the most traffic to those before: branches end early."""
    order: list[int] = [block for block in range(len(blocks)) if blocks.pin[block] is not None]
    left = [block for block in range(len(blocks)) if blocks.pin[block] is None]
    while left:
        placed = set(order)
        block = max(
            left,
            key=lambda block: (
                sum(traffic for other, traffic in blocks.links[block].items() if other in placed),
                sum(blocks.links[block].values()),
                -block,
            ),
        )
        order.append(block)
        left.remove(block)
    return order
