"""Algorithm 2 of TurboStream: split the blocks in two, and each half again, until every part has one node.

A part is gathered breadth first from a start block until it has its share of the weight. Every block is tried as a
start; among balanced parts, the one with the least traffic across is taken. Two things differ from the printed
algorithm. Line 22 must mean that the queue *is empty*; then the search goes on from a block that was not visited yet.
And if no start gives a balanced part, which the paper does not consider, the best balanced one is taken.

Nodes may have different numbers of workers, as in the authors' implementation: the first half of the nodes, rounded up,
is to have the same share of the weight as of the workers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence

from tailrace.policy.placement.blocks import BlockGraph


def bisect(blocks: BlockGraph, factor: float, starts: int | None = None) -> list[int]:
    """The node of each block. A part is balanced if its share of the weight differs from its target by less than
    ``factor``.

    With ``starts``, only about this number of blocks of each part is tried as a start; to try all takes quadratic time.
    """
    node_of = [0] * len(blocks)
    parts: list[tuple[Sequence[int], Sequence[int]]] = [(range(len(blocks)), blocks.usable)]
    while parts:
        members, nodes = parts.pop()
        if len(nodes) == 1:
            for block in members:
                node_of[block] = nodes[0]
        elif members:
            half = -(-len(nodes) // 2)
            workers = sum(blocks.room[node] for node in nodes)
            target = sum(blocks.room[node] for node in nodes[:half]) / workers
            every = 1 if starts is None else -(-len(members) // starts)
            gathered = split(blocks, members, target, factor, every)
            parts.append(([block for block in members if block in gathered], nodes[:half]))
            parts.append(([block for block in members if block not in gathered], nodes[half:]))
    return node_of


def split(blocks: BlockGraph, members: Sequence[int], target: float, factor: float, every: int = 1) -> Collection[int]:
    """The part of ``members`` that goes to the first half of the nodes. Every ``every``-th is tried as a start."""
    inside = frozenset(members)
    total = sum(blocks.weight[block] for block in members)
    found: list[tuple[bool, float, float, Collection[int]]] = []
    for start in members[::every]:
        gathered, balance = _gather(blocks, members, inside, start, target * total, factor * total)
        off = abs(balance - target * total)
        balanced = off < factor * total
        across = _traffic_across(blocks, inside, gathered)
        found.append((not balanced, across if balanced else off, across, gathered))
    return min(found, key=lambda entry: entry[:3])[3]


def _gather(
    blocks: BlockGraph, members: Sequence[int], inside: frozenset[int], start: int, target: float, factor: float
) -> tuple[Collection[int], float]:
    """Gather blocks breadth first, taking those that bring the weight nearer to its target."""
    queue, seen = deque([start]), {start}
    gathered: dict[int, None] = {}
    weight = 0.0
    rest = iter(members)
    while queue and weight < target:
        block = queue.popleft()
        if abs(weight + blocks.weight[block] - target) < abs(weight - target):
            gathered[block] = None
            weight += blocks.weight[block]
            for other in blocks.links[block]:
                if other in inside and other not in seen:
                    seen.add(other)
                    queue.append(other)
        if not queue and abs(weight - target) > factor:
            unseen = next((other for other in rest if other not in seen), None)
            if unseen is not None:
                seen.add(unseen)
                queue.append(unseen)
    return gathered, weight


def _traffic_across(blocks: BlockGraph, inside: frozenset[int], gathered: Collection[int]) -> float:
    return sum(
        traffic
        for block in gathered
        for other, traffic in blocks.links[block].items()
        if other in inside and other not in gathered
    )
