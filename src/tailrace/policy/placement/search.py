"""A good placement of a few hundred blocks: many starts, each refined, and then the best of them disturbed and refined.

Refinement ends in the nearest placement from which no pass leads on, and how good that is depends on where it began.
Starts are the one given, a plain packing, packings in random order, and random nodes: these differ most, and what is
above the limits is the first thing that refinement sees to.
"""

from __future__ import annotations

from random import Random

from tailrace.policy.placement.api import PlacementProblem
from tailrace.policy.placement.blocks import BlockGraph
from tailrace.policy.placement.limits import pack, pack_heaviest_first
from tailrace.policy.placement.refine import refine
from tailrace.policy.placement.settle import settle

STARTS = 4  # of each random kind, for each block up to a dozen
KICKS = 8  # likewise
KICKED = 3  # blocks
DOZEN = 12

SEARCHED = 6_000
"""Blocks times nodes times tries, at most, though always two tries: tenths of a second on a dozen tasks, a second on a
thousand. With a third of the tries, some small graph in a thousand was placed a tenth worse than it can be."""


def search(problem: PlacementProblem, blocks: BlockGraph, first: list[int], rng: Random) -> list[int]:
    """A placement that is no worse than ``first``, changed where constraints do not allow it."""

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
