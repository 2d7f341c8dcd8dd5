"""Round robin: tasks are dealt over the workers in turn, as a plan does by default. Traffic is ignored.

Workers are numbered across the nodes in turn: the first of each node, then the second of each that has one, and so on.
Neighbours in number are therefore on different nodes. Law: that of ``PlacementRule``.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tailrace.policy.placement.api import Placement, PlacementProblem
from tailrace.policy.placement.blocks import unlimited_blocks
from tailrace.policy.placement.settle import settle


@dataclass(frozen=True)
class RoundRobinPlacement:
    """Each worker gets every n-th task, or set of tasks to be together. ``round_robin_placement()`` makes one."""

    name = "round_robin"
    balanced = False

    def place(self, problem: PlacementProblem, rng: Random) -> Placement:
        blocks = unlimited_blocks(problem)
        workers = [
            (node, worker)
            for worker in range(max(blocks.room))
            for node, room in enumerate(blocks.room)
            if worker < room
        ]
        dealt = [workers[block % len(workers)] for block in range(len(blocks))]
        node_of = settle(problem, blocks, [node for node, _ in dealt])
        tasks = sum(map(len, blocks.members))
        worker_of = [0] * tasks
        for block, members in enumerate(blocks.members):
            for task in members:
                worker_of[task] = dealt[block][1] % blocks.room[node_of[block]]
        return Placement(tuple(blocks.tasks(node_of)), tuple(worker_of))


def round_robin_placement() -> RoundRobinPlacement:
    """Deal tasks to workers in turn, as a run does without a rule.

    Example:
        >>> from random import Random
        >>> from tailrace.policy import placement_problem, round_robin_placement
        >>> problem = placement_problem({"read": 1, "work": 2}, {"a": 1, "b": 1}, traffic={(0, 1): 5.0})
        >>> round_robin_placement().place(problem, Random(1)).node_of
        (0, 1, 0)
    """
    return RoundRobinPlacement()
