"""Finds the stages of a recorded topology for the simulator: each is an operator with all operators fused to it.

Fused operators are called by the task that leads them, without a queue in between. The work of a tuple is therefore its
own call and those of its descendants within the stage. Operators fused to a source are a stage of their own, because a
source is no stage.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from tailrace.sim.traces.run_trace import EdgeShape, OperatorShape, RunTrace, Shape
from tailrace.topology import Role

SENT_BY_SOURCE = -1


@dataclass
class Unit:
    """A stage and the tuples that it ran."""

    position: int
    operator: OperatorShape
    inputs: list[EdgeShape]  # by which tuples come
    members: list[int] = field(default_factory=list, repr=False)

    @property
    def task_numbers(self) -> range:
        return range(self.operator.first_task, self.operator.first_task + self.operator.tasks)


@dataclass
class Units:
    """The stages of a trace, and its tuples as the simulator sees them: each includes what is fused to it."""

    stages: list[Unit]
    leaders: list[int]  # of each operator, the one that leads its stage; a source leads only itself
    roots: list[list[int]] = field(default_factory=list, repr=False)  # of each root: the tuples that its source sent
    rows: list[int] = field(default_factory=list, repr=False)  # of each tuple: its place in the trace
    stage_of: list[int] = field(default_factory=list, repr=False)  # of each tuple
    parents: list[int] = field(default_factory=list, repr=False)  # of each tuple
    children: list[list[int]] = field(default_factory=list, repr=False)  # of each tuple
    works_ns: list[int] = field(default_factory=list, repr=False)  # of each tuple
    started_ns: list[int] = field(default_factory=list, repr=False)  # of each tuple: when its call, or batch, began
    left_ns: list[int] = field(default_factory=list, repr=False)  # of each tuple: when what it became left


def units_of(trace: RunTrace) -> Units:
    """The stages of a trace with their tuples."""
    operators = trace.shape.operators
    leaders = _leaders(trace.shape)
    leading = [index for index, leader in enumerate(leaders) if leader == index]
    leading = [index for index in leading if operators[index].role is not Role.SOURCE]
    units = Units(
        [
            Unit(position, operators[index], [edge for edge in trace.shape.edges if edge.downstream == index])
            for position, index in enumerate(leading)
        ],
        leaders,
    )
    planting = _Planting(trace, units, {index: position for position, index in enumerate(leading)})
    for family in trace.roots:
        planting.plant(family)
    for unit in units.stages:
        if unit.operator.role is Role.MAP_BATCH:
            _join_batches(trace, units, unit)
    return units


def tuples_by_task(trace: RunTrace, units: Units, unit: Unit) -> Iterator[list[int]]:
    """The tuples of each task of a stage, in the order in which it ran them."""
    by_task: dict[int, list[int]] = defaultdict(list)
    for number in unit.members:
        by_task[trace.tasks[units.rows[number]]].append(number)
    for numbers in by_task.values():
        yield sorted(numbers, key=lambda number: trace.begun_ns[units.rows[number]])


def _join_batches(trace: RunTrace, units: Units, unit: Unit) -> None:
    """Tuples of a batch begin and leave together. Their shares of its duration follow each other exactly."""
    for numbers in tuples_by_task(trace, units, unit):
        pairs = [
            (one, other)
            for one, other in pairwise(numbers)
            if trace.begun_ns[units.rows[one]] + units.works_ns[one] == trace.begun_ns[units.rows[other]]
        ]
        for one, other in pairs:
            units.started_ns[other] = units.started_ns[one]
        for one, other in reversed(pairs):
            units.left_ns[one] = units.left_ns[other]


def _leaders(shape: Shape) -> list[int]:
    leaders: list[int] = []
    for index in range(len(shape.operators)):
        fused = [edge.upstream for edge in shape.edges if edge.downstream == index and edge.fused]
        leader = leaders[fused[0]] if fused else index
        leaders.append(index if shape.operators[leader].role is Role.SOURCE else leader)
    return leaders


class _Planting:
    """Turns the trees of a trace into trees of simulator tuples, one after the other."""

    def __init__(self, trace: RunTrace, units: Units, positions: dict[int, int]) -> None:
        self._trace = trace
        self._units = units
        self._leads = [leader == index for index, leader in enumerate(units.leaders)]
        self._positions = positions

    def plant(self, family: list[int]) -> None:
        units, trace = self._units, self._trace
        first = len(units.rows)
        units.roots.append([])
        growing = deque((units.roots[-1], SENT_BY_SOURCE, row) for row in family)
        while growing:
            siblings, parent, row = growing.popleft()
            number = len(units.rows)
            siblings.append(number)
            position = self._positions[trace.operators[row]]
            children: list[int] = []
            inside = list(self._inside(row))
            units.stages[position].members.append(number)
            units.rows.append(row)
            units.stage_of.append(position)
            units.parents.append(parent)
            units.children.append(children)
            units.started_ns.append(trace.begun_ns[row])
            units.works_ns.append(sum(trace.durations_ns[one] for one in inside))
            units.left_ns.append(max(trace.begun_ns[one] + trace.durations_ns[one] for one in inside))
            growing += [(children, number, row) for one in inside for row in trace.children[one] if self._is_led(row)]
        self._join_bundles(first)

    def _is_led(self, row: int) -> bool:
        return self._leads[self._trace.operators[row]]

    def _inside(self, row: int) -> Iterator[int]:
        """A row and its descendants within the same unit."""
        growing = deque([row])
        while growing:
            row = growing.popleft()
            yield row
            growing += [child for child in self._trace.children[row] if not self._is_led(child)]

    def _join_bundles(self, first: int) -> None:
        """Results of a bundle are sent when all of it has run."""
        units, trace = self._units, self._trace
        bundles: dict[tuple[int, int], list[int]] = defaultdict(list)
        for number in range(first, len(units.rows)):
            row = units.rows[number]
            bundles[trace.tasks[row], trace.received_ns[row]].append(number)
        for numbers in bundles.values():
            left_ns = max(units.left_ns[number] for number in numbers)
            for number in numbers:
                units.left_ns[number] = left_ns
