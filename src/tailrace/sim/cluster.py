"""A simulated cluster: the production core on virtual time, with a network and processes that fail.

Nothing in here decides anything that the runtime decides by ``core``. It only moves messages, late, twice or never,
lets workers crash, hang and come back, the whole run too, and watches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from tailrace.clock import MILLISECOND_NS
from tailrace.connector import SplitStart, Writer
from tailrace.core.acks import Fold
from tailrace.core.assembly import Bodies, Surroundings, assemble
from tailrace.core.coordinator import Coordinator, CoordinatorLimits, Phase
from tailrace.core.ledger import LedgerLimits
from tailrace.core.membership import ACCEPT_AFTER_LOSS, REFUSE, LinkSequence
from tailrace.core.messages import (
    Abandon,
    Alive,
    Assign,
    Command,
    Finish,
    FromWorker,
    LinkLost,
    Persist,
    Position,
    Prefixes,
    Recover,
    Registered,
    Send,
    SourceReport,
    StartWorker,
    ToWorker,
)
from tailrace.core.plan import Plan
from tailrace.core.router import Bundle
from tailrace.core.stage import CommitSinkStage
from tailrace.core.task import BatchTask, SourceTask, Task
from tailrace.core.worker import CloseLinks, Exit, Life, OpenTasks, Reply, TellTasks, Worker, WorkerCommand
from tailrace.errors import Fenced
from tailrace.sim.engine import Engine
from tailrace.sim.store import Store, StoreWriter
from tailrace.topology import Role

MS = MILLISECOND_NS

LIMITS = CoordinatorLimits(
    heartbeat_timeout_ns=60 * MS,
    start_timeout_ns=10_000 * MS,
    settle_ns=5 * MS,
    flush_every_ns=10 * MS,
    leave_timeout_ns=100 * MS,
    max_deaths=10_000,
)

BACKSTOP_NS = 200 * MS
"""A ledger's recovery timeout: longer than a root ever takes while nothing is wrong."""

MAX_RESTARTS = 2
"""Of the whole run, so that it gets somewhere in between."""

Link = tuple[int, int, int, int]
"""(sending worker, its epoch, sending task, receiving task); receiving task -1 - n for acks to task n."""


@dataclass(frozen=True)
class Network:
    """How frames between workers fare."""

    lost: float
    doubled: float
    delayed: float
    quiet_after_ns: int  # from then on nothing bad happens any more


@dataclass
class Tally:
    """What has happened on the network and to zombies, so that a test can tell that something did."""

    lost: int = 0
    doubled: int = 0
    copies_refused: int = 0  # doubled or late frames
    zombies_refused: int = 0  # frames and commits of dead epochs
    restarts: int = 0  # of the whole run


@dataclass
class Observer:
    """Who looks on; every hook may raise."""

    persisting: Callable[[dict[int, Position]], None] = lambda positions: None
    acted: Callable[[SimWorker, Task], None] = lambda process, task: None
    admitted: Callable[[SimWorker, Link, int], None] = lambda process, link, number: None
    recovering: Callable[[SimWorker, SourceTask], None] = lambda process, task: None
    overdue: Callable[[SimWorker, SourceTask], None] = lambda process, task: None


