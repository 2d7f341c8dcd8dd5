"""A stage is one operator inside a task: it calls the user's function and passes the results on.

A stage takes the values of one bundle at a time and returns the exclusive or of the ack ids of all it sent, so that
the task can acknowledge the bundle. Stages joined by fused edges call each other directly. The execution time of
every call is measured: the end of one call is the start of the next, which is one reading of the clock a tuple.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Protocol

from tailrace.clock import Clock
from tailrace.connector import CommittingWriter, Entry
from tailrace.core.failures import CAUGHT, dead_letter, task_error, told_by
from tailrace.core.plan.plan import EdgePlan, Plan
from tailrace.core.protocol.acks import AckFold, Fold, fold_into
from tailrace.core.protocol.lineage import child_lineages
from tailrace.core.protocol.sink_log import DUPLICATE_DURABLE, WRITE, SinkLog
from tailrace.core.routing.router import OutEdge
from tailrace.errors import Fenced, TaskError, shorten
from tailrace.metrics.counters import TaskCounters
from tailrace.topology import OnError

Lineages = list[int] | None
Indices = list[int] | None

_TAKEN_APART = (str, bytes, bytearray, dict)
"""What nobody means when a ``flat_map`` function returns it: its letters, numbers or keys."""

DEAD_LETTER_INDEX = 0xDEAD
"""Output index of a dead letter: apart from the indices of what the same call might have emitted."""


class Stage(Protocol):
    """Law: ``run`` returns the exclusive or of the ack ids of exactly the bundles it made."""

    def run(self, emission: int, split: int, offset: int, values: list[Any], lineages: Lineages) -> int: ...


class Wiring:
    """What every stage has: its place, its outgoing edges, and what it does about errors."""

    def __init__(self, operator: str, task: int, on_error: OnError, counters: TaskCounters, clock: Clock) -> None:
        self.operator = operator
        self.task = task  # index within the operator
        self.on_error = on_error
        self.counters = counters
        self.clock = clock
        self.outs: tuple[OutEdge, ...] = ()
        self.letters: tuple[OutEdge, ...] = ()
        self.durations: list[int] = []  # execution times of calls that are not counted yet

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
        """Skip the tuple, send it to the dead letters, or raise the TaskError that ends the run."""
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
        """Count the calls since the last time. In bulk, because counting them one by one costs more than many calls."""
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
                if lineages is not None:  # keep lineages in step with results: later ones move up by one
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
    """What a ``flat_map`` function returned, as a list."""
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
    """A sink that does not commit: writing a tuple is all there is to it."""

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


_Held = tuple[int, int, int, int, list[Any], list[int]]
"""(ack id, emission, split, offset, values, lineages)"""

MOST_HELD = 4096
"""Tuples that a sink takes during a commit before it holds its senders back."""


class CommitSinkStage:
    """A sink that commits: what it takes is complete at once, and durable when it is committed.

    It gives what it takes from a bundle an ack id of its own, so that the task may acknowledge the bundle at once.

    A commit may be carried out by another thread, between ``begin_commit`` and ``end_commit``. The writer is that
    thread's meanwhile, so that what comes is held, and written when the commit is over. It is complete all the same.
    """

    def __init__(
        self, writer: CommittingWriter, log: SinkLog, acks: dict[int, AckFold], plan: Plan, rng: Random, wiring: Wiring
    ) -> None:
        self._writer = writer
        self._write = writer.write
        self.log = log
        self._acks = acks
        self._owners = plan.owners
        self._splits = [split.key for split in plan.splits]
        self._new_id = rng.getrandbits
        self._waiting: dict[int, Fold] = {}  # ledger's task -> durable acks that wait for the commit
        self.wiring = wiring
        self._rows = 0  # written since the last commit
        self._first_ns = 0  # when the first of them was
        self._forgotten = dict(log.prefixes)
        self._committing = False  # by another thread
        self._hurry = False  # the next commit is wanted as soon as this one is over
        self._held: list[_Held] = []  # what has come meanwhile
        self._held_tuples = 0

    def run(self, emission: int, split: int, offset: int, values: list[Any], lineages: Lineages) -> int:
        assert lineages is not None
        if self._committing:
            return self._hold(emission, split, offset, values, lineages)
        ids, waits = self._take(emission, split, offset, values, lineages)
        if waits:
            owner = self._owners[split]
            ack = self._new_ack(emission, owner)
            self._wait(emission, owner, ack)
            ids ^= ack
        return ids

    def _take(self, emission: int, split: int, offset: int, values: list[Any], lineages: list[int]) -> tuple[int, bool]:
        """Write what is to be written. Ack ids of what that leads to, and whether any of it waits for the commit."""
        write, log, wiring = self._write, self.log, self.wiring
        clock = wiring.clock
        ids = 0
        waits = False
        durations = wiring.durations
        last_ns = clock()
        for value, lineage in zip(values, lineages, strict=True):
            verdict = log.admit(split, offset, lineage)
            if verdict == WRITE:
                try:
                    write(value)
                except CAUGHT as error:
                    ids ^= wiring.failed(emission, split, offset, value, lineage, error)
                else:
                    log.wrote(split, offset, lineage)
                    waits = True
                    if not self._rows:
                        self._first_ns = last_ns
                    self._rows += 1
            else:
                wiring.counters.duplicates += 1
                waits = waits or verdict != DUPLICATE_DURABLE
            now_ns = clock()
            durations.append(now_ns - last_ns)
            last_ns = now_ns
        return ids, waits

    def _hold(self, emission: int, split: int, offset: int, values: list[Any], lineages: list[int]) -> int:
        ack = self._new_ack(emission, self._owners[split])
        self._held.append((ack, emission, split, offset, values, lineages))
        self._held_tuples += len(values)
        return ack

    def _new_ack(self, emission: int, owner: int) -> int:
        """An id that is complete already. It must become durable some time."""
        ack = self._new_id(64)
        complete = self._acks[owner].complete
        complete[emission] = complete.get(emission, 0) ^ ack
        return ack

    def _wait(self, emission: int, owner: int, ack: int) -> None:
        waiting = self._waiting.setdefault(owner, {})
        waiting[emission] = waiting.get(emission, 0) ^ ack

    @property
    def deadline_ns(self) -> int | None:
        """When what was written must be committed; None if nothing was, or that is being done."""
        if self._committing or not self._rows:
            return None
        return 0 if self._hurry or self._writer.full else self._first_ns + self._writer.commit_every_ns

    @property
    def overfull(self) -> bool:
        """Whether so much has come during a commit that no more should."""
        return self._held_tuples >= MOST_HELD

    def commit(self) -> None:
        """Make what was written durable, and release the acks that waited for it. Raises ``Fenced``.

        If a commit is under way the next one is due as soon as that is over.
        """
        if self._committing:
            self.hurry()
        elif self._rows:
            self.begin_commit()()
            self.end_commit()

    def hurry(self) -> None:
        """What was written, and what has come during a commit, is to be committed as soon as that may be."""
        self._hurry = self._committing or self._rows > 0

    def begin_commit(self) -> Callable[[], None]:
        """What was written is to be committed: any one thread shall call what this returns. Then ``end_commit``."""
        assert self._rows and not self._committing
        self._committing, self._hurry = True, False
        entries = [Entry(self._splits[split], *mark) for split, *mark in self.log.open_marks]
        return partial(self._carry_out, entries, self._rows, self._to_forget())

    def _carry_out(self, entries: list[Entry], rows: int, forgotten: dict[str, int]) -> None:
        try:
            self._writer.commit(entries)
            if forgotten:
                self._writer.forget(forgotten)
        except (Fenced, TaskError):
            raise
        except CAUGHT as error:
            place = f"(while committing {rows} rows)"
            raise TaskError(self.wiring.operator, self.wiring.task, place, told_by(error)) from None

    def end_commit(self) -> None:
        """The commit has succeeded: release the acks that waited for it, and write what has come meanwhile."""
        self._committing = False
        self.log.committed()
        self._rows = 0
        for owner, fold in self._waiting.items():
            fold_into(self._acks[owner].durable, fold)
        self._waiting = {}
        held, self._held, self._held_tuples = self._held, [], 0
        for ack, emission, split, offset, values, lineages in held:
            self._write_held(ack, emission, split, offset, values, lineages)
        self._hurry = self._hurry and self._rows > 0

    def _write_held(
        self, ack: int, emission: int, split: int, offset: int, values: list[Any], lineages: list[int]
    ) -> None:
        owner = self._owners[split]
        ids, waits = self._take(emission, split, offset, values, lineages)
        if ids:  # of dead letters, before what they are made of is durable
            fold_into(self._acks[owner].both, {emission: ids})
        if waits:
            self._wait(emission, owner, ack)
        else:
            fold_into(self._acks[owner].durable, {emission: ack})

    def _to_forget(self) -> dict[str, int]:
        moved = {
            self._splits[split]: offset
            for split, offset in self.log.prefixes.items()
            if offset > self._forgotten.get(split, 0)
        }
        self._forgotten = dict(self.log.prefixes)
        return moved


class FusedEdge:
    """An edge to a stage in the same task: a plain call."""

    def __init__(self, edge: EdgePlan, stage: Stage) -> None:
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
