"""The coarse-grained scheduler of TurboStream (Wu et al. 2018), and ours, which begins with it.

Decides by the traffic between tasks and their weights. The paper consolidates tasks into parents (Algorithm 1), splits
the parents over the nodes (Algorithm 2), and deals the tasks of a node over its workers. Ours places the parents better
(``search``) and refines the placement again on every level down to the tasks, where parents come apart; its parents are
light enough to be moved. Law: that of ``PlacementRule``.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tailrace.errors import OptionError
from tailrace.policy.placement.api import Placement, PlacementProblem, over_workers
from tailrace.policy.placement.bisect import bisect
from tailrace.policy.placement.blocks import BlockGraph
from tailrace.policy.placement.consolidate import expand, levels_of
from tailrace.policy.placement.limits import blocks_of, pack_heaviest_first
from tailrace.policy.placement.refine import refine
from tailrace.policy.placement.search import search
from tailrace.policy.placement.settle import settle

FACTOR = 0.1
"""Imbalance that a bisection accepts. The paper does not say its value."""

PARENTS = 8
"""Parents for each node at which consolidation ends. The paper does not say its value; few cannot be balanced."""

BISECTED = 32
"""Starts of a bisection whose result is only a first placement. With all of them it took most of the time."""

FINEST = 64
"""Up to this number of blocks, none are consolidated, however few nodes there are."""


@dataclass(frozen=True)
class CoarseGrained:
    """Tasks that exchange many tuples go to one node. ``coarse_grained()`` makes one."""

    refined: bool = True
    factor: float = FACTOR
    parents: int = PARENTS

    @property
    def name(self) -> str:
        return "coarse_grained" if self.refined else "coarse_grained_paper"

    @property
    def balanced(self) -> bool:
        return self.refined

    def place(self, problem: PlacementProblem, rng: Random) -> Placement:
        blocks = blocks_of(problem)
        node_of = self._refined(problem, blocks, rng) if self.refined else self._as_printed(problem, blocks)
        return over_workers(problem, blocks.tasks(node_of))

    def _as_printed(self, problem: PlacementProblem, blocks: BlockGraph) -> list[int]:
        levels = levels_of(blocks, self.parents * len(blocks.usable))
        node_of = bisect(levels[-1].blocks if levels else blocks, self.factor)
        for level in reversed(levels):
            node_of = expand(level.parents, node_of)
        return settle(problem, blocks, node_of)

    def _refined(self, problem: PlacementProblem, blocks: BlockGraph, rng: Random) -> list[int]:
        parents = self.parents * len(blocks.usable)
        levels = levels_of(blocks, max(parents, FINEST), heaviest=2 * sum(blocks.weight) / parents)
        graphs = [blocks, *(level.blocks for level in levels)]
        coarsest = graphs.pop()
        node_of = search(problem, coarsest, bisect(coarsest, self.factor, BISECTED), rng)
        for level in reversed(levels):
            node_of = refine(graphs.pop(), expand(level.parents, node_of))
        if blocks.overload(node_of) > 0:  # some parents were too heavy for their nodes
            node_of = refine(blocks, pack_heaviest_first(problem, blocks))
        return node_of


def coarse_grained(*, refined: bool = True, factor: float = FACTOR, parents: int = PARENTS) -> CoarseGrained:
    """Place tasks that exchange many tuples on one node, after TurboStream.

    Args:
        refined: whether to improve the placement afterwards. ``False`` is the paper's rule alone, to compare with.
        factor: how far from its share a half may be for the paper's split to count as balanced.
        parents: how many consolidated tasks a node gets at first.

    Example:
        >>> from random import Random
        >>> from tailrace.policy import coarse_grained, placement_problem
        >>> problem = placement_problem({"read": 2, "work": 2}, {"a": 2, "b": 2}, traffic={(0, 2): 5.0, (1, 3): 5.0})
        >>> placement = coarse_grained().place(problem, Random(1))
        >>> placement.node_of[0] == placement.node_of[2]
        True
    """
    if not 0 < factor < 1:
        raise OptionError(f"factor must be a share between 0 and 1: factor={factor!r}")
    if not isinstance(parents, int) or parents < 1:
        raise OptionError(f"parents is not a positive integer: parents={parents!r}: a node needs one at least")
    return CoarseGrained(refined, factor, parents)