class SimWorker:
    """One process: an epoch of a worker."""

    def __init__(self, cluster: Cluster, worker: int, epoch: int) -> None:
        self.cluster = cluster
        self.core = Worker(worker, epoch)
        self.worker = worker
        self.epoch = epoch
        self.alive = True
        self.stopped_until_ns = 0  # as after SIGSTOP
        self.cut_off_until_ns = 0  # cannot reach the coordinator
        self.commit_every_ms = cluster.rng.choice([10, 30, 100])  # at most; less if the coordinator says so
        self.lag_ns = cluster.rng.choice([1, 1, 1, 15]) * MS  # to and from the coordinator
        self.tasks: dict[int, Task] = {}
        self.coordinator = cluster.coordinator  # the one that started it, which may have crashed since
        self.numbers: dict[tuple[int, int, int], int] = {}  # (sending task, target, its epoch) -> last frame number
        self.sequences: dict[Link, LinkSequence] = {}
        self.scheduled: set[int] = set()
        self.reported: dict[int, tuple[bool, bool]] = {}

    # -- being alive

    def guarded(self, action: Callable[[], None]) -> Callable[[], None]:
        """What this process does, if it is still there, and when it is not stopped."""

        def act() -> None:
            if not self.alive:
                return
            if self.cluster.engine.now_ns < self.stopped_until_ns:
                self.cluster.engine.after(self.stopped_until_ns - self.cluster.engine.now_ns, act)
                return
            action()

        return act

    def start(self) -> None:
        self.tell(Registered(self.worker, self.epoch, ("sim", self.worker), self.epoch, "sim"))
        self.cluster.engine.after(20 * MS, self.guarded(self.beat))

    def beat(self) -> None:
        self.tell(Alive(self.worker, self.epoch))
        for task in self.tasks.values():
            if isinstance(task, SourceTask):
                if not task.runnable and task.check_overdue(self.cluster.engine.now_ns):
                    self.cluster.observer.overdue(self, task)
                self.wake(task)
        self.cluster.engine.after(20 * MS, self.guarded(self.beat))

    def tell(self, message: FromWorker) -> None:
        self.cluster.to_coordinator(self.coordinator, message, self.lag_ns + self.cut_off_ns)

    @property
    def cut_off_ns(self) -> int:
        """For how long nothing passes between this process and the coordinator. TCP delivers it all afterwards."""
        return max(0, self.cut_off_until_ns - self.cluster.engine.now_ns)

    def hear(self, message: ToWorker) -> None:
        self.follow(self.core.handle(message))

    def follow(self, commands: list[WorkerCommand]) -> None:
        for command in commands:
            match command:
                case OpenTasks():
                    try:
                        self.open(command.assign)
                    except Fenced:
                        self.die("fenced")
                    else:
                        self.follow(self.core.opened())
                case CloseLinks():
                    counts = self.core.membership.counts  # a new epoch's frames may have come before the news of it
                    self.sequences = {link: seq for link, seq in self.sequences.items() if counts(link[0], link[1])}
                case TellTasks():
                    for task in self.tasks.values():
                        self.on_task(task, partial(task.handle, command.message))
                        if isinstance(task, SourceTask):
                            self.wake(task)
                            if isinstance(command.message, Recover):
                                self.cluster.observer.recovering(self, task)
                case Reply():
                    self.tell(command.message)
                case Exit():
                    self.die("left")

    def die(self, why: str) -> None:
        if self.alive:
            self.alive = False
            self.cluster.tally.zombies_refused += why == "fenced"
            self.cluster.disturbed(self.cluster.engine.now_ns)
            self.cluster.engine.after(self.cluster.delay(), lambda: self.cluster.exited(self, why))

    def crash(self) -> None:
        raise Crash

    # -- tasks

    def open(self, assign: Assign) -> None:
        cluster, plan = self.cluster, self.cluster.plan
        around = Surroundings(plan, self.worker, self.epoch, cluster.ledger_limits, cluster.engine.clock, cluster.rng)
        for leader, members in plan.units(self.worker):
            functions: dict[int, Any] = {}
            writers: dict[int, Writer] = {}
            for number in members:
                operator = plan.operators[plan.operator_of[number]]
                if operator.operator.role is Role.SINK:
                    writers[number] = self.writer(operator.name, plan.task_index(number))
                else:
                    functions[number] = operator.operator.body
            readers = {
                split.index: plan.operators[split.source].operator.body.open(
                    SplitStart(split.name, assign.starts[split.index].offset)
                )
                for split in plan.splits_of(leader)
            }
            task = assemble(leader, Bodies(functions, writers, readers, assign.starts), around)
            if isinstance(task, SourceTask):
                task.draining = assign.draining
            self.tasks[leader] = task
            self.wake(task)
            if task.sinks:
                cluster.engine.after(cluster.delay(), self.guarded(lambda task=task: self.commit(task)))  # type: ignore[misc]

    def writer(self, sink: str, task: int) -> Writer:
        return StoreWriter(self.cluster.store, sink, task, self.epoch, self.cluster.maybe_crash(self))

    def commit(self, task: Task) -> None:
        self.on_task(task, partial(commit_and_prune, task.sinks))
        every = self.cluster.rng.randrange(1, self.commit_every_ms) * MS
        self.cluster.engine.after(every, self.guarded(lambda: self.commit(task)))

    def wake(self, task: Task) -> None:
        if task.number not in self.scheduled:
            self.scheduled.add(task.number)
            self.cluster.engine.after(self.cluster.delay(), self.guarded(lambda: self.step(task)))

    def step(self, task: Task) -> None:
        self.scheduled.discard(task.number)
        rng = self.cluster.rng

        def work() -> None:
            for _ in range(rng.randrange(1, 4)):
                if task.runnable:
                    task.run(0)
                elif isinstance(task, SourceTask) and task.ready_ns is not None:
                    task.read(rng.randrange(1, 5))

        self.on_task(task, work)
        if task.runnable or wants_time(task):
            self.wake(task)

    def on_task(self, task: Task, work: Callable[[], Any]) -> None:
        """Let a task do something, then carry out what follows from it. This is where processes die."""
        try:
            work()
        except Crash:
            self.die("crashed between commit and ack")
            return
        except Fenced:
            self.die("fenced")
            return
        self.empty(task)

    def empty(self, task: Task) -> None:
        for lane in task.lanes:
            if lane.bundles:
                self.send(task.number, lane.target, lane.target, lane.take())
        for owner, fold in task.acks.items():
            if fold.both or fold.complete or fold.durable:
                self.send(task.number, -1 - owner, owner, fold.take())
        if isinstance(task, SourceTask):
            self.report(task)
        self.cluster.observer.acted(self, task)

    def report(self, task: SourceTask) -> None:
        moved = task.ledger.uncommitted()
        if moved:
            positions = {split: Position(offset, None) for split, (offset, _) in moved.items()}
            self.tell(Prefixes(self.worker, self.epoch, positions))
        state = (task.settled, task.wants_commit)
        if self.reported.get(task.number) != state:
            self.reported[task.number] = state
            self.tell(SourceReport(self.worker, self.epoch, task.number, *state))

    # -- frames

    def send(self, sender: int, target: int, receiver: int, payload: Any) -> None:
        member = self.core.membership.member(self.cluster.plan.home[receiver])
        if member is None:
            return  # there is nobody to send to: the same as a frame that is lost
        place = (sender, target, member.epoch)
        number = self.numbers[place] = self.numbers.get(place, 0) + 1
        link = (self.worker, self.epoch, sender, target)
        self.cluster.transmit(link, member.epoch, number, receiver, payload)

    def receive(self, link: Link, to_epoch: int, number: int, receiver: int, payload: Any) -> None:
        membership = self.core.membership
        if not membership.counts(link[0], link[1]):
            self.cluster.tally.zombies_refused += 1
            return
        if to_epoch != self.epoch or self.core.life is not Life.RUNNING:
            return
        verdict = self.sequences.setdefault(link, LinkSequence()).check(number)
        if verdict == REFUSE:
            self.cluster.tally.copies_refused += 1
            return
        if verdict == ACCEPT_AFTER_LOSS:
            self.tell(LinkLost(self.worker, self.epoch))
        self.cluster.observer.admitted(self, link, number)
        task = self.tasks.get(self.cluster.plan.unit_of[receiver])
        if task is None:
            return
        if link[3] < 0:
            self.on_acks(task, payload)
        else:
            bundles: list[Bundle] = payload
            task.receive(bundles)
        self.wake(task)

    def on_acks(self, task: Task, folds: tuple[Fold, Fold, Fold]) -> None:
        assert isinstance(task, SourceTask)
        self.on_task(task, lambda: task.apply(*folds))


