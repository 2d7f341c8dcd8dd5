"""Measures, in a recording, what the engine added to the calls of tuples, and how fast tasks were.

- A *hop* is the time from the end of the parent's call, or from the due time of a root, until the tuple's own call
  begins, if its task has nothing else to do. A part of it belongs to the task and is needed between any two calls, to
  read arrivals and send results. The rest is the latency of the model's links.
- A *lag* is what a tuple needs on top of that, because it left with the rest of its bundle or a connection was still
  being made.
- A *delay* is the time between two calls of a task that had tuples waiting, for example because its thread waited for a
  core. It occupies the task as a call does. Queues are first come, first served: a tuple that ran later came later.
- An *ack* is the time from the end of the last call of a tree until its ledger knew.
- The *speed* of a task is how long others take for equal tuples over how long it takes itself.

With these the recorded choices lead to the recorded latencies. Other choices meet the same calls, lags and delays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from statistics import median

from tailrace.sim.traces.run_trace import RunTrace
from tailrace.sim.traces.stage_units import SENT_BY_SOURCE, Unit, Units, tuples_by_task

FEW = 20
"""Fewest samples for a figure."""

DIFFERENT = 1.15
"""How much slower or faster than the others a task must be to count as different. Less is taken as chance."""


@dataclass(frozen=True)
class Costs:
    """The costs of tuples besides their calls, and the speeds of tasks."""

    link_ns: int  # latency of every link
    lags_ns: Sequence[int] = field(repr=False)  # of each tuple
    delays_ns: Sequence[int] = field(repr=False)  # of each tuple
    acks_ns: Sequence[int] = field(repr=False)  # of each root
    speeds: tuple[tuple[float, ...], ...]  # by stage and task


def calibrate(trace: RunTrace, units: Units) -> Costs:
    """Measure the costs in a recording."""
    ended_ns = [trace.begun_ns[row] + work for row, work in zip(units.rows, units.works_ns, strict=True)]
    sent_ns = _sent_ns(trace, units)
    free_ns = _free_ns(trace, units, ended_ns)
    times = list(zip(sent_ns, free_ns, units.started_ns, strict=True))
    between_ns = _middle([started - free for sent, free, started in times if sent < free])
    link_ns = max(0, _middle([started - sent for sent, free, started in times if 0 < free <= sent]) - between_ns)
    came_ns, delays_ns = _came_ns(trace, units, sent_ns, free_ns, link_ns, between_ns)
    left_ns = [
        sent if one == SENT_BY_SOURCE else ended_ns[one] for sent, one in zip(sent_ns, units.parents, strict=True)
    ]
    lags_ns = [max(0, came - left - link_ns) for came, left in zip(came_ns, left_ns, strict=True)]
    acks_ns = [
        max(0, complete - max(ended_ns[number] for number in _tree(units, family)))
        for complete, family in zip(trace.complete_ns, units.roots, strict=True)
    ]
    speeds = tuple(_speeds(trace, units, unit) for unit in units.stages)
    return Costs(link_ns, lags_ns, delays_ns, acks_ns, speeds)


def _came_ns(
    trace: RunTrace, units: Units, sent_ns: Sequence[int], free_ns: Sequence[int], link_ns: int, between_ns: int
) -> tuple[list[int], list[int]]:
    """When each tuple came to its task, and how long it waited there for anything but other tuples."""
    came_ns, delays_ns = [0] * len(units.rows), [0] * len(units.rows)
    for unit in units.stages:
        for numbers in tuples_by_task(trace, units, unit):
            last_ns = -1
            for number in numbers:
                started, free = units.started_ns[number], free_ns[number]
                came = max(sent_ns[number] + link_ns, last_ns + 1)
                late = max(0, started - max(came, free))
                delay = late if came < free else min(late, between_ns)
                if started < trace.begun_ns[units.rows[number]]:  # in a batch, but not its first tuple
                    delay = 0
                came_ns[number] = last_ns = came if came < free else came + late - delay
                delays_ns[number] = delay
    return came_ns, delays_ns


def _middle(samples: list[int]) -> int:
    return int(median(samples)) if len(samples) >= FEW else 0


def _free_ns(trace: RunTrace, units: Units, ended_ns: Sequence[int]) -> list[int]:
    """When the task of each tuple became free for it; 0 if it was free before."""
    free_ns = [0] * len(units.rows)
    for unit in units.stages:
        slots = unit.operator.concurrency
        for numbers in tuples_by_task(trace, units, unit):
            running: list[int] = []  # ends of current executions, as a heap
            last_ns = free = 0
            for number in numbers:
                full_ns = heappop(running) if len(running) == slots else 0
                if units.started_ns[number] != last_ns or slots > 1:  # not in one batch with the tuple before
                    last_ns, free = units.started_ns[number], full_ns
                free_ns[number] = free
                heappush(running, ended_ns[number])
    return free_ns


def _sent_ns(trace: RunTrace, units: Units) -> list[int]:
    """When each tuple was sent: with the rest of its parent's bundle, or when its root was due."""
    sent_ns = [0 if parent == SENT_BY_SOURCE else units.left_ns[parent] for parent in units.parents]
    for due_ns, family in zip(trace.due_ns, units.roots, strict=True):
        for number in family:
            sent_ns[number] = due_ns
    return sent_ns


def _tree(units: Units, family: Sequence[int]) -> Iterator[int]:
    growing = list(family)
    while growing:
        number = growing.pop()
        yield number
        growing += units.children[number]


def _speeds(trace: RunTrace, units: Units, unit: Unit) -> tuple[float, ...]:
    """The speeds of tasks, by tuples with equal keys that several tasks have run."""
    by_key: dict[int, list[int]] = defaultdict(list)
    for number in unit.members:
        by_key[trace.keys[units.rows[number]]].append(number)
    by_key.pop(0, None)
    ratios: dict[int, list[float]] = defaultdict(list)
    for numbers in by_key.values():
        if len({trace.tasks[units.rows[number]] for number in numbers}) > 1:
            usual_ns = max(1.0, median(units.works_ns[number] for number in numbers))
            for number in numbers:
                ratios[trace.tasks[units.rows[number]]].append(units.works_ns[number] / usual_ns)
    slowness = [median(ratios[task]) if len(ratios[task]) >= FEW else 1.0 for task in unit.task_numbers]
    return tuple(1.0 if 1 / DIFFERENT < slow < DIFFERENT else 1 / slow for slow in slowness)
