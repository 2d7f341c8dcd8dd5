"""TurboStream's Algorithm 1: blocks are consolidated in pairs by heaviest traffic, level by level.

Line 16 of the paper says *u* where it must be *v*: a block without a free neighbour becomes a parent on its own.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from tailrace.policy.placement.blocks import BlockGraph


def consolidate(blocks: BlockGraph, heaviest: float = inf) -> list[tuple[int, ...]]:
    """One level: the blocks of each parent. No parent of two weighs more than ``heaviest``.

    Blocks that are pinned or spread stay as they are: where they may go is not for their neighbours to say.
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
    """Of the neighbours that are free, the one with the most traffic; of those, the first."""
    free = [
        (-traffic, other)
        for other, traffic in blocks.links[block].items()
        if not visited[other] and blocks.weight[other] <= room
    ]
    return min(free)[1] if free else None


class Level(NamedTuple):
    blocks: BlockGraph
    parents: list[tuple[int, ...]]  # of each block, what it was on the level before


def levels_of(blocks: BlockGraph, threshold: int, heaviest: float = inf) -> list[Level]:
    """Level by level until at most ``threshold`` parents are left, or none can be joined."""
    levels: list[Level] = []
    while len(blocks) > threshold:
        parents = consolidate(blocks, heaviest)
        if len(parents) == len(blocks):
            break
        blocks = blocks.merged(parents)
        levels.append(Level(blocks, parents))
    return levels


def expand(parents: list[tuple[int, ...]], node_of: list[int]) -> list[int]:
    """From the nodes of parents to those of their blocks."""
    nodes = [0] * sum(map(len, parents))
    for parent, blocks in enumerate(parents):
        for block in blocks:
            nodes[block] = node_of[parent]
    return nodes
