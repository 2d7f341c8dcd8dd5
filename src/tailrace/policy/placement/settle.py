"""Changes a wanted placement so that it keeps the constraints, or raises an error if none does.

Each spread operator alone can always be spread. Tasks that must be together tie operators to each other, so a choice
may lead to a dead end; the search then goes back on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tailrace.errors import OptionError, shorten
from tailrace.policy.placement.api import PlacementProblem
from tailrace.policy.placement.blocks import BlockGraph

TRIES = 20_000
"""Most steps of the search: a tenth of a second. Constraints that need more nearly contradict each other."""


class Counts:
    """The number of tasks of each spread operator on each node."""

    __slots__ = ("_blocks", "_taken")

    def __init__(self, blocks: BlockGraph) -> None:
        self._blocks = blocks
        self._taken = [[0] * len(blocks.room) for _ in blocks.most_of]

    def fits(self, block: int, node: int) -> bool:
        most_of, taken = self._blocks.most_of, self._taken
        return all(taken[spread][node] + count <= most_of[spread] for spread, count in self._blocks.of_spread[block])

    def add(self, block: int, node: int, sign: int = 1) -> None:
        for spread, count in self._blocks.of_spread[block]:
            self._taken[spread][node] += sign * count

    def on(self, node: int) -> int:
        return sum(counts[node] for counts in self._taken)


def settle(problem: PlacementProblem, blocks: BlockGraph, wanted: Sequence[int]) -> list[int]:
    """The wanted placement, except for blocks that must go elsewhere because of pins and spread operators."""
    node_of, counts = list(wanted), Counts(blocks)
    bound = [block for block in range(len(blocks)) if blocks.bound[block]]
    bound.sort(key=lambda block: (blocks.pin[block] is None, -len(blocks.of_spread[block]), block))

    def choices(block: int) -> Iterator[int]:
        pin = blocks.pin[block]
        if pin is not None:
            return iter([pin])
        return iter(sorted(blocks.usable, key=lambda node: (node != wanted[block], counts.on(node))))

    open_choices: list[Iterator[int]] = []
    depth, tries, stuck = 0, 0, 0
    while depth < len(bound):
        if depth == len(open_choices):
            open_choices.append(choices(bound[depth]))
        tries += 1
        node = next((node for node in open_choices[depth] if counts.fits(bound[depth], node)), None)
        if node is not None:
            node_of[bound[depth]] = node
            counts.add(bound[depth], node)
            depth += 1
            continue
        stuck = max(stuck, depth)
        open_choices.pop()
        depth -= 1
        if depth < 0 or tries > TRIES:
            names = ", ".join(problem.tasks[task] for task in blocks.members[bound[stuck]])
            raise OptionError(
                f"constraints leave no node for a task: task={shorten(names)} tries={tries}: "
                "do pin=, together= and spread= contradict each other?"
            )
        counts.add(bound[depth], node_of[bound[depth]], -1)
    return node_of
