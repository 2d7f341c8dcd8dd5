"""Rules of the delivery protocol, each broken on purpose: see ``mutations``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from itertools import count
from typing import Any
from unittest.mock import patch

from tailrace.connector import CommittingWriter, Entry
from tailrace.core import assembly
from tailrace.core.feedback import sender
from tailrace.core.plan import planner
from tailrace.core.plan.plan import OperatorPlan, SplitPlan
from tailrace.core.protocol.coordinator import Coordinator, Phase, WorkerState
from tailrace.core.protocol.driver_rows import DriverRows, SinkTask
from tailrace.core.protocol.ledger import Ledger, Root
from tailrace.core.protocol.membership import ACCEPT, REFUSE, LinkSequence, Membership
from tailrace.core.protocol.messages import (
    Command,
    Committed,
    Drain,
    FromWorker,
    Persist,
    Prefixes,
    Recover,
    Send,
    ToWorker,
)
from tailrace.core.protocol.sightings import Sightings
from tailrace.core.protocol.sink_log import DUPLICATE_DURABLE, DUPLICATE_PENDING, WRITE, SinkLog
from tailrace.core.protocol.stored_state import StoredState
from tailrace.core.protocol.worker_deaths import Deaths
from tailrace.core.routing import router
from tailrace.core.routing.router import LaneEdge
from tailrace.core.tasks import stages
from tailrace.core.tasks.source import SourceTask
from tailrace.sim.faults import topologies
from tailrace.sim.faults.sinks.store import Store, StoreWriter

Patch = AbstractContextManager[Any]


@contextmanager
def together(*patches: Patch) -> Iterator[None]:
    with ExitStack() as stack:
        for each in patches:
            stack.enter_context(each)
        yield


# -- identity and acknowledgement


def ack_ids_are_lineages() -> Patch:
    """The ack id of a bundle is the exclusive or of its lineages, equal for every incarnation."""
    original = LaneEdge.send

    def send(self: LaneEdge, *args: Any) -> int:
        before = [len(lane.bundles) for lane in self.lanes]
        ids = original(self, *args)
        for lane, length in zip(self.lanes, before, strict=True):
            for position in range(length, len(lane.bundles)):
                emission, split, offset, ack, lineages, values, origin, attached = lane.bundles[position]
                if lineages is not None:
                    named = 0
                    for lineage in lineages:
                        named ^= lineage
                    lane.bundles[position] = (emission, split, offset, named, lineages, values, origin, attached)
                    ids ^= ack ^ named
        return ids

    return patch.object(LaneEdge, "send", send)


def one_register_a_root() -> Patch:
    """Re-emissions of a root share the register, and the emission number, of its first emission."""
    original = Ledger.emit

    def emit(self: Ledger, root: Root, now_ns: int) -> int:
        if not root.emissions:
            return original(self, root, now_ns)
        root.emitted_ns = now_ns
        root.emissions.append(root.emissions[0])
        self.reemitted += 1
        return root.emissions[0]

    def durable(self: Ledger, root: Root, now_ns: int) -> None:
        root.emissions = list(dict.fromkeys(root.emissions))
        become_durable(self, root, now_ns)

    become_durable = Ledger._durable
    return together(patch.object(Ledger, "emit", emit), patch.object(Ledger, "_durable", durable))


def lineages_in_one_register() -> Patch:
    return together(ack_ids_are_lineages(), one_register_a_root())


def emissions_from_zero() -> Patch:
    original = Ledger.__init__

    def init(self: Ledger, *args: Any) -> None:
        original(self, *args)
        self._next_emission = 0

    return patch.object(Ledger, "__init__", init)


# -- the prefix


def prefix_on_complete() -> Patch:
    original = Ledger._complete

    def complete(self: Ledger, root: Root, now_ns: int) -> None:
        first = not root.complete_ns
        original(self, root, now_ns)
        if first:
            self._durable(root, now_ns)

    return patch.object(Ledger, "_complete", complete)


def prefix_is_newest() -> Patch:
    """The prefix jumps behind the newest durable root, over whatever is still pending."""

    def advance(self: Ledger, split: int) -> None:
        span = self._spans[split]
        newest = max((root.offset for root in span if root.durable), default=-1)
        while span and span[0].offset <= newest:
            root = span.popleft()
            self._pending -= 1
            self._uncommitted[split].append(root.offset)
            self._prefix[split] = root.offset + 1
            self._below[split] = root.value
            if not root.durable:
                root.durable = True
                self.not_durable -= 1
                for emission in root.emissions:
                    del self._live[emission]

    return patch.object(Ledger, "_advance", advance)


def span_from_own_prefix() -> Patch:
    """A ledger that is cut off goes on as long as its own prefix moves, further than its successor will look."""
    return patch.object(Ledger, "span", property(lambda self: self._pending))


def successor_stops_at_once() -> Patch:
    return patch.object(SourceTask, "_catch_up", lambda self, reach: None)


def catches_up_to_an_empty_poll() -> Patch:
    """A successor takes a poll that gives nothing for the end of what its predecessor can have read."""
    original = SourceTask.read

    def read(self: SourceTask, limit: int) -> int:
        taken = original(self, limit)
        if not taken:
            self._short.clear()
        return taken

    return patch.object(SourceTask, "read", read)


def sightings_not_told() -> Patch:
    """How far a dead source has got is what it has said itself."""
    return patch.object(Sightings, "so_far", lambda self: {})


def read_back_not_seen() -> Patch:
    """What a sink's predecessor has committed does not count as seen."""
    return patch.object(Sightings, "read_back", lambda self, marks: None)