def commit_and_prune(sinks: list[CommitSinkStage]) -> None:
    """A log prunes itself when it has doubled. Here it does so at once, so that what it must not forget shows."""
    for sink in sinks:
        sink.commit()
        sink.log._prune()


def wants_time(task: Task) -> bool:
    """Whether a task has something to do soon that no message will wake it for."""
    if isinstance(task, SourceTask):
        return task.ready_ns is not None
    return isinstance(task, BatchTask) and task.deadline_ns > 0


class Crash(Exception):
    """The process dies here."""


@dataclass(frozen=True)
class Crashes:
    """How likely it is that something dies at the worst of moments."""

    at_commit: float  # a worker, between a sink's commit and its ack
    at_persist: float  # the coordinator, just before or just after it has stored a prefix


class Cluster:
    """Coordinator, workers, network and store of one simulated run."""

    def __init__(self, plan: Plan, rng: Random, network: Network, max_pending: int, crashes: Crashes) -> None:
        self.plan = plan
        self.rng = rng
        self.network = network
        self.crashes = crashes
        self.engine = Engine()
        self.store = Store()
        self.tally = Tally()
        self.observer = Observer()
        self.ledger_limits = LedgerLimits(max_pending, BACKSTOP_NS)
        self.by_epoch: dict[int, SimWorker] = {}
        self.finished = False
        self.error: Exception | None = None
        self.disturbed_until_ns = 0  # since then no process has died or been stopped
        self.stored: dict[int, Position] = {split.index: Position(0, None) for split in plan.splits}
        self.coordinator = self.new_coordinator(1)

    def new_coordinator(self, first_epoch: int) -> Coordinator:
        plan = self.plan
        sources = [op for op in plan.operators if op.operator.role is Role.SOURCE]
        tasks = [op.first_task + index for op in sources for index in range(op.tasks)]
        homes = {task: plan.home[task] for task in tasks}
        return Coordinator(plan.workers, tasks, homes, dict(self.stored), LIMITS, first_epoch)

    def start(self) -> None:
        self.lead()
        self.tick()

    def tick(self) -> None:
        self.obey(self.coordinator.tick(self.engine.now_ns))
        if not self.finished:
            self.engine.after(10 * MS, self.tick)

    @property
    def quiet(self) -> bool:
        return self.engine.now_ns >= self.network.quiet_after_ns

    def delay(self) -> int:
        return self.rng.randrange(1, 2 * MS)

    def maybe_crash(self, process: SimWorker) -> Callable[[], None]:
        def strike() -> None:
            if not self.quiet and self.rng.random() < self.crashes.at_commit:
                process.crash()

        return strike

    def disturbed(self, until_ns: int) -> None:
        self.disturbed_until_ns = max(until_ns, self.disturbed_until_ns)

    def maybe_restart(self) -> bool:
        """The coordinator crashes, or not. Another one goes on from what is stored; the old workers are orphans.

        Orphans notice after a while that nobody leads them. Until then they are zombies, all of them at once.
        """
        if self.quiet or self.coordinator.phase is not Phase.RUNNING or self.tally.restarts >= MAX_RESTARTS:
            return False
        if self.rng.random() >= self.crashes.at_persist:
            return False
        self.tally.restarts += 1
        for process in self.by_epoch.values():
            if process.alive:
                self.engine.after(self.rng.randrange(1, 150) * MS, lambda p=process: p.die("orphaned"))  # type: ignore[misc]
        self.coordinator = self.new_coordinator(self.coordinator.next_epoch)
        self.engine.after(self.delay(), self.lead)
        return True

    def lead(self) -> None:
        self.obey(self.coordinator.start(self.engine.now_ns))

    # -- the coordinator's side

    def to_coordinator(self, leader: Coordinator, message: FromWorker, lag_ns: int) -> None:
        """In order, as on one connection: the same delay for all."""

        def deliver() -> None:
            if leader is self.coordinator:
                self.obey(leader.handle(message, self.engine.now_ns))

        self.engine.after(lag_ns, deliver)

    def exited(self, process: SimWorker, why: str) -> None:
        if process.coordinator is self.coordinator:
            self.obey(self.coordinator.exited(process.worker, process.epoch, why, self.engine.now_ns))

    def obey(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case StartWorker():
                    process = SimWorker(self, command.worker, command.epoch)
                    self.by_epoch[command.epoch] = process
                    self.engine.after(self.rng.randrange(1, 40) * MS, process.guarded(process.start))
                case Send():
                    self.to_worker(command)
                case Persist():
                    if self.maybe_restart():
                        return
                    self.observer.persisting(dict(command.positions))
                    self.stored = dict(command.positions)
                    if self.maybe_restart():
                        return
                case Abandon():
                    pass  # a process that was declared dead lives on, as a zombie, until it finds out
                case Finish():
                    self.finished = True
                    self.error = command.error

    def to_worker(self, command: Send) -> None:
        process = self.by_epoch[command.epoch]
        deliver = process.guarded(partial(process.hear, command.message))
        self.engine.after(process.lag_ns + process.cut_off_ns, deliver)

    # -- the network

    def transmit(self, link: Link, to_epoch: int, number: int, receiver: int, payload: Any) -> None:
        copies, late = 1, 0
        if not self.quiet:
            if self.rng.random() < self.network.lost:
                copies = 0
                self.tally.lost += 1
            elif self.rng.random() < self.network.doubled:
                copies = 2
                self.tally.doubled += 1
            if self.rng.random() < self.network.delayed:
                late = self.rng.randrange(1, 80) * MS
        process = self.by_epoch[to_epoch]
        arrive = process.guarded(partial(process.receive, link, to_epoch, number, receiver, payload))
        for copy in range(copies):
            self.engine.after(MS + late + copy * self.delay(), arrive)
