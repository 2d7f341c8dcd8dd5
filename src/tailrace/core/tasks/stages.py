"""Stages: one operator inside a task. A stage calls the user's function and passes the results on.

A stage takes the values of one bundle and returns the exclusive or of the ack ids of all bundles it sent, so that the
task can acknowledge the bundle. Stages that are joined by fused edges call each other directly.

Each stage measures the execution time of every call. It takes the end of one call for the start of the next, so that
it reads the clock once a tuple.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from tailrace.clock import Clock
from tailrace.core.failures import CAUGHT, dead_letter, task_error
from tailrace.core.plan.plan import EdgePlan
from tailrace.core.protocol.lineage import child_lineages
from tailrace.core.routing.router import OutEdge
from tailrace.errors import shorten
from tailrace.metrics.counters import TaskCounters
from tailrace.topology import OnError

Lineages = list[int] | None
Indices = list[int] | None

_TAKEN_APART = (str, bytes, bytearray, dict)
"""Iterable types that a ``flat_map`` function returns only by mistake: one tuple for each letter, byte or key."""

DEAD_LETTER_INDEX = 0xDEAD
"""The output index of a dead letter, for its lineage. No result of a call has such a high index."""


class OperatorStage(Protocol):
    """Runs the tuples of a bundle through one operator.

    Law: ``run`` returns the exclusive or of the ack ids of exactly the bundles it made.
    """

    def run(self, emission: int, split: int, offset: int, values: list[Any], lineages: Lineages) -> int: ...


class Wiring:
    """The common part of all stages: operator and task, its outgoing edges, its counters, and its error handling."""

    def __init__(self, operator: str, task: int, on_error: OnError, counters: TaskCounters, clock: Clock) -> None:
        self.operator = operator
        self.task = task  # index within the operator
        self.on_error = on_error
        self.counters = counters
        self.clock = clock
        self.outs: tuple[OutEdge, ...] = ()
        self.letters: tuple[OutEdge, ...] = ()  # for dead letters
        self.durations: list[int] = []  # execution times of calls that ``settle`` has not counted yet

    def send(
        self, emission: int, split: int, offset: int, values: list[Any], parents: Lineages, indices: Indices
    ) -> int:
        self.counters.emitted += len(values)
        ids = 0
        for out in self.outs:
            ids ^= out.send(emission, split, offset, values, parents, indices)
        return ids

    def failed(
        self, emission: int, split: int, offset: int, value: Any, lineage: int | None, error: BaseException
    ) -> int:
        """The function raised for this tuple: skip it, send a dead letter, or raise the TaskError that ends the run.

        Returns the ack ids of dead letters.
        """
        if self.on_error is OnError.FAIL:
            raise task_error(self.operator, self.task, value, error) from None
        if self.on_error is OnError.SKIP:
            self.counters.skipped += 1
            return 0
        self.counters.dead_letters += 1
        letter = dead_letter(self.operator, self.task, value, error)
        parents = None if lineage is None else [lineage]
        ids = 0
        for out in self.letters:
            ids ^= out.send(emission, split, offset, [letter], parents, [DEAD_LETTER_INDEX])
        return ids

    def settle(self) -> None:
        """Count the calls since the last time. In bulk: to count each by itself costs more than many a call."""
        durations = self.durations
        if durations:
            counters = self.counters
            counters.received += len(durations)
            counters.busy_ns += sum(durations)
            counters.execution.record_many(durations)
            durations.clear()


class MapStage:
    """One tuple in, one out."""

    def __init__(self, function: Callable[[Any], Any], wiring: Wiring) -> None:
        self._function = function
        self.wiring = wiring

    def run(self, emission: int, split: int, offset: int, values: list[Any], lineages: Lineages) -> int:
        function, wiring = self._function, self.wiring
        clock = wiring.clock
        durations = wiring.durations
        ids = 0
        results: list[Any] = []
        last_ns = clock()
        for position, value in enumerate(values):
            try:
                results.append(function(value))
            except CAUGHT as error:
                lineage = None
                if lineages is not None:  # keep them in step with results: those after it move up by one
                    gone = len(values) - position
                    lineage = lineages[-gone]
                    lineages = lineages[: len(lineages) - gone] + lineages[len(lineages) - gone + 1 :]
                ids ^= wiring.failed(emission, split, offset, value, lineage, error)
            now_ns = clock()
            durations.append(now_ns - last_ns)
            last_ns = now_ns
        return ids ^ wiring.send(emission, split, offset, results, lineages, None)


class FlatMapStage:
    """One tuple in, any number out."""

    def __init__(self, function: Callable[[Any], Any], wiring: Wiring) -> None:
        self._function = function
        self.wiring = wiring

    def run(self, emission: int, split: int, offset: int, values: list[Any], lineages: Lineages) -> int:
        function, wiring = self._function, self.wiring
        clock = wiring.clock
        ids = 0
        durations = wiring.durations
        last_ns = clock()
        for position, value in enumerate(values):
            try:
                results = as_results(function(value))
            except CAUGHT as error:
                lineage = None if lineages is None else lineages[position]
                ids ^= wiring.failed(emission, split, offset, value, lineage, error)
                results = []
            now_ns = clock()
            durations.append(now_ns - last_ns)
            if results:
                if lineages is None:
                    ids ^= wiring.send(emission, split, offset, results, None, None)
                else:
                    count = len(results)
                    parents = [lineages[position]] * count
                    ids ^= wiring.send(emission, split, offset, results, parents, list(range(count)))
                last_ns = clock()
            else:
                last_ns = now_ns
        return ids


def as_results(returned: Any) -> list[Any]:
    """The result of a ``flat_map`` function as a list. Raises TypeError for what is returned by mistake."""
    if returned is None:
        raise TypeError("a flat_map function returned None, not an iterable: did you forget to return or yield?")
    if isinstance(returned, _TAKEN_APART):
        raise TypeError(
            f"a flat_map function returned a {type(returned).__name__}, which would be taken apart: "
            f"value={shorten(returned)}, did you mean map, or [value]?"
        )
    return list(returned)


class FilterStage:
    """One tuple in, the same or none out."""

    def __init__(self, function: Callable[[Any], Any], wiring: Wiring) -> None:
        self._function = function
        self.wiring = wiring

    def run(self, emission: int, split: int, offset: int, values: list[Any], lineages: Lineages) -> int:
        function, wiring = self._function, self.wiring
        clock = wiring.clock
        ids = 0
        kept: list[Any] = []
        parents: Lineages = None if lineages is None else []
        durations = wiring.durations
        last_ns = clock()
        for position, value in enumerate(values):
            try:
                keep = bool(function(value))
            except CAUGHT as error:
                keep = False
                lineage = None if lineages is None else lineages[position]
                ids ^= wiring.failed(emission, split, offset, value, lineage, error)
            now_ns = clock()
            durations.append(now_ns - last_ns)
            last_ns = now_ns
            if keep:
                kept.append(value)
                if parents is not None and lineages is not None:
                    parents.append(lineages[position])
        if kept:
            ids ^= wiring.send(emission, split, offset, kept, parents, None)
        return ids


class CallSinkStage:
    """A sink that does not commit. A tuple is durable once it is written."""

    def __init__(self, write: Callable[[Any], None], wiring: Wiring) -> None:
        self._write = write
        self.wiring = wiring

    def run(self, emission: int, split: int, offset: int, values: list[Any], lineages: Lineages) -> int:
        write, wiring = self._write, self.wiring
        clock = wiring.clock
        ids = 0
        durations = wiring.durations
        last_ns = clock()
        for position, value in enumerate(values):
            try:
                write(value)
            except CAUGHT as error:
                lineage = None if lineages is None else lineages[position]
                ids ^= wiring.failed(emission, split, offset, value, lineage, error)
            now_ns = clock()
            durations.append(now_ns - last_ns)
            last_ns = now_ns
        return ids


class FusedEdge(OutEdge):
    """An outgoing edge to a stage in the same task: a plain call."""

    def __init__(self, edge: EdgePlan, stage: OperatorStage) -> None:
        self._salt = edge.salt
        self._lineages = edge.lineages
        self._run = stage.run

    def send(
        self,
        emission: int,
        split: int,
        offset: int,
        values: list[Any],
        parents: list[int] | None,
        indices: list[int] | None,
    ) -> int:
        if not values:
            return 0
        if not self._lineages:
            return self._run(emission, split, offset, values, None)
        assert parents is not None
        return self._run(emission, split, offset, values, child_lineages(parents, self._salt, indices))
