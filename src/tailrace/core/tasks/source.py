"""A source's task keeps the ledger of its roots, and emits them again when it must."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

from tailrace.clock import SECOND_NS, Clock
from tailrace.connector import Reader, Record
from tailrace.core.failures import CAUGHT, traceback_of
from tailrace.core.hedging.controller import HedgingController, reasons_against
from tailrace.core.hedging.races import HedgeRaces
from tailrace.core.plan.plan import EdgePlan, Plan
from tailrace.core.protocol.acks import Fold
from tailrace.core.protocol.ledger import Ledger, Root
from tailrace.core.protocol.lineage import root_lineage
from tailrace.core.protocol.messages import (
    Barrier,
    Committed,
    Drain,
    FromWorker,
    Passed,
    Position,
    Prefixes,
    Recover,
    SourceReport,
    Techniques,
    ToWorker,
)
from tailrace.core.routing.router import RoundRobinEdge
from tailrace.core.source_checks import checked, not_increasing
from tailrace.core.tasks.base import Task
from tailrace.core.tasks.stages import Wiring
from tailrace.errors import TailraceError, TaskError
from tailrace.policy.hedging.api import Load
from tailrace.policy.hedging.least_waiting import LeastWaiting
from tailrace.policy.techniques import Tail

ASK_AGAIN_NS = SECOND_NS
"""An answer takes a round trip and a write to disk. One that takes so long was lost with its connection."""


class SourceTask(Task):
    """A task whose leader is a source: it keeps the ledger of its roots and emits them again when it must."""

    wiring: Wiring
    owns_roots = True
    look_every_ns = SECOND_NS  # for splits that are quiet

    def __init__(
        self, plan: Plan, number: int, clock: Clock, ledger: Ledger, readers: dict[int, Reader], rng: Random
    ) -> None:
        super().__init__(plan, number, clock)
        self.ledger = ledger
        self.hedging: HedgingController | None = None
        self._races: HedgeRaces | None = None  # since there was a rule
        self._rng = rng
        self.draining = False
        self._goal: dict[int, int] = {}  # by split: how far a drain must read, at least
        self._short: set[int] = set()  # splits that have not got there
        self._readers = deque(readers.items())
        self._reach = ledger.reach()  # by split: the lowest offset that can come next
        self._again: deque[Root] = deque()
        self._late: dict[Root, None] = {}  # to be hedged as soon as there is room in line, in order
        self._salts = {split.index: split.salt for split in plan.splits_of(number)}
        source = plan.operator_of[number]
        self._may_hedge = not reasons_against(plan)[source]
        self._lineages = any(edge.lineages for edge in plan.edges if edge.upstream == source)
        self._started = False
        self._asked: dict[int, int] = {}  # prefixes that the coordinator was last asked to commit
        self._asked_ns = 0
        self._told: tuple[bool, bool, frozenset[int]] | None = None
        self._told_reach = dict(self._reach)
        self._quiet: frozenset[int] = frozenset()
        self._looked_ns = 0  # for what is quiet
        self._barrier = 0  # to be passed; 0: none
        self._behind: dict[int, int] | None = None  # what must be committed for it, once that is known

    def leads(self, edge: EdgePlan) -> bool:
        """Whether this edge begins at the source itself, and not at something that is fused to it."""
        return edge.upstream == self.plan.operator_of[self.number]

    # -- emitting

    @property
    def exhausted(self) -> bool:
        """No root will be read any more."""
        return not self._readers or (self.draining and not self._short)

    def _catch_up(self, reach: Mapping[int, int]) -> None:
        """Splits have been read as far as this, perhaps by one that died: a drain must not end before it is there.

        That a poll is empty, or the next one due later, says nothing: only the end of a split is one.
        """
        self._goal.update({split: offset for split, offset in reach.items() if split in self._reach})
        self._short = {split for split, _ in self._readers if self._goal.get(split, 0) > self._reach[split]}

    def _to_read(self) -> Iterable[tuple[int, Reader]]:
        if not self.draining:
            return self._readers
        return [(split, reader) for split, reader in self._readers if split in self._short]

    @property
    def ready_ns(self) -> int | None:
        """When it is worth reading; None while there is nothing to read or no room for it."""
        if not self._started or self.exhausted or self._again or self.ledger.room <= 0:
            return None
        return min(reader.ready_ns for _, reader in self._to_read())

    def read(self, limit: int) -> int:
        """Read up to ``limit`` roots, over all splits in turn, and emit them. Returns how many."""
        taken, ledger, hedging = 0, self.ledger, self.hedging
        for _ in range(len(self._readers)):
            now_ns = self.clock()
            split, reader = self._readers[0]
            if self.draining and split not in self._short:
                self._readers.rotate(-1)
                continue
            records = self._poll(split, reader, min(limit - taken, ledger.room), now_ns)
            low = self._reach[split]
            for offset, due_ns, value in records:
                if offset < low:
                    raise not_increasing(self.wiring.operator, self.plan.splits[split].name, offset, low)
                low = offset + 1
                root = ledger.admit(split, offset, value, due_ns or now_ns)  # then as _emit does, without a call
                self._send(root, ledger.emit(root, now_ns), now_ns)
                if hedging is not None:
                    hedging.emitted(root, now_ns)
            self._reach[split] = low
            if reader.done or low >= self._goal.get(split, 0):
                self._short.discard(split)
            taken += len(records)
            if reader.done:
                self._readers.popleft()
                reader.close()
            else:
                self._readers.rotate(-1)
            if taken >= limit or ledger.room <= 0:
                break
        self.wiring.counters.received += taken
        return taken

    def _poll(self, split: int, reader: Reader, limit: int, now_ns: int) -> Sequence[Record]:
        name = self.plan.splits[split].name
        try:
            return checked(self.wiring.operator, name, reader.poll(limit, now_ns), limit)
        except TailraceError:
            raise
        except CAUGHT as error:
            place = f"(while reading split {name})"
            raise TaskError(self.wiring.operator, self.wiring.task, place, traceback_of(error)) from None

    def _emit(self, root: Root, now_ns: int) -> None:
        self._send(root, self.ledger.emit(root, now_ns), now_ns)
        if self.hedging is not None:
            self.hedging.emitted(root, now_ns)

    def _send(self, root: Root, emission: int, now_ns: int) -> None:
        parents = [root_lineage(self._salts[root.split], root.offset)] if self._lineages else None
        ids = self.wiring.send(emission, root.split, root.offset, [root.value], parents, None)
        self.ledger.arm(emission, ids, now_ns)

    @property
    def needs_acks_now(self) -> bool:
        """Whether it could do something at once if it heard of an ack, or of what a task reports."""
        idle = not self._started or self.exhausted or self.ledger.room <= 0
        return idle or self.holds_tuples or bool(self._barrier) or self.hedging is not None

    def apply(self, both: Fold, complete: Fold, durable: Fold, sent_ns: int | None = None) -> None:
        """Acks have arrived. What they tell of was done when they were sent, as far as that is known."""
        now_ns = self.clock() if sent_ns is None else sent_ns
        if both:
            self.ledger.apply_both(both, now_ns)
        if complete:
            self.ledger.apply_complete(complete, now_ns)
        if durable:
            self.ledger.apply_durable(durable, now_ns)

    # -- emitting again

    def handle(self, message: ToWorker) -> None:
        super().handle(message)
        match message:
            case Recover():
                if not self._started:
                    self._started, self._looked_ns = True, self.clock()  # one that has not read yet is not quiet
                self._again = deque(self.ledger.unfinished())
                self._late.clear()  # what is emitted again is not late
                self._catch_up(message.reach)
            case Committed():
                for split, offset in message.offsets.items():
                    self.ledger.committed(split, offset)
                for split, reader in self._readers:
                    if split in message.offsets and hasattr(reader, "committed"):
                        reader.committed(message.offsets[split])
            case Barrier():
                self._barrier, self._behind = message.number, None
            case Drain():
                self.draining = True
            case Techniques():
                self.switch(message.tail)
            case Load() if self.hedging is not None:
                self.hedging.loaded(message, self.clock())

    def check_overdue(self, now_ns: int) -> int:
        """The backstop, for losses that nobody reported. Returns how many roots will be emitted again."""
        if self._again or not self._started:
            return 0
        self._again = deque(self.ledger.overdue(now_ns))
        return len(self._again)

    def switch(self, tail: Tail) -> None:
        """These techniques are on from now on. Roots that are hedged stay so."""
        rule = tail.hedge if self._may_hedge else None
        if self.hedging is not None and rule == self.hedging.rule:
            return
        self.hedging = None
        self._late.clear()
        edges = self._places(rule is not None and rule.cancels)
        if rule is not None:
            self.hedging = HedgingController(rule, self.ledger, self.wiring.counters, self._rng, self.clock(), edges)
            if self._races is None:
                self._races = HedgeRaces(self.ledger, self.wiring.counters, self.cancels)
                self.ledger.on_complete = partial(self._completed, self._races)

    def _completed(self, races: HedgeRaces, root: Root, now_ns: int) -> None:
        won = root.hedges > 0 and races.completed(root)
        if self.hedging is not None:
            self.hedging.completed(root, now_ns, won)

    def _places(self, noted: bool) -> list[LeastWaiting]:
        """Have the edges along which roots take turns note where they go, or not any more."""
        outs = [out for out in self.wiring.outs if isinstance(out, RoundRobinEdge)]
        for out in outs:
            out.least_waiting = LeastWaiting(len(out.lanes)) if noted else None
        return [out.least_waiting for out in outs if out.least_waiting is not None]

    @property
    def hedge_ns(self) -> int | None:
        """When it is worth asking whether a root is late; None while nothing is hedged."""
        return None if self.hedging is None or self._again or not self._started else self.hedging.wake_ns

    @property
    def runnable(self) -> bool:
        return bool(self._again or self._late) or (self.hedge_ns is not None and self.hedge_ns <= self.clock())

    def run(self, budget_ns: int) -> None:
        """Emit again what recovery wants, then what is late, as long as no line is full."""
        end_ns = self.clock() + budget_ns
        while self._again:
            root = self._again.popleft()
            if not root.durable:
                self._emit(root, self.clock())
            if self.clock() >= end_ns or self.held_full:
                return
        if self.hedging is not None and self._races is not None and self._started:
            self._hedge(self.hedging, self._races, self.clock())

    def _hedge(self, hedging: HedgingController, races: HedgeRaces, now_ns: int) -> None:
        self._late.update(dict.fromkeys(hedging.due(now_ns)))
        while self._late and not self.held_full:
            root = next(iter(self._late))
            del self._late[root]
            if not root.complete_ns:
                self._send(root, races.hedge(root, hedging.rule.cancels), now_ns)

    def show(self) -> None:
        super().show()
        counters, ledger = self.wiring.counters, self.ledger
        counters.pending = ledger.not_durable
        counters.reemitted = ledger.reemitted
        counters.complete = ledger.complete_latency
        counters.durable_latency = ledger.durable_latency
        counters.completed = ledger.complete_latency.count
        counters.durable = ledger.durable_latency.count
        counters.timeout_ns, counters.hedges_left = 0, 0.0
        if self.hedging is not None:
            self.hedging.show()

    # -- telling the coordinator

    @property
    def settled(self) -> bool:
        """It will read no more, and all it has read is durable and committed."""
        return self._started and self.exhausted and self.ledger.settled

    @property
    def has_unreported_progress(self) -> bool:
        return bool(self.ledger.pending or self.ledger.moved or not self.settled)

    @property
    def wants_commit(self) -> bool:
        """It can go no further, or shall say when all is durable, and what it waits for are commits."""
        stands = self.exhausted or self.ledger.room <= 0 or self._behind is not None
        return stands and self.ledger.waits_for_commit

    @property
    def stuck(self) -> bool:
        """It could read on at once if its prefix were committed."""
        return self.ledger.moved and (self.exhausted or self.ledger.room <= 0)

    def reports(self, worker: int, epoch: int, fingerprint: Callable[[Any], bytes | None]) -> list[FromWorker]:
        """What the coordinator should hear: prefixes that moved since it was asked, or long ago, and a new state."""
        messages: list[FromWorker] = []
        now_ns = self.clock()
        moved = self.ledger.uncommitted()
        offsets = {split: offset for split, (offset, _) in moved.items()}
        if moved and (offsets != self._asked or now_ns - self._asked_ns > ASK_AGAIN_NS):
            self._asked, self._asked_ns = offsets, now_ns
            positions = {split: Position(offset, fingerprint(value)) for split, (offset, value) in moved.items()}
            messages.append(Prefixes(worker, epoch, positions, self._new_reach()))
        if self._started and now_ns - self._looked_ns >= self.look_every_ns:
            self._quiet, self._looked_ns = frozenset(self.ledger.quiet()), now_ns
        state, reach = (self.settled, self.wants_commit, self._quiet), self._new_reach()
        if state != self._told or reach:
            self._told = state
            messages.append(SourceReport(worker, epoch, self.number, *state, reach))
        if self._barrier and self._passes_barrier():
            messages.append(Passed(worker, epoch, self.number, self._barrier))
            self._barrier, self._behind = 0, None
        return messages

    def _new_reach(self) -> dict[int, int]:
        """How far splits have been read, if the coordinator has not been told."""
        told = self._told_reach
        news = {split: offset for split, offset in self._reach.items() if offset > told[split]}
        told.update(news)
        return news

    def _passes_barrier(self) -> bool:
        if self._behind is None and self._started and not self._again and self._nothing_to_read:
            self._behind = self.ledger.reach()
        return self._behind is not None and self.ledger.has_committed(self._behind)

    @property
    def _nothing_to_read(self) -> bool:
        now_ns = self.clock()
        return self.exhausted or not any(_may_give(reader, now_ns) for _, reader in self._to_read())


def _may_give(reader: Reader, now_ns: int) -> bool:
    """One who reads in a thread of its own may have something at any moment, though it has nothing now."""
    return reader.ready_ns <= now_ns or getattr(reader, "may_follow", False)
