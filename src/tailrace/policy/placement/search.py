"""Searches a good placement of up to a few hundred blocks: refines many starts, then disturbs and refines the best.

Refinement ends in a local optimum, and how good that is depends on the start. Starts are the given placement, a plain
packing, packings in random order, and random nodes. Random nodes differ most, and refinement first brings them within
the limits.
"""

from __future__ import annotations

from random import Random

from tailrace.policy.placement.api import PlacementProblem
from tailrace.policy.placement.blocks import BlockGraph
from tailrace.policy.placement.limits import pack, pack_heaviest_first
from tailrace.policy.placement.refine import refine
from tailrace.policy.placement.settle import settle

STARTS = 4  # random starts of each kind for each block, up to DOZEN blocks
KICKS = 8  # disturbed placements for each block, up to DOZEN blocks
KICKED = 3  # blocks that are moved to disturb a placement
DOZEN = 12

SEARCHED = 6_000
"""Bound of blocks times nodes times tries, but there are always two tries. It takes tenths of a second on a dozen tasks
and a second on a thousand. With a third of the tries, one small graph in a thousand was placed a tenth worse than it
can be."""


def search(problem: PlacementProblem, blocks: BlockGraph, first: list[int], rng: Random) -> list[int]:
    """A placement that is no worse than ``first`` after that was changed to keep the constraints."""

    def refined(node_of: list[int]) -> list[int]:
        return refine(blocks, settle(problem, blocks, node_of))

    size = len(blocks) * len(blocks.usable)
    starts, kicks = (max(2, min(tries * min(len(blocks), DOZEN), SEARCHED // size)) for tries in (STARTS, KICKS))
    order, room = list(range(len(blocks))), [blocks.room[node] for node in blocks.usable]
    best = min((refined(start) for start in (first, pack_heaviest_first(problem, blocks))), key=blocks.badness)
    for _ in range(starts):
        rng.shuffle(order)
        anywhere = rng.choices(blocks.usable, room, k=len(blocks))
        best = min(best, refined(pack(blocks, order)), refined(anywhere), key=blocks.badness)
    for _ in range(kicks):
        kicked = list(best)
        for block in rng.choices(order, k=KICKED):
            kicked[block] = rng.choice(blocks.usable)
        best = min(best, refined(kicked), key=blocks.badness)
    return best
