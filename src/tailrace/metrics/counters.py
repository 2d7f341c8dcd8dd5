"""The counters of a task, and their sum over all its incarnations.

``TaskValues`` is the one table: every number that a task counts, with its kind and its meaning. ``TaskCounters`` has
the live values, ``TaskSnapshot`` those of one moment.

A task that is restarted under a higher epoch counts from zero again. Counters of all its epochs are summed. Gauges are
those of the newest epoch alone, because what a dead incarnation had queued is gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from functools import reduce
from typing import Any, NamedTuple

from tailrace.metrics.histogram import EMPTY_SNAPSHOT, Histogram, HistogramSnapshot

TaskKey = tuple[str, int]
"""``(operator, task)``."""


def counter(meaning: str) -> Any:
    """A field that only grows within one incarnation."""
    return field(default=0, metadata={"kind": "counter", "meaning": meaning})


def gauge(meaning: str, default: Any = 0) -> Any:
    """A field that says how things are now."""
    return field(default=default, metadata={"kind": "gauge", "meaning": meaning})


class EdgeState(NamedTuple):
    """The state of one load-aware edge at one of its sending tasks."""

    edge: int  # its index in the plan
    held: int  # tuples that wait until a task has room
    credits: int  # tuples that may be sent at once
    estimates: int  # tuples whose cost was estimated
    estimated_ns: int  # the sum of the estimates


@dataclass(slots=True)
class TaskValues:
    """The numbers of one incarnation of a task. On the path of every tuple they are plain attributes."""

    operator: str
    task: int
    worker: int | None = None
    received: int = counter("tuples taken in; for a source: records read")
    emitted: int = counter("tuples sent, re-emissions included")
    skipped: int = counter("tuples skipped because the function failed")
    dead_letters: int = counter("tuples sent to the dead letters")
    duplicates: int = counter("tuples that a sink dropped because it had them")
    busy_ns: int = counter("the sum of execution times")
    cpu_ns: int = counter("processor time")
    blocked_ns: int = counter("time held back by a full receiver or outgoing queue")
    reemitted: int = counter("roots of a source that were re-emitted after a loss")
    completed: int = counter("roots of a source that are complete")
    durable: int = counter("roots of a source that are durable")
    queued: int = gauge("tuples that wait to be executed")
    pending: int = gauge("roots of a source that are not durable")
    feedback_messages: int = counter("messages that its load-aware groupings have sent, up or down")
    feedback_bytes: int = counter("about how much these took on links")
    feedback_ns: int = counter("time spent on making, reading and using feedback")
    choosing_ns: int = counter("time that load-aware groupings spent on choosing tasks")
    held: int = gauge("tuples that wait here until a task has room")
    edges: tuple[EdgeState, ...] = gauge("the state of each load-aware edge out of this task", default=())
    backlog: int = gauge("tuples in the outgoing queue")
    largest_backlog: int = gauge("the largest backlog so far")
    hedges: int = counter("roots of a source that were emitted once more because they were late")
    hedges_won: int = counter("hedges that were complete first")
    hedges_wasted: int = counter("hedges that were not")
    unrun: int = counter("tuples dropped unrun because a hedge was complete first")
    unrun_hedges: int = counter("tuples of hedges dropped unrun because the hedge was not first")
    timeout_ns: int = gauge("the age from which a root is late; 0: not known")
    hedges_left: float | None = gauge("hedges that the budget allows now; None: no limit", default=0.0)
    calls: int = counter("calls that have ended, of an operator with calls=…; the next ones likewise")
    call_attempts: int = counter("attempts that these calls took, without hedges")
    call_retries: int = counter("attempts after an error")
    call_timeouts: int = counter("attempts that took longer than timeout_s")
    call_refusals: int = counter("attempts that the service refused with RetryAfter")
    call_hedges: int = counter("calls that were made once more because they were late")
    call_hedges_won: int = counter("of these, the ones that answered first")
    calls_failed: int = counter("calls that failed for good")
    calls_found: int = counter("calls whose result was in the journal")
    limit_wait_ns: int = counter("time that calls waited for their limit, all together")
    given_up_threads: int = gauge("threads in a function whose result is no longer wanted")
    at_ns: int = gauge("when all this was so, by the clock of its machine")


@dataclass(slots=True)
class TaskSnapshot(TaskValues):
    """The counters of a task at one moment. Each field can be set once, by ``__init__``."""

    sequence: int = 0  # grows with each snapshot of one incarnation
    execution: HistogramSnapshot = EMPTY_SNAPSHOT
    complete: HistogramSnapshot = EMPTY_SNAPSHOT
    durable_latency: HistogramSnapshot = EMPTY_SNAPSHOT

    def __setattr__(self, name: str, value: Any) -> None:  # a frozen class could not inherit the table
        if hasattr(self, name):
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        object.__setattr__(self, name, value)

    @property
    def key(self) -> TaskKey:
        return (self.operator, self.task)


@dataclass(slots=True, eq=False)
class TaskCounters(TaskValues):
    """The live counters of one incarnation of a task. Only the thread that runs the task writes them."""

    execution: Histogram = field(default_factory=Histogram)  # of calls
    complete: Histogram = field(default_factory=Histogram)  # latency of roots from due to complete
    durable_latency: Histogram = field(default_factory=Histogram)  # latency of roots from due to durable
    _snapshots: int = 0

    def snapshot(self) -> TaskSnapshot:
        """The counters as they are now, to be sent elsewhere. Any one thread may take it."""
        self._snapshots += 1
        values = {name: getattr(self, name) for name in _VALUES}
        histograms = {name: getattr(self, name).snapshot() for name in HISTOGRAMS}
        return TaskSnapshot(sequence=self._snapshots, **values, **histograms)


def _of_kind(kind: str) -> tuple[str, ...]:
    return tuple(value.name for value in fields(TaskValues) if value.metadata.get("kind") == kind)


COUNTERS, GAUGES = _of_kind("counter"), _of_kind("gauge")
HISTOGRAMS = ("execution", "complete", "durable_latency")
_VALUES = tuple(value.name for value in fields(TaskValues))


class Totals:
    """Sums the snapshots of every task over its epochs. Reports may come late, twice, or in any order of epochs."""

    def __init__(self) -> None:
        self._epochs: dict[TaskKey, dict[int, TaskSnapshot]] = {}

    def update(self, key: TaskKey, epoch: int, snapshot: TaskSnapshot) -> None:
        """Take in a snapshot, unless a later one of the same epoch is known."""
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
    """Both incarnations as one: worker and gauges of the newer one, the sums of all else."""
    changes: dict[str, Any] = {name: getattr(older, name) + getattr(newer, name) for name in COUNTERS}
    for name in HISTOGRAMS:
        changes[name] = Histogram.merged((getattr(older, name), getattr(newer, name))).snapshot()
    return replace(newer, **changes)