def span_unbounded() -> Patch:
    return patch.object(Ledger, "room", property(lambda self: 1000))


def prefix_travels_first() -> Patch:
    """Workers hear of a prefix before it is stored."""
    original = Coordinator._commit

    def commit(self: Coordinator, message: Prefixes) -> list[Command]:
        news = Committed({split: position.offset for split, position in message.positions.items()})
        return [*self._broadcast(news), *original(self, message)]

    return patch.object(Coordinator, "_commit", commit)


def prefix_of_the_moment() -> Patch:
    """When a write is done, workers hear how far splits are by then, and not what was written."""
    original = StoredState.done

    def done(self: StoredState) -> dict[int, int]:
        return {split: self.reached[split].offset for split in original(self)}

    return patch.object(StoredState, "done", done)


def begins_where_others_are() -> Patch:
    """A process is told how far ledgers are, stored or not."""
    original = Coordinator._registered

    def registered(self: Coordinator, message: Any, entry: Any) -> list[Command]:
        stored, self.positions = self.positions, dict(self.reached)
        try:
            return original(self, message, entry)
        finally:
            self.positions = stored

    return patch.object(Coordinator, "_registered", registered)


def epochs_not_stored() -> Patch:
    """Epochs that were used are forgotten with the coordinator."""
    original = StoredState.begin

    def begin(self: StoredState, next_epoch: int) -> list[Persist]:
        return [replace(persist, next_epoch=1) for persist in original(self, next_epoch)]

    return patch.object(StoredState, "begin", begin)


def settled_before_stored() -> Patch:
    """A source is done when all it has read is durable, whether that is stored or not."""
    return patch.object(Ledger, "settled", property(lambda self: not self._pending))


# -- silence and deaths


def silence_without_excuse() -> Patch:
    return patch.object(Coordinator, "excuse", lambda self, now_ns, held_ns: None)


def finished_splits_held_back() -> Patch:
    """A split without pending roots counts as one that a tuple holds back."""

    def held_back(self: Deaths, prefixes: Mapping[int, int], quiet: object) -> list[int]:
        return [split for split, offset in self.prefixes.items() if prefixes[split] <= offset]

    return patch.object(Deaths, "held_back", held_back)


