"""The stage of a sink that commits.

What it writes is complete at once, and durable when it is committed. The stage gives the tuples that it takes from a
bundle an ack id of their own: the task can acknowledge the bundle at once, and the new id becomes durable with the
commit.

A commit may run in another thread, between ``begin_commit`` and ``end_commit``. The writer belongs to that thread
meanwhile, so the stage holds the bundles that arrive, and writes them when the commit has ended. They count as complete
all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from tailrace.connector import CommittingWriter, Entry
from tailrace.core.failures import CAUGHT, told_by
from tailrace.core.plan.plan import Plan
from tailrace.core.protocol.acks import AckFold, Fold, fold_into
from tailrace.core.protocol.sink_log import DUPLICATE_DURABLE, WRITE, SinkLog
from tailrace.core.tasks.stages import Lineages, Wiring
from tailrace.errors import Fenced, TaskError

_Held = tuple[int, int, int, int, list[Any], list[int]]
"""(ack id, emission, split, offset, values, lineages)"""

MOST_HELD = 4096
"""Tuples that a sink takes during a commit, beyond which it holds its senders back."""


class CommitSinkStage:
    """The stage of one task of a committing sink."""

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
        self._waiting: dict[int, Fold] = {}  # source task -> durable acks that wait for the commit
        self.wiring = wiring
        self._rows = 0  # written since the last commit
        self._first_ns = 0  # when the first of them was written
        self._forgotten = dict(log.prefixes)  # the prefixes that the writer has been told to forget below
        self._committing = False  # a commit is under way, perhaps in another thread
        self._commit_again = False  # the next commit is due as soon as this one has ended
        self._held: list[_Held] = []  # bundles that arrived meanwhile
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
        """Write the tuples that are new. Returns ack ids of dead letters, and whether a tuple waits for the commit."""
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
        """An ack id that is complete already. The caller must see to it that it becomes durable."""
        ack = self._new_id(64)
        complete = self._acks[owner].complete
        complete[emission] = complete.get(emission, 0) ^ ack
        return ack

    def _wait(self, emission: int, owner: int, ack: int) -> None:
        waiting = self._waiting.setdefault(owner, {})
        waiting[emission] = waiting.get(emission, 0) ^ ack

    @property
    def deadline_ns(self) -> int | None:
        """When the rows written so far must be committed. None if there are none, or a commit is under way."""
        if self._committing or not self._rows:
            return None
        return 0 if self._commit_again or self._writer.full else self._first_ns + self._writer.commit_every_ns

    @property
    def overfull(self) -> bool:
        """Whether so many tuples have arrived during a commit that senders must be held back."""
        return self._held_tuples >= MOST_HELD

    def commit(self) -> None:
        """Commit the rows written so far, in this thread, and release the acks that waited for it. Raises ``Fenced``.

        If a commit is under way, the next one is due as soon as it has ended.
        """
        if self._committing:
            self.commit_soon()
        elif self._rows:
            self.begin_commit()()
            self.end_commit()

    def commit_soon(self) -> None:
        """Make a commit due now, or as soon as the one under way has ended."""
        self._commit_again = self._committing or self._rows > 0

    def begin_commit(self) -> Callable[[], None]:
        """Begin to commit the rows written so far, of which there must be some.

        The caller must have one thread, any one, call the function that this returns. If that succeeds it must call
        ``end_commit``.
        """
        assert self._rows and not self._committing
        self._committing, self._commit_again = True, False
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
        """The commit has succeeded: release the acks that waited for it, and write what arrived meanwhile."""
        self._committing = False
        self.log.committed()
        self._rows = 0
        for owner, fold in self._waiting.items():
            fold_into(self._acks[owner].durable, fold)
        self._waiting = {}
        held, self._held, self._held_tuples = self._held, [], 0
        for ack, emission, split, offset, values, lineages in held:
            self._write_held(ack, emission, split, offset, values, lineages)
        self._commit_again = self._commit_again and self._rows > 0

    def _write_held(
        self, ack: int, emission: int, split: int, offset: int, values: list[Any], lineages: list[int]
    ) -> None:
        owner = self._owners[split]
        ids, waits = self._take(emission, split, offset, values, lineages)
        if ids:  # those of dead letters
            fold_into(self._acks[owner].both, {emission: ids})
        if waits:
            self._wait(emission, owner, ack)
        else:
            fold_into(self._acks[owner].durable, {emission: ack})

    def _to_forget(self) -> dict[str, int]:
        """The prefixes that have moved since the last commit: the writer needs no entries below them any more."""
        moved = {
            self._splits[split]: offset
            for split, offset in self.log.prefixes.items()
            if offset > self._forgotten.get(split, 0)
        }
        self._forgotten = dict(self.log.prefixes)
        return moved
