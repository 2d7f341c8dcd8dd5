"""Algorithm 1 of TurboStream: join blocks in pairs by heaviest traffic, level by level.

Line 16 of the paper says *u* where it must be *v*: a block without a free neighbour becomes a parent on its own.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from tailrace.policy.placement.blocks import BlockGraph


def consolidate(blocks: BlockGraph, heaviest: float = inf) -> list[tuple[int, ...]]:
    """Make one level: the blocks of each parent. No parent of two blocks weighs more than ``heaviest``.

    Blocks that are pinned or spread stay alone, because their constraints must not bind their neighbours.
    """
    parents: list[tuple[int, ...]] = []
    visited = list(blocks.bound)
    for block in range(len(blocks)):
        if blocks.bound[block]:
            parents.append((block,))
        elif not visited[block]:
            visited[block] = True
            room = heaviest - blocks.weight[block]
            partner = _heaviest_free(blocks, block, visited, room)
            if partner is None:
                parents.append((block,))
            else:
                visited[partner] = True
                parents.append((block, partner))
    return parents


def _heaviest_free(blocks: BlockGraph, block: int, visited: list[bool], room: float) -> int | None:
    """The free neighbour with the most traffic, the first of several."""
    free = [
        (-traffic, other)
        for other, traffic in blocks.links[block].items()
        if not visited[other] and blocks.weight[other] <= room
    ]
    return min(free)[1] if free else None


class Level(NamedTuple):
    """A block graph after a consolidation, and how its blocks were joined."""

    blocks: BlockGraph
    parents: list[tuple[int, ...]]  # for each block, its blocks on the level below


def levels_of(blocks: BlockGraph, threshold: int, heaviest: float = inf) -> list[Level]:
    """Consolidate until at most ``threshold`` parents are left, or none can be joined."""
    levels: list[Level] = []
    while len(blocks) > threshold:
        parents = consolidate(blocks, heaviest)
        if len(parents) == len(blocks):
            break
        blocks = blocks.merged(parents)
        levels.append(Level(blocks, parents))
    return levels


def expand(parents: list[tuple[int, ...]], node_of: list[int]) -> list[int]:
    """The nodes of blocks from the nodes of their parents."""
    nodes = [0] * sum(map(len, parents))
    for parent, blocks in enumerate(parents):
        for block in blocks:
            nodes[block] = node_of[parent]
    return nodes
