"""Makes and checks placement problems: counts of tasks, traffic by task number, constraints by name.

A constraint names a task, such as ``split/0``, or an operator, such as ``split``, which stands for all its tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite

from tailrace.errors import OptionError, did_you_mean, shorten
from tailrace.policy.placement.api import Node, PlacementProblem

SLACK = 0.1
"""By default a node may carry a tenth more than its share. The paper has such a factor and does not say its value."""


def placement_problem(
    operators: Mapping[str, int],
    nodes: Mapping[str, int],
    *,
    traffic: Mapping[tuple[int, int], float],
    cpu: Sequence[float] | None = None,
    slack: float = SLACK,
    pin: Mapping[str, str] | None = None,
    together: Iterable[Sequence[str]] = (),
    spread: Iterable[str] = (),
) -> PlacementProblem:
    """Describe tasks, nodes and traffic for a placement rule, and check that they fit together.

    Args:
        operators: how many tasks each operator has. Tasks are numbered in this order.
        nodes: how many free workers each node has.
        traffic: tuples between pairs of task numbers. A pair may be named both ways; both are added.
        cpu: the load of each task, in any unit. Without it every task weighs the same.
        slack: what a node may carry above its share, as a part of it.
        pin: the node of an operator, or of a task ``"operator/index"``.
        together: sets of tasks for one worker. Sets that overlap are one set.
        spread: operators whose tasks are spread over nodes as evenly as can be.

    Example:
        >>> from tailrace.policy import placement_problem
        >>> placement_problem({"read": 1, "work": 2}, {"a": 1, "b": 1}, traffic={(0, 1): 5.0}).tasks
        ('read/0', 'work/0', 'work/1')
    """
    names = _Names(operators)
    placed = tuple(Node(name, _check_workers(name, workers)) for name, workers in nodes.items())
    if not any(node.workers for node in placed):
        raise OptionError(f"no free workers: nodes={shorten(dict(nodes))}: tasks need one at least")
    if not (isfinite(slack) and slack >= 0):
        raise OptionError(f"slack must be a share of 0 or more: slack={slack!r}: 0.1 lets a node carry a tenth more")
    problem = PlacementProblem(
        tasks=names.tasks,
        cpu=_check_cpu(cpu, len(names.tasks)),
        traffic=_check_traffic(traffic, len(names.tasks)),
        nodes=placed,
        slack=slack,
        pins=_resolve_pins(names, placed, pin or {}),
        together=_resolve_together(names, together),
        spread=tuple(names.operator(name) for name in dict.fromkeys(spread)),
    )
    _check_agreement(problem)
    return problem


class _Names:
    """Task numbers by the names of tasks and operators."""

    def __init__(self, operators: Mapping[str, int]) -> None:
        self._operators: dict[str, tuple[int, ...]] = {}
        first = 0
        for name, tasks in operators.items():
            if not isinstance(tasks, int) or isinstance(tasks, bool) or tasks < 1:
                raise OptionError(f"tasks is not a positive integer: operator={name} tasks={shorten(tasks)}")
            self._operators[name] = tuple(range(first, first + tasks))
            first += tasks
        self.tasks = tuple(f"{name}/{index}" for name, tasks in operators.items() for index in range(tasks))
        self._numbers = {name: number for number, name in enumerate(self.tasks)}
        if not self.tasks:
            raise OptionError("nothing to place: operators={}: did you forget to declare them?")

    def operator(self, name: str) -> tuple[int, ...]:
        if name in self._operators:
            return self._operators[name]
        raise OptionError(f"no such operator: operator={shorten(name)}: {did_you_mean(name, self._operators)}")

    def any(self, name: str) -> tuple[int, ...]:
        if name in self._numbers:
            return (self._numbers[name],)
        if name in self._operators:
            return self._operators[name]
        known = ", ".join(f"{operator} ({len(tasks)} tasks)" for operator, tasks in self._operators.items())
        hint = did_you_mean(name, self._operators)
        raise OptionError(f"no such task or operator: name={shorten(name)} operators={known}: {hint}")


def _check_workers(name: str, workers: int) -> int:
    if isinstance(workers, int) and not isinstance(workers, bool) and workers >= 0:
        return workers
    raise OptionError(f"free workers must be a number of 0 or more: node={name} workers={shorten(workers)}")


def _check_cpu(cpu: Sequence[float] | None, tasks: int) -> tuple[float, ...]:
    if cpu is None:
        return (1.0,) * tasks
    if len(cpu) != tasks:
        raise OptionError(f"cpu needs one entry a task: tasks={tasks} given={len(cpu)}")
    for task, weight in enumerate(cpu):
        if not (isfinite(weight) and weight >= 0):
            raise OptionError(f"cpu must be a number of 0 or more: task={task} cpu={weight!r}: was it measured?")
    return tuple(map(float, cpu))


def _check_traffic(traffic: Mapping[tuple[int, int], float], tasks: int) -> tuple[tuple[int, int, float], ...]:
    pairs: dict[tuple[int, int], float] = {}
    for (a, b), tuples in traffic.items():
        if not (0 <= a < tasks and 0 <= b < tasks):
            raise OptionError(f"traffic of a task that is not there: pair=({a}, {b}) tasks={tasks}")
        if not (isfinite(tuples) and tuples >= 0):
            raise OptionError(f"traffic must be a number of 0 or more: pair=({a}, {b}) tuples={tuples!r}")
        if a != b and tuples > 0:  # traffic of a task with itself costs nothing
            pair = (min(a, b), max(a, b))
            pairs[pair] = pairs.get(pair, 0.0) + tuples
    return tuple((a, b, tuples) for (a, b), tuples in sorted(pairs.items()))


def _resolve_pins(names: _Names, nodes: Sequence[Node], pin: Mapping[str, str]) -> tuple[int | None, ...]:
    numbers = {node.name: number for number, node in enumerate(nodes)}
    pins: list[int | None] = [None] * len(names.tasks)
    for name, node in pin.items():
        if node not in numbers:
            raise OptionError(f"no such node: pin={name} node={shorten(node)}: {did_you_mean(node, numbers)}")
        if nodes[numbers[node]].workers == 0:
            raise OptionError(f"a node without free workers takes no tasks: pin={name} node={node}")
        for task in names.any(name):
            if pins[task] not in (None, numbers[node]):
                raise OptionError(
                    f"a task is pinned to two nodes: task={names.tasks[task]} "
                    f"nodes={nodes[pins[task] or 0].name}, {node}: is one pin for its whole operator?"
                )
            pins[task] = numbers[node]
    return tuple(pins)


def _resolve_together(names: _Names, together: Iterable[Sequence[str]]) -> tuple[tuple[int, ...], ...]:
    if isinstance(together, str):
        raise OptionError(f"together takes sets of names: together={together!r}: did you mean [[…], […]]?")
    sets: list[set[int]] = []
    for wanted in together:
        if isinstance(wanted, str):
            raise OptionError(f"together takes sets of names: together={wanted!r}: did you mean [{wanted!r}, …]?")
        joined = {task for name in wanted for task in names.any(name)}
        apart = [tasks for tasks in sets if not tasks & joined]
        sets = [*apart, joined.union(*(tasks for tasks in sets if tasks & joined))]
    return tuple(sorted(tuple(sorted(tasks)) for tasks in sets if len(tasks) > 1))


def _check_agreement(problem: PlacementProblem) -> None:
    """Refuse constraints that obviously contradict each other. ``settle`` finds the other contradictions."""
    name, nodes = problem.tasks, problem.nodes
    for tasks in problem.together:
        pinned = {problem.pins[task]: task for task in tasks if problem.pins[task] is not None}
        if len(pinned) > 1:
            (here, one), (there, other) = list(pinned.items())[:2]
            raise OptionError(
                "tasks are to be together and on two nodes: "
                f"{name[one]} on {nodes[here or 0].name}, {name[other]} on {nodes[there or 0].name}"
            )
    for spread, most in zip(problem.spread, problem.most_of, strict=True):
        operator = name[spread[0]].rpartition("/")[0]
        for tasks in problem.together:
            same = [task for task in tasks if task in spread]
            if len(same) > most:
                raise OptionError(
                    f"tasks are to be together and spread: operator={operator} "
                    f"together={', '.join(name[task] for task in same)} most_on_a_node={most}"
                )
        for number, node in enumerate(nodes):
            pins = [task for task in spread if problem.pins[task] == number]
            if len(pins) > most:
                raise OptionError(
                    f"tasks are to be spread and on one node: operator={operator} node={node.name} "
                    f"pinned={', '.join(name[task] for task in pins)} most_on_a_node={most}"
                )
