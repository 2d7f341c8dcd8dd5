"""Placement problems, placements, and the protocol of the rules that lead from one to the other.

A problem is a value. Tasks have numbers, as in a plan, and names such as ``split/0``. Each task has a weight in CPU;
pairs of tasks have traffic, in tuples, both directions together; nodes have workers, not all equally many. Constraints:
tasks *pinned* to a node, tasks *together* in one worker, operators *spread* over the nodes.

A node's *share* of the load is its share of the workers. Its *limit* is that share with some slack on top, or more if
indivisible tasks and constraints leave no choice: see ``limits``. The *cut* of a placement is the traffic between
nodes. Among placements within the limits, the one with the smallest cut is best.

The law of rules is checked by ``tailrace.testing.check_placement``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Protocol


@dataclass(frozen=True)
class Node:
    """A machine, and how many workers it has for this run.

    Args:
        name: the machine's name.
        workers: how many workers may be placed there.

    Example:
        >>> from tailrace.policy import Node
        >>> Node("a", 2)
        Node(name='a', workers=2)
    """

    name: str
    workers: int


@dataclass(frozen=True)
class PlacementProblem:
    """Tasks with their load and traffic, and the nodes they can go to. ``placement_problem()`` makes one."""

    tasks: tuple[str, ...]  # names, by number
    cpu: tuple[float, ...]  # weight of each task, in any unit
    traffic: tuple[tuple[int, int, float], ...]  # (lower task, higher task, tuples), each pair once
    nodes: tuple[Node, ...]
    slack: float  # what a node may carry above its share, as a fraction of it
    pins: tuple[int | None, ...]  # the node that each task is pinned to
    together: tuple[tuple[int, ...], ...]  # sets of tasks that must share a worker
    spread: tuple[tuple[int, ...], ...]  # the tasks of each spread operator

    @cached_property
    def total_traffic(self) -> float:
        return sum((tuples for _, _, tuples in self.traffic), 0.0)

    @cached_property
    def most_of(self) -> tuple[int, ...]:
        """For each spread operator, how many of its tasks a node may have: the smallest possible maximum."""
        usable = sum(node.workers > 0 for node in self.nodes)
        return tuple(-(-len(tasks) // usable) for tasks in self.spread)


@dataclass(frozen=True)
class Placement:
    """Where each task lives: its node, and which of that node's workers.

    Args:
        node_of: the number of each task's node.
        worker_of: which of that node's workers the task lives on.

    Example:
        >>> from tailrace.policy import Placement
        >>> Placement(node_of=(0, 0, 1), worker_of=(0, 1, 0)).node_of
        (0, 0, 1)
    """

    node_of: tuple[int, ...]
    worker_of: tuple[int, ...]

    def cut(self, problem: PlacementProblem) -> float:
        """Traffic between nodes."""
        return sum((tuples for a, b, tuples in problem.traffic if self.node_of[a] != self.node_of[b]), 0.0)

    def between_workers(self, problem: PlacementProblem) -> float:
        """Traffic between workers of the same node, which shared memory carries."""
        near = (pair for pair in problem.traffic if self.node_of[pair[0]] == self.node_of[pair[1]])
        return sum((tuples for a, b, tuples in near if self.worker_of[a] != self.worker_of[b]), 0.0)

    def loads(self, problem: PlacementProblem) -> list[float]:
        """The weight on each node."""
        loads = [0.0] * len(problem.nodes)
        for task, node in enumerate(self.node_of):
            loads[node] += problem.cpu[task]
        return loads


class PlacementRule(Protocol):
    """A rule that places tasks on nodes and workers: a value, picklable, without state.

    Law: every task gets one node, and a worker that this node has; pins are kept, tasks to be together share a worker,
    and no node has more of a spread operator's tasks than ``most_of`` says; equal problems and equally seeded
    generators give equal placements in any process. A rule that is ``balanced`` loads no node above its limit.
    ``tailrace.testing.check_placement`` checks it.

    Example:
        >>> from random import Random
        >>> from tailrace.policy import placement_problem, round_robin_placement
        >>> problem = placement_problem({"read": 1, "work": 2}, {"a": 1, "b": 1}, traffic={(0, 1): 5.0})
        >>> round_robin_placement().place(problem, Random(1)).node_of
        (0, 1, 0)
    """

    @property
    def name(self) -> str: ...

    @property
    def balanced(self) -> bool: ...

    def place(self, problem: PlacementProblem, rng: Random) -> Placement: ...


def over_workers(problem: PlacementProblem, node_of: Sequence[int]) -> Placement:
    """Deal the tasks of each node over its workers in turn. Tasks that must be together count as one."""
    leader = {task: min(tasks) for tasks in problem.together for task in tasks}
    dealt = [0] * len(problem.nodes)
    worker_of: list[int] = []
    for task, node in enumerate(node_of):
        first = leader.get(task, task)
        if first < task:
            worker_of.append(worker_of[first])
        else:
            worker_of.append(dealt[node] % problem.nodes[node].workers)
            dealt[node] += 1
    return Placement(tuple(node_of), tuple(worker_of))
