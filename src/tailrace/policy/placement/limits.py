"""How much a node may carry.

Its share of the load is its share of the workers, and some slack on top is its limit. But tasks cannot be divided, and
what is pinned or spread must go where it must. So a plain packing is made, heaviest first, each block where it fills a
node least; and as far as that goes above a share, every node may. There is thus always a placement within the limits,
and blocks of one weight are dealt out as evenly as their number allows. What is pinned to a node it may always carry.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tailrace.policy.placement.api import PlacementProblem
from tailrace.policy.placement.blocks import BlockGraph, unlimited_blocks
from tailrace.policy.placement.settle import Counts, settle

GRAIN = 1e-9
"""Of the whole load: less than this is rounding."""


def pack(blocks: BlockGraph, order: Iterable[int]) -> list[int]:
    """Pinned blocks where they belong, the others in this order, each to the node that is then fullest by least.

    Traffic does not count. Spread operators do, as long as some node fits.
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
    """A placement that keeps the constraints and, if these blocks are what limits were made for, the limits."""
    order = sorted(range(len(blocks)), key=lambda block: (-blocks.weight[block], block))
    return settle(problem, blocks, pack(blocks, order))


def blocks_of(problem: PlacementProblem) -> BlockGraph:
    """The blocks of a problem, with the limits of its nodes; or the error that its constraints leave no placement."""
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