def silence_until_handled() -> Patch:
    """Messages count when their turn comes, not when they arrive."""
    original = Coordinator.handle

    def handle(self: Coordinator, message: FromWorker, now_ns: int) -> list[Command]:
        heard(self, message.worker, message.epoch, now_ns)
        return original(self, message, now_ns)

    heard = Coordinator.heard
    return together(
        patch.object(Coordinator, "heard", lambda self, worker, epoch, at_ns: None),
        patch.object(Coordinator, "handle", handle),
    )


# -- recovery


def recovery_without_reemission() -> Patch:
    original = SourceTask.handle

    def handle(self: SourceTask, message: ToWorker) -> None:
        again = self._again
        original(self, message)
        if isinstance(message, Recover):
            self._again = again

    return patch.object(SourceTask, "handle", handle)


def recovery_of_incomplete_only() -> Patch:
    original = Ledger.unfinished
    return patch.object(Ledger, "unfinished", lambda self: [root for root in original(self) if not root.complete_ns])


def no_backstop() -> Patch:
    return patch.object(Ledger, "overdue", lambda self, now_ns: [])


def recovery_at_once() -> Patch:
    """A recovery is announced as soon as it is due, whoever still acts on an old membership."""
    original = Coordinator._recover_if_due

    def recover(self: Coordinator, now_ns: int) -> list[Command]:
        due = self._recover_at_ns is not None and now_ns >= self._recover_at_ns
        if self.phase is not Phase.RUNNING or not due:
            return original(self, now_ns)
        self._recover_at_ns = None
        self.recoveries += 1
        return self._broadcast(Recover())

    return patch.object(Coordinator, "_recover_if_due", recover)


def recovery_before_applied() -> Patch:
    """A recovery waits until all workers are ready, but not until they act on the newest membership."""
    original = Coordinator._recover_if_due

    def recover(self: Coordinator, now_ns: int) -> list[Command]:
        for entry in self._table.values():
            if entry.state is WorkerState.READY and self.phase is Phase.RUNNING:
                entry.applied = self._version
        return original(self, now_ns)

    return patch.object(Coordinator, "_recover_if_due", recover)


def opening_workers_do_not_drain() -> Patch:
    """A worker that opens its tasks when a drain begins is told neither then nor when it is ready."""
    original = Coordinator.handle

    def handle(self: Coordinator, message: FromWorker, now_ns: int) -> list[Command]:
        commands = original(self, message, now_ns)
        return [c for c in commands if not (isinstance(c, Send) and isinstance(c.message, Drain))]

    return patch.object(Coordinator, "handle", handle)


# -- sinks


def nothing_read_back() -> Patch:
    original = assembly.open_log

    def open_log(writer: CommittingWriter, *args: Any) -> SinkLog:
        return SinkLog(original(writer, *args).prefixes, [])

    return patch.object(assembly, "open_log", open_log)


def entries_later() -> Patch:
    """Rows are visible at once, their entries with the next commit of the same writer."""
    original = StoreWriter.commit

    def commit(self: StoreWriter, entries: Sequence[Entry]) -> None:
        held: Sequence[Entry] = getattr(self, "held", [])
        self.held = entries  # type: ignore[attr-defined]
        original(self, held)

    return patch.object(StoreWriter, "commit", commit)


def duplicate_durable_at_once() -> Patch:
    original = SinkLog.admit

    def admit(self: SinkLog, split: int, offset: int, lineage: int) -> int:
        verdict = original(self, split, offset, lineage)
        return DUPLICATE_DURABLE if verdict == DUPLICATE_PENDING else verdict

    return patch.object(SinkLog, "admit", admit)


def commits_not_fenced() -> Patch:
    return patch.object(Store, "check", lambda self, place: None)


