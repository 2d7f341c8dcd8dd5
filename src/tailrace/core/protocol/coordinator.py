"""The coordinator decides who is alive, which epoch counts, and when everything pending is emitted again.

Its rules, each of which the fault simulation needs:

- Every start of a worker gets an epoch higher than all before it, and a worker's death is a decision: once declared,
  nothing from that epoch counts any more, whatever becomes of the process.
- Recovery is announced only when every worker acts on the membership that replaced the dead one. Announced earlier,
  a re-emitted root could pass through a worker that still sends to the dead one, and be lost once more. The way of the
  announcement: ``Recover`` to every ``Worker``, then ``SourceTask.handle``, which queues ``Ledger.unfinished``.
  The first ``Recover`` of a run is what starts its sources.
- A prefix is stored before any worker hears of it or begins from it. Only then may sinks forget what lies below it. An
  epoch is stored before a process of it starts (``stored_state``).
- A worker is declared dead for its silence only: nothing of it has arrived. Time in which the coordinator itself was
  busy or stopped does not count: its host must call ``excuse`` before ``tick``.
- After every loss, of a link or one that only the backstop noticed, there is a new version of the membership, perhaps
  with the same members. It tells load-aware groupings to start again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from tailrace.clock import SECOND_NS
from tailrace.core.protocol.messages import (
    Abandon,
    Address,
    Alive,
    Applied,
    Assign,
    Barrier,
    Command,
    Committed,
    Drain,
    Failed,
    Finish,
    Flush,
    FromWorker,
    Leave,
    LinkLost,
    Member,
    Members,
    Passed,
    Position,
    Prefixes,
    Ready,
    Recover,
    Registered,
    Renew,
    Send,
    SourceReport,
    StartWorker,
    Techniques,
    ToWorker,
)
from tailrace.core.protocol.stored_state import StoredState
from tailrace.core.protocol.worker_deaths import KILLED, SILENCE, TOO_LATE, Deaths, keeps_dying
from tailrace.errors import WorkerLost, WorkersMissing
from tailrace.policy.techniques import PLAIN, Tail

STABLE_NS = 60 * SECOND_NS
"""A worker that has lived this long did not die of what killed the one before it."""


class Phase(Enum):
    """The state of a run, as the coordinator sees it."""

    STARTING = "starting"  # not all workers have been ready yet
    RUNNING = "running"
    LEAVING = "leaving"  # the run is complete or has failed; workers are told to exit
    FINISHED = "finished"


class WorkerState(Enum):
    """The state of a worker, as the coordinator sees it."""

    STARTING = "starting"  # no process has registered for this epoch
    OPENING = "opening"  # registered, opens its tasks
    READY = "ready"
    GONE = "gone"


@dataclass(frozen=True)
class CoordinatorLimits:
    """The timeouts of a coordinator, and how many deaths of a worker it accepts."""

    heartbeat_timeout_ns: int  # silence after which a worker is declared dead
    start_timeout_ns: int  # from the order to start a worker until it registers
    settle_ns: int  # after a lost link, how long to wait for news that its worker is dead
    flush_every_ns: int
    leave_timeout_ns: int
    max_deaths: int  # of one worker in a row, each soon after the other, with a split held back all the time


@dataclass
class _Worker:
    epoch: int
    since_ns: int
    state: WorkerState = WorkerState.STARTING
    ordered: bool = False  # its epoch is stored, and StartWorker was returned
    address: Address | None = None
    heard_ns: int = 0
    applied: int = 0
    tail: Tail | None = None  # the techniques that it was last sent
    deaths: Deaths = field(default_factory=Deaths)  # of all its epochs


@dataclass
class _Source:
    settled: bool = False
    wants_commit: bool = False
    quiet: frozenset[int] = frozenset()


@dataclass
class Coordinator:
    """The decisions of the driver. Pure: ``handle`` and the other events return the commands that follow, in order."""

    workers: int
    sources: Iterable[int]  # task numbers
    homes: Mapping[int, int]  # source task -> worker
    positions: dict[int, Position]  # by split index: the stored prefixes, where sources begin
    limits: CoordinatorLimits
    first_epoch: int = 1
    tail: Tail = PLAIN
    operators: Mapping[int, Sequence[str]] = field(default_factory=dict)  # names by worker, for messages
    splits: Mapping[int, str] = field(default_factory=dict)  # names by index, for messages
    phase: Phase = Phase.STARTING
    recoveries: int = 0
    draining: bool = False
    error: Exception | None = None
    _table: dict[int, _Worker] = field(default_factory=dict)
    _sources: dict[int, _Source] = field(default_factory=dict)
    _stored_state: StoredState = field(init=False)
    _next_epoch: int = 0
    _version: int = 0
    _recover_at_ns: int | None = None  # a recovery is due, not before this time
    _renew_at_ns: int | None = None  # a new version of the membership is due, not before this time
    barrier: int = 0  # the newest; a source that has passed it has passed all before
    _passed: dict[int, int] = field(default_factory=dict)  # source task -> the newest barrier it has passed
    _read_to: dict[int, int] = field(default_factory=dict)  # by split: how far it has been read, by any epoch
    _flushed_ns: int = 0
    _leaving_since_ns: int = 0

    # -- events

    def __post_init__(self) -> None:
        self._next_epoch = self.first_epoch
        self._stored_state = StoredState(self.positions, self.first_epoch)

    def start(self, now_ns: int) -> list[Command]:
        self._sources = {task: _Source() for task in self.sources}
        self._recover_at_ns = now_ns
        for worker in range(self.workers):
            self._new_epoch(worker, now_ns)
        return [*self._stored_state.begin(self._next_epoch)]

    def handle(self, message: FromWorker, now_ns: int) -> list[Command]:
        """A worker has sent a message."""
        worker = self._table[message.worker]
        if message.epoch != worker.epoch or worker.state is WorkerState.GONE or self.phase is Phase.FINISHED:
            leave = Leave("another process has taken this worker's place")
            return [Send(message.worker, message.epoch, leave)] if message.epoch < worker.epoch else []
        worker.heard_ns = max(worker.heard_ns, now_ns)
        match message:
            case Alive():
                return []
            case Registered():
                return self._registered(message, worker)
            case Ready():
                worker.state = WorkerState.READY
                return [*self._announce(), *self._what_it_missed(message, worker)]
            case Applied():
                worker.applied = message.version
                self._note_read_to(message.seen)
                return self._recover_if_due(now_ns)
            case LinkLost():
                if message.peer_epoch < self._table[message.peer].epoch:
                    return []  # it was replaced since, and recovery from its death re-emits what was lost
                self._schedule_recovery(now_ns + self.limits.settle_ns)
                self._schedule_renewal(now_ns + self.limits.settle_ns)
                return []
            case Renew():
                self._schedule_renewal(now_ns)
                return self._renew_if_due(now_ns)
            case Prefixes():
                self._note_read_to(message.reach)
                return self._commit(message)
            case Passed():
                self._passed[message.task] = max(message.barrier, self._passed.get(message.task, 0))
                return []
            case SourceReport():
                self._sources[message.task] = _Source(message.settled, message.wants_commit, message.quiet)
                self._note_read_to(message.reach)
                return self._leave_if_settled(now_ns)
            case Failed():
                return self.fail(message.error, now_ns)

    def heard(self, worker: int, epoch: int, at_ns: int) -> None:
        """Something of a worker has arrived. It may be handled much later."""
        entry = self._table[worker]
        if epoch == entry.epoch:
            entry.heard_ns = max(entry.heard_ns, at_ns)

    def stored(self, now_ns: int) -> list[Command]:
        """The last ``Persist`` is on disk. Prefixes that have moved since then wait for the next."""
        if self.phase is Phase.FINISHED:
            return []
        moved = self._stored_state.done()
        commands = self._broadcast(Committed(moved)) if moved else []
        for worker, entry in self._table.items():
            if (
                entry.state is WorkerState.STARTING
                and not entry.ordered
                and entry.epoch < self._stored_state.next_epoch
            ):
                entry.ordered, entry.since_ns = True, now_ns
                commands.append(StartWorker(worker, entry.epoch))
        return [*commands, *self._stored_state.begin(self._next_epoch), *self._finish_if_empty()]

    def not_stored(self, error: Exception, now_ns: int) -> list[Command]:
        """The last ``Persist`` has failed. The run fails: it could not keep its promises."""
        self._stored_state.failed()
        return [*self.fail(error, now_ns), *self._finish_if_empty()]

    def exited(self, worker: int, epoch: int, why: str, now_ns: int) -> list[Command]:
        """A worker's process, or the connection to it, is gone."""
        entry = self._table[worker]
        if epoch != entry.epoch or entry.state is WorkerState.GONE:
            return []
        if self.phase is Phase.LEAVING:
            entry.state = WorkerState.GONE
            return self._finish_if_empty()
        return self._bury(worker, why, now_ns)

    def tick(self, now_ns: int) -> list[Command]:
        """Time has passed."""
        commands: list[Command] = []
        if self.phase is Phase.LEAVING:
            if now_ns - self._leaving_since_ns > self.limits.leave_timeout_ns:
                return self._give_up_waiting()
            return commands
        if self.phase is Phase.FINISHED:
            return commands
        for worker, entry in self._table.items():
            why = self._silence(entry, now_ns)
            if why:
                commands += self._bury(worker, why, now_ns)
                if self.phase is not Phase.RUNNING and self.phase is not Phase.STARTING:
                    return commands
        commands += self._recover_if_due(now_ns)
        commands += self._renew_if_due(now_ns)
        if now_ns - self._flushed_ns >= self.limits.flush_every_ns and self._a_source_waits_for_commit():
            self._flushed_ns = now_ns
            commands += self._broadcast(Flush())
        return commands

    def excuse(self, now_ns: int, held_ns: int) -> None:
        """The coordinator itself was held up for this time, which counts against no worker. Call it before ``tick``."""
        self._leaving_since_ns += held_ns
        for entry in self._table.values():
            entry.heard_ns = max(entry.heard_ns, now_ns)
            if entry.state is WorkerState.STARTING:
                entry.since_ns += held_ns

    def silent(self, now_ns: int) -> list[tuple[int, int]]:
        """(worker, epoch) of those that ``tick`` would declare dead for silence, so that the host can look once
        more."""
        late = self.limits.heartbeat_timeout_ns
        return [
            (worker, entry.epoch)
            for worker, entry in self._table.items()
            if entry.state in (WorkerState.OPENING, WorkerState.READY) and now_ns - entry.heard_ns > late
        ]

    def raise_barrier(self) -> list[Command]:
        """Ask all sources to report when all that they can read now is durable. ``passed`` tells when all have."""
        self.barrier += 1
        return self._broadcast(Barrier(self.barrier))

    def passed(self, barrier: int) -> bool:
        """Whether all sources have passed this barrier."""
        return all(self._passed.get(task, 0) >= barrier for task in self._sources)

    def drain(self, now_ns: int) -> list[Command]:
        """Stop the run gracefully: sources read no more, and the run ends when all that they have read is durable."""
        if self.draining or self.phase in (Phase.LEAVING, Phase.FINISHED):
            return []
        self.draining = True
        return self._broadcast(Drain())

    def switch(self, tail: Tail) -> list[Command]:
        """Switch techniques on or off. A worker that is not ready yet is told when it is."""
        self.tail = tail
        for entry in self._table.values():
            if entry.state is WorkerState.READY:
                entry.tail = tail
        return self._broadcast(Techniques(tail))

    def fail(self, error: Exception, now_ns: int) -> list[Command]:
        """End the run with this error."""
        if self.phase in (Phase.LEAVING, Phase.FINISHED):
            return []
        self.error = error
        return self._leave("the run has failed", now_ns)

    # -- workers come and go

    def _new_epoch(self, worker: int, now_ns: int) -> None:
        """Give a worker a new epoch. Its process is started once the epoch is stored, together with every prefix that
        its predecessor has reported."""
        old = self._table.get(worker)
        entry = _Worker(self._next_epoch, now_ns)
        if old is not None:
            entry.deaths = old.deaths
        self._table[worker] = entry
        self._next_epoch += 1

    def _registered(self, message: Registered, entry: _Worker) -> list[Command]:
        entry.state = WorkerState.OPENING
        entry.address = message.address
        entry.tail = self.tail
        assign = Assign(dict(self.positions), self.draining, self.tail)
        return [Send(message.worker, message.epoch, assign)]

    def _what_it_missed(self, message: Ready, entry: _Worker) -> list[Command]:
        """Messages to all workers that it missed while it opened its tasks."""
        missed: list[ToWorker] = [Drain()] if self.draining else []
        if entry.tail != self.tail:
            entry.tail = self.tail
            missed.append(Techniques(self.tail))
        return [Send(message.worker, message.epoch, one) for one in missed]

    def _silence(self, entry: _Worker, now_ns: int) -> str:
        if entry.state is WorkerState.STARTING:
            late = entry.ordered and now_ns - max(entry.since_ns, entry.heard_ns) > self.limits.start_timeout_ns
            return TOO_LATE if late else ""
        if entry.state is not WorkerState.GONE and now_ns - entry.heard_ns > self.limits.heartbeat_timeout_ns:
            return f"{SILENCE} for {self.limits.heartbeat_timeout_ns / 1e9:g} s"
        return ""

    def _bury(self, worker: int, why: str, now_ns: int) -> list[Command]:
        """Declare a worker's epoch dead, tell the others, and start the worker again under a new epoch."""
        entry = self._table[worker]
        first_start = self.phase is Phase.STARTING and entry.state is WorkerState.STARTING
        if first_start and not why.startswith(KILLED):
            return self.fail(self._missing(worker, why), now_ns)
        prefixes = {split: position.offset for split, position in self.reached.items()}
        held_back = entry.deaths.held_back(prefixes, self.quiet)
        progress = entry.state is WorkerState.READY and not held_back and entry.deaths.any_moved(prefixes)
        entry.deaths.count(prefixes, forgive=progress or now_ns - entry.since_ns > STABLE_NS)
        commands: list[Command] = [Abandon(worker, entry.epoch, why)]
        if entry.deaths.in_a_row >= self.limits.max_deaths:
            entry.state = WorkerState.GONE
            places = [(self.splits.get(split, str(split)), prefixes[split]) for split in held_back]
            text = keeps_dying(worker, entry.deaths.in_a_row, why, self.operators.get(worker, ()), places)
            return commands + self.fail(WorkerLost(text), now_ns)
        for task, home in self.homes.items():
            if home == worker:
                self._sources[task] = _Source()
        self._schedule_recovery(now_ns)
        self._new_epoch(worker, now_ns)
        return [*commands, *self._stored_state.begin(self._next_epoch), *self._announce()]

    def _missing(self, worker: int, why: str) -> WorkersMissing:
        came = sum(entry.state is not WorkerState.STARTING for entry in self._table.values())
        cause = "are there enough free slots?" if why == TOO_LATE else "does its environment have tailrace?"
        return WorkersMissing(f"{came} of {self.workers} workers started: worker {worker}: {why}; {cause}")

    def _announce(self) -> list[Command]:
        """Tell every ready worker who the others are."""
        if self.phase is Phase.LEAVING:
            return []
        self._version += 1
        self._renew_at_ns = None
        members = {
            worker: Member(entry.epoch, entry.address)
            for worker, entry in self._table.items()
            if entry.state is WorkerState.READY and entry.address is not None
        }
        epochs = {worker: entry.epoch for worker, entry in self._table.items()}
        return self._broadcast(Members(self._version, members, epochs))

    # -- recovery

    def _schedule_recovery(self, at_ns: int) -> None:
        if self._recover_at_ns is None:
            self._recover_at_ns = at_ns

    def _recover_if_due(self, now_ns: int) -> list[Command]:
        """Announce recovery, if it is due and every worker is ready and acts on the newest membership."""
        if self._recover_at_ns is None or now_ns < self._recover_at_ns or self.phase is Phase.LEAVING:
            return []
        together = all(
            entry.state is WorkerState.READY and entry.applied == self._version for entry in self._table.values()
        )
        if not together:
            return []
        self._recover_at_ns = None
        if self.phase is Phase.STARTING:
            self.phase = Phase.RUNNING
        else:
            self.recoveries += 1
        again = self._broadcast(Barrier(self.barrier)) if self.barrier and not self.passed(self.barrier) else []
        ahead = {split: offset for split, offset in self._read_to.items() if offset > self.positions[split].offset}
        return [*self._broadcast(Recover(ahead)), *again]

    def _note_read_to(self, offsets: Mapping[int, int]) -> None:
        """Splits have been read this far. A source that drains must not stop before it."""
        for split, offset in offsets.items():
            self._read_to[split] = max(offset, self._read_to.get(split, 0))

    # -- renewal

    def _schedule_renewal(self, at_ns: int) -> None:
        if self._renew_at_ns is None:
            self._renew_at_ns = at_ns

    def _renew_if_due(self, now_ns: int) -> list[Command]:
        """Announce a new version of the membership, so that load-aware groupings start again: what was lost with a link
        may be what one side of a grouping waits for.

        One version at a time: a link that keeps breaking must not put off a recovery for ever.
        """
        due = self._renew_at_ns is not None and now_ns >= self._renew_at_ns and self.phase is Phase.RUNNING
        known = all(
            entry.applied == self._version for entry in self._table.values() if entry.state is WorkerState.READY
        )
        return self._announce() if due and known else []

    # -- prefixes

    def _commit(self, message: Prefixes) -> list[Command]:
        if self._stored_state.reach(message.positions):
            return [*self._stored_state.begin(self._next_epoch)]
        known = {split: self.positions[split].offset for split in message.positions}
        stored = all(offset >= message.positions[split].offset for split, offset in known.items())
        # A ledger that asks again has not received the answer, or there is none yet.
        return [Send(message.worker, message.epoch, Committed(known))] if stored else []

    def _a_source_waits_for_commit(self) -> bool:
        return any(source.wants_commit for source in self._sources.values())

    # -- the end

    def _leave_if_settled(self, now_ns: int) -> list[Command]:
        if self.phase is Phase.RUNNING and all(source.settled for source in self._sources.values()):
            return self._leave("all is done", now_ns)
        return []

    def _leave(self, reason: str, now_ns: int) -> list[Command]:
        self.phase = Phase.LEAVING
        self._leaving_since_ns = now_ns
        commands = self._broadcast(Leave(reason))
        for worker, entry in self._table.items():
            if entry.state is WorkerState.STARTING:
                entry.state = WorkerState.GONE
                commands.append(Abandon(worker, entry.epoch, reason))
        return commands + self._finish_if_empty()

    def _give_up_waiting(self) -> list[Command]:
        commands: list[Command] = []
        for worker, entry in self._table.items():
            if entry.state is not WorkerState.GONE:
                entry.state = WorkerState.GONE
                commands.append(Abandon(worker, entry.epoch, "it did not leave in time"))
        return [*commands, self._finish()]  # even if the last Persist is not done: a run must be able to end

    def _finish_if_empty(self) -> list[Command]:
        """Finish when all workers are gone and nothing is being stored, so that a later run finds all of it."""
        gone = all(entry.state is WorkerState.GONE for entry in self._table.values())
        ends = self.phase is Phase.LEAVING and gone and self._stored_state.under_way is None
        return [self._finish()] if ends else []

    def _finish(self) -> Command:
        self.phase = Phase.FINISHED
        return Finish(self.error)

    def _broadcast(self, message: ToWorker) -> list[Command]:
        """To all ready workers, and ``Leave`` also to those that are still opening their tasks."""
        states = (WorkerState.READY, WorkerState.OPENING) if isinstance(message, Leave) else (WorkerState.READY,)
        return [Send(worker, entry.epoch, message) for worker, entry in self._table.items() if entry.state in states]

    # -- reading its state

    def epoch_of(self, worker: int) -> int:
        return self._table[worker].epoch

    def state_of(self, worker: int) -> WorkerState:
        return self._table[worker].state

    def restarts_of(self, worker: int) -> int:
        return self._table[worker].deaths.total

    def settled(self, sources: Iterable[int]) -> bool:
        """Whether these sources will read no more, and all they have read is durable and committed."""
        return all(self._sources[task].settled for task in sources)

    @property
    def version(self) -> int:
        """The newest version of the membership."""
        return self._version

    @property
    def next_epoch(self) -> int:
        return self._next_epoch

    @property
    def reached(self) -> Mapping[int, Position]:
        """The prefixes that ledgers have reported, stored or not."""
        return self._stored_state.reached

    @property
    def quiet(self) -> set[int]:
        """Splits of which nothing is pending."""
        return set().union(*(source.quiet for source in self._sources.values()))

    def validate(self) -> None:
        """Raise AssertionError if the coordinator contradicts itself."""
        epochs = [entry.epoch for entry in self._table.values()]
        assert len(set(epochs)) == len(epochs) and all(epoch < self._next_epoch for epoch in epochs)
        assert all(entry.applied <= self._version for entry in self._table.values())
