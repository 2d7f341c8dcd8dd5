"""The task of a source: it reads roots, keeps their ledger, re-emits them after a loss, and hedges the late ones."""

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
"""The coordinator answers after a round trip and a write to disk. An answer that takes longer was lost with its
connection."""


class SourceTask(Task):
    """A task whose leader is a source."""

    wiring: Wiring
    owns_roots = True
    look_every_ns = SECOND_NS  # how often to look for quiet splits

    def __init__(
        self, plan: Plan, number: int, clock: Clock, ledger: Ledger, readers: dict[int, Reader], rng: Random
    ) -> None:
        super().__init__(plan, number, clock)
        self.ledger = ledger
        self.hedging: HedgingController | None = None
        self._races: HedgeRaces | None = None  # None until the first hedging rule
        self._rng = rng
        self.draining = False
        self._goal: dict[int, int] = {}  # by split: the offset that a drain must at least reach
        self._short: set[int] = set()  # splits that have not reached their goal
        self._readers = deque(readers.items())
        self._reach = ledger.reach()  # by split: the lowest offset that can follow
        self._again: deque[Root] = deque()  # to be re-emitted
        self._late: dict[Root, None] = {}  # to be hedged as soon as the held queues have room, in order
        self._salts = {split.index: split.salt for split in plan.splits_of(number)}
        source = plan.operator_of[number]
        self._may_hedge = not reasons_against(plan)[source]
        self._lineages = any(edge.lineages for edge in plan.edges if edge.upstream == source)
        self._started = False
        self._asked: dict[int, int] = {}  # the prefixes that the coordinator was last asked to commit
        self._asked_ns = 0
        self._reported: tuple[bool, bool, frozenset[int]] | None = None
        self._reported_reach = dict(self._reach)
        self._quiet: frozenset[int] = frozenset()
        self._looked_ns = 0  # when it last looked for quiet splits
        self._barrier = 0  # the barrier to be passed; 0: none
        self._behind: dict[int, int] | None = None  # the offsets that must be committed for it, once they are known

    def leads(self, edge: EdgePlan) -> bool:
        """Whether this edge begins at the source itself, not at an operator that is fused to it."""
        return edge.upstream == self.plan.operator_of[self.number]

    # -- emitting

    @property
    def exhausted(self) -> bool:
        """Whether no more roots will be read."""
        return not self._readers or (self.draining and not self._short)

    def _catch_up(self, reach: Mapping[int, int]) -> None:
        """Set how far a drain must read: splits have been read this far, perhaps by a source task that has died.

        An empty poll, or a reader that is ready only later, does not end a drain before that. The end of a split does.
        """
        self._goal.update({split: offset for split, offset in reach.items() if split in self._reach})
        self._short = {split for split, _ in self._readers if self._goal.get(split, 0) > self._reach[split]}

    def _to_read(self) -> Iterable[tuple[int, Reader]]:
        if not self.draining:
            return self._readers
        return [(split, reader) for split, reader in self._readers if split in self._short]

    @property
    def ready_ns(self) -> int | None:
        """When to call ``read``; None while there is nothing to read, or no room in the ledger."""
        if not self._started or self.exhausted or self._again or self.ledger.room <= 0:
            return None
        return min(reader.ready_ns for _, reader in self._to_read())

    def read(self, limit: int) -> int:
        """Read up to ``limit`` roots from the splits in turn, and emit them. Returns how many."""
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
                root = ledger.admit(split, offset, value, due_ns or now_ns)  # then as _emit does, but without its call
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
        """Whether an ack or a report could let the task proceed, so that the runtime must deliver it without delay."""
        idle = not self._started or self.exhausted or self.ledger.room <= 0
        return idle or self.holds_tuples or bool(self._barrier) or self.hedging is not None

    def apply(self, both: Fold, complete: Fold, durable: Fold, sent_ns: int | None = None) -> None:
        """Apply acks to the ledger. ``sent_ns``: when they were sent, if that is known; it counts as the time of the
        work."""
        now_ns = self.clock() if sent_ns is None else sent_ns
        if both:
            self.ledger.apply_both(both, now_ns)
        if complete:
            self.ledger.apply_complete(complete, now_ns)
        if durable:
            self.ledger.apply_durable(durable, now_ns)

    # -- re-emitting and hedging

    def handle(self, message: ToWorker) -> None:
        super().handle(message)
        match message:
            case Recover():
                if not self._started:
                    self._started, self._looked_ns = True, self.clock()  # a task that has not read yet is not quiet
                self._again = deque(self.ledger.unfinished())
                self._late.clear()  # a root that is re-emitted is not late
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
        """The backstop, for losses that went unnoticed. Returns how many roots will be re-emitted."""
        if self._again or not self._started:
            return 0
        self._again = deque(self.ledger.overdue(now_ns))
        return len(self._again)

    def switch(self, tail: Tail) -> None:
        """Use these techniques from now on. Hedges that are under way go on."""
        rule = tail.hedge if self._may_hedge else None
        if self.hedging is not None and rule == self.hedging.rule:
            return
        self.hedging = None
        self._late.clear()
        edges = self._record_tasks(rule is not None and rule.cancels)
        if rule is not None:
            self.hedging = HedgingController(rule, self.ledger, self.wiring.counters, self._rng, self.clock(), edges)
            if self._races is None:
                self._races = HedgeRaces(self.ledger, self.wiring.counters, self.cancels)
                self.ledger.on_complete = partial(self._completed, self._races)

    def _completed(self, races: HedgeRaces, root: Root, now_ns: int) -> None:
        won = root.hedges > 0 and races.completed(root)
        if self.hedging is not None:
            self.hedging.completed(root, now_ns, won)

    def _record_tasks(self, wanted: bool) -> list[LeastWaiting]:
        """Have the edges along which roots take turns record the task of each emission, or stop doing so."""
        outs = [out for out in self.wiring.outs if isinstance(out, RoundRobinEdge)]
        for out in outs:
            out.least_waiting = LeastWaiting(len(out.lanes)) if wanted else None
        return [out.least_waiting for out in outs if out.least_waiting is not None]

    @property
    def hedge_ns(self) -> int | None:
        """When to ask which roots are late; None while nothing is hedged."""
        return None if self.hedging is None or self._again or not self._started else self.hedging.wake_ns

    @property
    def runnable(self) -> bool:
        return bool(self._again or self._late) or (self.hedge_ns is not None and self.hedge_ns <= self.clock())

    def run(self, budget_ns: int) -> None:
        """Re-emit roots for recovery, then hedge the late ones, as long as the held queues have room."""
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

    # -- reporting to the coordinator

    @property
    def settled(self) -> bool:
        """Whether it will read no more, and all it has read is durable and committed."""
        return self._started and self.exhausted and self.ledger.settled

    @property
    def has_unreported_progress(self) -> bool:
        return bool(self.ledger.pending or self.ledger.moved or not self.settled)

    @property
    def wants_commit(self) -> bool:
        """Whether only commits of sinks keep it from reading on, from finishing, or from passing a barrier."""
        waits = self.exhausted or self.ledger.room <= 0 or self._behind is not None
        return waits and self.ledger.waits_for_commit

    @property
    def stuck(self) -> bool:
        """Whether it could go on at once if the coordinator committed its prefixes."""
        return self.ledger.moved and (self.exhausted or self.ledger.room <= 0)

    def reports(self, worker: int, epoch: int, fingerprint: Callable[[Any], bytes | None]) -> list[FromWorker]:
        """Messages for the coordinator: prefixes that have moved, or were reported long ago without an answer, a
        changed state, and a barrier that is passed."""
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
        if state != self._reported or reach:
            self._reported = state
            messages.append(SourceReport(worker, epoch, self.number, *state, reach))
        if self._barrier and self._passes_barrier():
            messages.append(Passed(worker, epoch, self.number, self._barrier))
            self._barrier, self._behind = 0, None
        return messages

    def _new_reach(self) -> dict[int, int]:
        """How far splits have been read, where the coordinator does not know it yet."""
        told = self._reported_reach
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
    """Whether a reader may still give records that were there before now: it has some ready, or is fetching some in a
    thread of its own. The latter it may say by ``ReaderExtras.may_follow``."""
    return reader.ready_ns <= now_ns or getattr(reader, "may_follow", False)
