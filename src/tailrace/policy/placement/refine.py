"""Refinement: improves a placement by moves between nodes (Fiduccia and Mattheyses 1982) and by swaps.

A pass moves blocks one by one, each at most once, always the one that gains most, even if the gain is negative. At the
end of the pass the best placement on the way stays. A move may put a node above its limit by one block; the next move
is then out of that node. In this way a pass finds chains of moves through full nodes as well as moves into free room.
Passes go on until one finds nothing. If there are few blocks, the best of all swaps is tried as well.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf

from tailrace.policy.placement.blocks import BlockGraph, overload
from tailrace.policy.placement.settle import Counts

PASSES = 8
"""Most passes. Most placements do not improve any more after three."""

STALL = 60
"""Moves without an improvement after which a pass ends, so that a thousand tasks take seconds."""

SWAPPED = 40
"""Blocks up to which all pairs are tried, which takes quadratic time for each swap."""


def refine(blocks: BlockGraph, node_of: list[int]) -> list[int]:
    """A placement that is no worse than ``node_of``, and keeps the constraints if that did."""
    state = _State(blocks, node_of)
    for _ in range(PASSES):
        found = _move_pass(state)
        if len(blocks) <= SWAPPED:
            found = _swap_pass(state) or found
        if not found:
            break
    return state.node_of


class _State:
    """A placement, and the traffic of each block with each node."""

    def __init__(self, blocks: BlockGraph, node_of: list[int]) -> None:
        self.blocks = blocks
        self.node_of = list(node_of)
        self.loads = blocks.loads(node_of)
        self.cut = blocks.cut(node_of)
        self.near = [[0.0] * len(blocks.room) for _ in range(len(blocks))]
        for block, links in enumerate(blocks.links):
            mine = self.near[block]
            for other, traffic in links.items():
                mine[node_of[other]] += traffic
        self.counts = Counts(blocks)
        for block, node in enumerate(node_of):
            self.counts.add(block, node)
        self.grain = 1e-9 * sum(map(sum, self.near))

    def badness(self) -> tuple[float, float]:
        return overload(self.loads, self.blocks.limit), self.cut

    def move(self, block: int, node: int) -> None:
        here, near, blocks = self.node_of[block], self.near, self.blocks
        self.cut += near[block][here] - near[block][node]
        self.node_of[block] = node
        self.loads[here] -= blocks.weight[block]
        self.loads[node] += blocks.weight[block]
        if blocks.of_spread[block]:
            self.counts.add(block, here, -1)
            self.counts.add(block, node)
        for other, traffic in blocks.links[block].items():
            row = near[other]
            row[here] -= traffic
            row[node] += traffic

    def most_over(self) -> int | None:
        limit = self.blocks.limit
        node = max(self.blocks.usable, key=lambda node: self.loads[node] - limit[node])
        return node if self.loads[node] > limit[node] else None


# -- moves


def _move_pass(state: _State) -> bool:
    """Move blocks. Returns whether the placement has improved."""
    queue = _Candidates(state)
    best, best_length = state.badness(), 0
    moves: list[tuple[int, int]] = []  # block and where it was
    while len(moves) - best_length < STALL:
        picked = queue.pick(state.most_over())
        if picked is None:
            break
        block, node = picked
        moves.append((block, state.node_of[block]))
        queue.move(block, node)
        badness = state.badness()
        if badness[0] < best[0] or (badness[0] == best[0] and badness[1] < best[1] - state.grain):
            best, best_length = badness, len(moves)
    for block, node in reversed(moves[best_length:]):
        state.move(block, node)
    return best_length > 0


class _Candidates:
    """Blocks that may still move in this pass, by what they would gain.

    Each node has a heap of its blocks by an upper bound of their gain. A bound is raised when a neighbour moves, and
    lowered to the exact gain when its block comes to the top.
    """

    def __init__(self, state: _State) -> None:
        self._state = state
        blocks = state.blocks
        self._free = [pin is None for pin in blocks.pin]
        self._bound = [-inf] * len(blocks)
        self._heaps: list[list[tuple[float, int]]] = [[] for _ in blocks.room]
        for block, near in enumerate(state.near):
            if self._free[block]:
                node = state.node_of[block]
                here = near[node]
                near[node] = -1.0
                self._bound[block] = max(near) - here
                near[node] = here
                self._heaps[node].append((-self._bound[block], block))
        for heap in self._heaps:
            heapify(heap)

    def pick(self, over: int | None) -> tuple[int, int] | None:
        """The block that gains most, and its target. If a node is over its limit, only that node's blocks count."""
        blocks, heaps = self._state.blocks, self._heaps
        aside: list[tuple[float, int]] = []
        picked = None
        while picked is None:
            tops = [(heaps[node][0], node) for node in (blocks.usable if over is None else (over,)) if heaps[node]]
            if not tops:
                break
            node = min(tops)[1]
            bound, block = heappop(heaps[node])
            if not self._free[block] or -bound != self._bound[block]:
                continue
            target, gain = self._best_target(block, node)
            if target is None:
                aside.append((bound, block))
            elif gain < -bound - self._state.grain:
                self._bound[block] = gain
                heappush(heaps[node], (-gain, block))
            else:
                picked = block, target
        for entry in aside:
            heappush(heaps[self._state.node_of[entry[1]]], entry)
        return picked

    def _best_target(self, block: int, here: int) -> tuple[int | None, float]:
        """The best node that is not above its limit yet; among equals, the one with the most room."""
        state, blocks = self._state, self._state.blocks
        near, loads, limit, weight = state.near[block], state.loads, blocks.limit, blocks.weight[block]
        spread = bool(blocks.of_spread[block])
        best, most, most_room = None, -inf, -inf
        for node in blocks.usable:
            gain = near[node]
            if gain < most or node == here or loads[node] > limit[node]:
                continue
            room = limit[node] - loads[node] - weight
            if gain == most and room <= most_room:
                continue
            if spread and not state.counts.fits(block, node):
                continue
            best, most, most_room = node, gain, room
        return best, most - near[here]

    def move(self, block: int, node: int) -> None:
        state, bound, free, heaps = self._state, self._bound, self._free, self._heaps
        here = state.node_of[block]
        free[block] = False
        state.move(block, node)
        node_of, near = state.node_of, state.near
        for other, traffic in state.blocks.links[block].items():
            if not free[other]:
                continue
            home = node_of[other]
            if home == here:
                higher = bound[other] + 2 * traffic
            elif home == node:
                continue
            else:
                higher = near[other][node] - near[other][home]
                if higher <= bound[other]:
                    continue
            bound[other] = higher
            heappush(heaps[home], (-higher, other))


