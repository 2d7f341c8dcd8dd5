"""What a task counts, and the sum over all its incarnations.

A task restarted under a higher epoch starts to count from zero. Counters of all its epochs add up; gauges are those of
the newest epoch alone, because what a dead incarnation had queued is gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, NamedTuple

from tailrace.metrics.histogram import EMPTY_SNAPSHOT, Histogram, HistogramSnapshot

TaskKey = tuple[str, int]
"""``(operator, task)``."""

COUNTERS = (
    "received",
    "emitted",
    "skipped",
    "dead_letters",
    "duplicates",
    "busy_ns",
    "cpu_ns",
    "blocked_ns",
    "reemitted",
    "completed",
    "durable",
    "feedback_messages",
    "feedback_bytes",
    "feedback_ns",
    "choosing_ns",
    "hedges",
    "hedges_won",
    "hedges_wasted",
    "unrun",
    "unrun_hedges",
)
GAUGES = ("queued", "pending", "held", "edges", "backlog", "largest_backlog", "timeout_ns", "hedges_left", "at_ns")
HISTOGRAMS = ("execution", "complete", "durable_latency")


class EdgeState(NamedTuple):
    """What the sending half of a load-aware grouping is about, at one task."""

    edge: int  # its index in the plan
    held: int  # tuples that wait for some task to have room
    credits: int  # tuples that may be sent at once
    estimates: int  # tuples whose cost was estimated
    estimated_ns: int  # to how much, in all


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """What a task had counted at one moment. ``sequence`` grows with each snapshot of one incarnation."""

    operator: str
    task: int
    worker: int | None = None
    sequence: int = 0
    received: int = 0
    emitted: int = 0
    skipped: int = 0
    dead_letters: int = 0
    duplicates: int = 0
    busy_ns: int = 0
    cpu_ns: int = 0
    blocked_ns: int = 0
    reemitted: int = 0
    completed: int = 0
    durable: int = 0
    queued: int = 0
    pending: int = 0
    feedback_messages: int = 0
    feedback_bytes: int = 0
    feedback_ns: int = 0
    choosing_ns: int = 0
    held: int = 0
    edges: tuple[EdgeState, ...] = ()
    backlog: int = 0
    largest_backlog: int = 0
    hedges: int = 0
    hedges_won: int = 0
    hedges_wasted: int = 0
    unrun: int = 0
    unrun_hedges: int = 0
    timeout_ns: int = 0
    hedges_left: float | None = 0.0
    at_ns: int = 0
    execution: HistogramSnapshot = EMPTY_SNAPSHOT
    complete: HistogramSnapshot = EMPTY_SNAPSHOT
    durable_latency: HistogramSnapshot = EMPTY_SNAPSHOT

    @property
    def key(self) -> TaskKey:
        return (self.operator, self.task)


@dataclass(slots=True, eq=False)
class TaskCounters:
    """The counters of one incarnation of a task; only the thread that runs the task writes them."""

    operator: str
    task: int
    worker: int
    received: int = 0  # tuples taken in; for a source: records read
    emitted: int = 0  # tuples sent, re-emissions included
    skipped: int = 0
    dead_letters: int = 0
    duplicates: int = 0  # dropped at a sink
    busy_ns: int = 0  # the sum of execution times
    cpu_ns: int = 0
    blocked_ns: int = 0  # held back by a full receiver or outgoing queue
    reemitted: int = 0  # from here on: sources only
    completed: int = 0
    durable: int = 0
    queued: int = 0  # a gauge: tuples waiting to be executed
    pending: int = 0  # a gauge: roots not yet durable
    feedback_messages: int = 0  # sent by its halves of load-aware groupings, to either side
    feedback_bytes: int = 0  # what they took on links, about
    feedback_ns: int = 0  # time spent on making them, reading them and learning from them
    choosing_ns: int = 0  # time spent on choosing tasks by what was learnt
    held: int = 0  # a gauge: tuples that wait here for some task to have room
    edges: tuple[EdgeState, ...] = ()  # a gauge: of each load-aware edge that leaves here
    backlog: int = 0  # a gauge: tuples in the outgoing queue
    largest_backlog: int = 0  # the most there were
    hedges: int = 0  # emissions of roots of a source because they were late
    hedges_won: int = 0  # those that were complete first
    hedges_wasted: int = 0  # those that were not
    unrun: int = 0  # tuples thrown away because a hedge was first
    unrun_hedges: int = 0  # tuples of hedges thrown away because it was not
    timeout_ns: int = 0  # a gauge: beyond that a root is late; 0: not known
    hedges_left: float | None = 0.0  # a gauge: that the budget pays for; None: there is no limit
    at_ns: int = 0  # when all this was so, on the clock of its machine
    execution: Histogram = field(default_factory=Histogram)
    complete: Histogram = field(default_factory=Histogram)  # latency from due to complete
    durable_latency: Histogram = field(default_factory=Histogram)  # latency from due to durable
    _snapshots: int = 0

    def snapshot(self) -> TaskSnapshot:
        """The counters as they are now, to be sent elsewhere. Any one thread may take it."""
        self._snapshots += 1
        return TaskSnapshot(
            operator=self.operator,
            task=self.task,
            worker=self.worker,
            sequence=self._snapshots,
            received=self.received,
            emitted=self.emitted,
            skipped=self.skipped,
            dead_letters=self.dead_letters,
            duplicates=self.duplicates,
            busy_ns=self.busy_ns,
            cpu_ns=self.cpu_ns,
            blocked_ns=self.blocked_ns,
            reemitted=self.reemitted,
            completed=self.completed,
            durable=self.durable,
            queued=self.queued,
            pending=self.pending,
            feedback_messages=self.feedback_messages,
            feedback_bytes=self.feedback_bytes,
            feedback_ns=self.feedback_ns,
            choosing_ns=self.choosing_ns,
            held=self.held,
            edges=self.edges,
            backlog=self.backlog,
            largest_backlog=self.largest_backlog,
            hedges=self.hedges,
            hedges_won=self.hedges_won,
            hedges_wasted=self.hedges_wasted,
            unrun=self.unrun,
            unrun_hedges=self.unrun_hedges,
            timeout_ns=self.timeout_ns,
            hedges_left=self.hedges_left,
            at_ns=self.at_ns,
            execution=self.execution.snapshot(),
            complete=self.complete.snapshot(),
            durable_latency=self.durable_latency.snapshot(),
        )


class Totals:
    """Sums the snapshots of every task over its epochs. Reports may come late, twice, or in any order of epochs."""

    def __init__(self) -> None:
        self._epochs: dict[TaskKey, dict[int, TaskSnapshot]] = {}

    def update(self, key: TaskKey, epoch: int, snapshot: TaskSnapshot) -> None:
        """Take in a snapshot, unless a later one of the same epoch is known already."""
        if key != snapshot.key:
            raise ValueError(f"snapshot of another task: key={key} snapshot={snapshot.key}")
        epochs = self._epochs.setdefault(key, {})
        known = epochs.get(epoch)
        if known is None or known.sequence < snapshot.sequence:
            epochs[epoch] = snapshot

    def task(self, key: TaskKey) -> TaskSnapshot:
        """The sum for one task; zeros on no worker if it never reported."""
        epochs = self._epochs.get(key)
        if not epochs:
            return TaskSnapshot(*key)
        return reduce(_succeed, (epochs[epoch] for epoch in sorted(epochs)))

    def keys(self) -> Iterable[TaskKey]:
        """The tasks that have reported, sorted."""
        return sorted(self._epochs)


def _succeed(older: TaskSnapshot, newer: TaskSnapshot) -> TaskSnapshot:
    """Both incarnations as one: the newer's place and gauges, the sum of all else."""
    changes: dict[str, Any] = {name: getattr(older, name) + getattr(newer, name) for name in COUNTERS}
    for name in HISTOGRAMS:
        changes[name] = Histogram.merged((getattr(older, name), getattr(newer, name))).snapshot()
    return replace(newer, **changes)
