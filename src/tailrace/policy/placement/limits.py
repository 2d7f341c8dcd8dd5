"""Limits: how much a node may carry.

A node's share of the load is its share of the workers; its limit is that share and some slack. But tasks cannot be
divided, and pinned and spread tasks have few nodes to go to. A plain packing is therefore made, heaviest block first,
each on the node that it fills least. As far as this packing exceeds the share of a node, every node may exceed its own.
So a placement within the limits always exists, and blocks of equal weight are dealt as evenly as their number allows. A
node may always carry what is pinned to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tailrace.policy.placement.api import PlacementProblem
from tailrace.policy.placement.blocks import BlockGraph, unlimited_blocks
from tailrace.policy.placement.settle import Counts, settle

GRAIN = 1e-9
"""Fraction of the whole load below which differences are rounding."""


def pack(blocks: BlockGraph, order: Iterable[int]) -> list[int]:
    """Place pinned blocks first, then the others in this order, each on the node that is the least full with it.

    Traffic is ignored. Spread operators are respected as long as some node fits.
    """
    node_of = [blocks.usable[0] if pin is None else pin for pin in blocks.pin]
    loads, counts = [0.0] * len(blocks.room), Counts(blocks)
    for block, pin in enumerate(blocks.pin):
        if pin is not None:
            loads[pin] += blocks.weight[block]
            counts.add(block, pin)
    for block in order:
        if blocks.pin[block] is not None:
            continue
        fitting = [node for node in blocks.usable if counts.fits(block, node)] if blocks.bound[block] else ()
        weight = blocks.weight[block]
        node = min(fitting or blocks.usable, key=lambda node: ((loads[node] + weight) / blocks.room[node], node))
        node_of[block] = node
        loads[node] += weight
        counts.add(block, node)
    return node_of


def pack_heaviest_first(problem: PlacementProblem, blocks: BlockGraph) -> list[int]:
    """A placement that keeps the constraints, and the limits if these were made from the same blocks."""
    order = sorted(range(len(blocks)), key=lambda block: (-blocks.weight[block], block))
    return settle(problem, blocks, pack(blocks, order))


def blocks_of(problem: PlacementProblem) -> BlockGraph:
    """The blocks of a problem with the limits of its nodes. Raises ``OptionError`` if no placement is possible."""
    blocks = unlimited_blocks(problem)
    packed = pack_heaviest_first(problem, blocks)
    total, workers = sum(blocks.weight), sum(blocks.room)
    share = [total * room / workers for room in blocks.room]
    loads, pinned = blocks.loads(packed), [0.0] * len(blocks.room)
    for block, pin in enumerate(blocks.pin):
        if pin is not None:
            pinned[pin] += blocks.weight[block]
    chosen = {packed[block] for block, pin in enumerate(blocks.pin) if pin is None}
    stretch = max((loads[node] / share[node] for node in chosen if share[node]), default=1.0)
    most = max(stretch, 1 + problem.slack)
    limit = tuple(max(own * most, pins) + GRAIN * total for own, pins in zip(share, pinned, strict=True))
    return replace(blocks, limit=limit)