def fences_its_own_task_only() -> Patch:
    """A task that recovers leaves alone what other tasks of the run before may still commit."""
    original = Store.fence
    return patch.object(Store, "fence", lambda self, place: original(self, place._replace(first_epoch=0)))


def another_job_resets() -> Patch:
    """A message of another job has the driver side forget what it knows of the one before."""
    original = DriverRows._job_of

    def job_of(self: DriverRows, place: SinkTask) -> Any:
        self._jobs = {job_id: job for job_id, job in self._jobs.items() if job_id == place.job_id}
        return original(self, place)

    return patch.object(DriverRows, "_job_of", job_of)


def forgets_above_the_prefix() -> Patch:
    original = SinkLog.committed

    def committed(self: SinkLog) -> None:
        original(self)
        self._durable.clear()

    return patch.object(SinkLog, "committed", committed)


def takes_below_the_prefix() -> Patch:
    def admit(self: SinkLog, split: int, offset: int, lineage: int) -> int:
        if lineage in self._durable:
            return DUPLICATE_DURABLE
        return DUPLICATE_PENDING if lineage in self._open else WRITE

    return patch.object(SinkLog, "admit", admit)


def shuffled_into_sinks() -> Patch:
    turn = count()
    return patch.object(
        LaneEdge, "_by_lineage", lambda self, lineages: [next(turn) % len(self.lanes) for _ in lineages]
    )


# -- frames


def dead_epochs_heard() -> Patch:
    return patch.object(Membership, "counts", lambda self, worker, epoch: True)


def copies_taken() -> Patch:
    return patch.object(LinkSequence, "check", lambda self, number: ACCEPT)


def losses_unnoticed() -> Patch:
    """A skipped number is taken for nothing special: no news of a lost link."""
    original = LinkSequence.check

    def check(self: LinkSequence, number: int) -> int:
        verdict = original(self, number)
        return REFUSE if verdict == REFUSE else ACCEPT

    return patch.object(LinkSequence, "check", check)


# -- lineages


def _child_lineages(change: Callable[[Any, int, Any], tuple[Any, int, Any]]) -> Patch:
    original = router.child_lineages

    def child_lineages(parents: Any, salt: int, indices: Any) -> list[int]:
        return original(*change(parents, salt, indices))

    return together(*(patch.object(module, "child_lineages", child_lineages) for module in (router, stages, sender)))


def lineage_without_edge() -> Patch:
    return _child_lineages(lambda parents, salt, indices: (parents, 1, indices))


def lineage_without_index() -> Patch:
    return _child_lineages(lambda parents, salt, indices: (parents, salt, None))


def lineage_without_target() -> Patch:
    return patch.object(router, "broadcast_lineages", lambda lineages, task: lineages)


@contextmanager
def _other_splits(change: Callable[[SplitPlan], SplitPlan]) -> Iterator[None]:
    original = planner._plan_splits

    def plan_splits(operators: tuple[OperatorPlan, ...]) -> tuple[SplitPlan, ...]:
        return tuple(change(split) for split in original(operators))

    with patch.object(planner, "_plan_splits", plan_splits):
        topologies.case_of.cache_clear()
        try:
            yield
        finally:
            topologies.case_of.cache_clear()


def split_keys_shared() -> Patch:
    return _other_splits(lambda split: replace(split, key=split.name))


def split_salts_shared() -> Patch:
    return _other_splits(lambda split: replace(split, salt=1))


def lineages_alone_at_sinks() -> Patch:
    """Sinks do not compare split and offset, and lineages of two roots clash."""

    def admit(self: SinkLog, split: int, offset: int, lineage: int) -> int:
        if offset < self._prefix.get(split, 0) or any(mark[2] == lineage for mark in self._durable):
            return DUPLICATE_DURABLE
        return DUPLICATE_PENDING if any(mark[2] == lineage for mark in self._open) else WRITE

    return together(split_salts_shared(), patch.object(SinkLog, "admit", admit))