# -- swaps


def _swap_pass(state: _State) -> bool:
    found = False
    while (swap := _best_swap(state)) is not None:
        one, other = swap
        here, there = state.node_of[one], state.node_of[other]
        state.move(one, there)
        state.move(other, here)
        found = True
    return found


def _best_swap(state: _State) -> tuple[int, int] | None:
    """The two blocks on different nodes whose swap gains most, if any swap gains."""
    blocks, node_of, near, loads, limit = state.blocks, state.node_of, state.near, state.loads, state.blocks.limit
    best, most = None, state.grain
    for one in range(len(blocks)):
        if blocks.pin[one] is not None:
            continue
        here, mine, links = node_of[one], near[one], blocks.links[one]
        for other in range(one + 1, len(blocks)):
            there = node_of[other]
            if there == here or blocks.pin[other] is not None:
                continue
            gain = mine[there] - mine[here] + near[other][here] - near[other][there] - 2 * links.get(other, 0.0)
            if gain <= most:
                continue
            heavier = blocks.weight[one] - blocks.weight[other]
            if loads[there] + heavier > max(limit[there], loads[there]):
                continue
            if loads[here] - heavier > max(limit[here], loads[here]):
                continue
            if _swap_fits(state, one, other):
                best, most = (one, other), gain
    return best


def _swap_fits(state: _State, one: int, other: int) -> bool:
    blocks, counts, node_of = state.blocks, state.counts, state.node_of
    if not (blocks.of_spread[one] or blocks.of_spread[other]):
        return True
    here, there = node_of[one], node_of[other]
    counts.add(one, here, -1)
    counts.add(other, there, -1)
    fits = counts.fits(one, there) and counts.fits(other, here)
    counts.add(one, here)
    counts.add(other, there)
    return fits
