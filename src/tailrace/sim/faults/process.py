"""A simulated process: one epoch of a worker, which may be stopped, cut off or killed at any moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from tailrace.clock import MILLISECOND_NS
from tailrace.connector import Reader, SplitStart, Writer
from tailrace.core.assembly import Bodies, WorkerContext, assemble
from tailrace.core.bundles import Bundle
from tailrace.core.hedging.cancelled import CancelledEmissions
from tailrace.core.hedging.controller import NEVER
from tailrace.core.plan.node_groups import NodeGroup, node_group_of
from tailrace.core.plan.plan import SplitPlan
from tailrace.core.protocol.acks import Fold
from tailrace.core.protocol.coordinator import Coordinator
from tailrace.core.protocol.driver_rows import SinkTask
from tailrace.core.protocol.ledger import LedgerLimits
from tailrace.core.protocol.membership import ACCEPT_AFTER_LOSS, REFUSE, LinkSequence
from tailrace.core.protocol.messages import (
    Alive,
    Assign,
    FromWorker,
    Member,
    Members,
    Position,
    Recover,
    Registered,
    Renew,
    Techniques,
    ToWorker,
)
from tailrace.core.protocol.worker import CloseLinks, Exit, Life, OpenTasks, Reply, TellTasks, Worker, WorkerCommand
from tailrace.core.queues.shared import SharedQueue, portions
from tailrace.core.routing.router import Lane
from tailrace.core.tasks.base import Task
from tailrace.core.tasks.deferred import BatchTask
from tailrace.core.tasks.source import SourceTask
from tailrace.errors import Fenced
from tailrace.policy.techniques import NODE
from tailrace.sim.faults.bounds import Bounds, Frame, Gates
from tailrace.sim.faults.interfaces import AnyCluster, Link, Way
from tailrace.sim.faults.links import SimLinks, Threads, Wires
from tailrace.sim.faults.node_queue import NodeQueue
from tailrace.sim.faults.polls import READY, FitfulReader, Polls
from tailrace.sim.faults.send_loop import SimSendLoop
from tailrace.sim.faults.sinks.slow_commits import SlowCommits
from tailrace.sim.faults.sinks.store import DriverWriter, Store, StoreWriter
from tailrace.sim.faults.topologies import MACHINE
from tailrace.topology import Role

MS = MILLISECOND_NS

FEEDBACK = 1 << 20
CANCELS = 1 << 21

LOOKED_UP = 0.75
"""Probability that a task reports feedback before it goes on. It may do so later, as in the runtime."""


@dataclass
class Tally:
    """Counts of faults, so that a test can check that there were some."""

    lost: int = 0
    doubled: int = 0
    copies_refused: int = 0  # doubled or late frames
    zombies_refused: int = 0  # frames and commits of dead epochs
    restarts: int = 0  # of the whole run
    changed_plans: int = 0  # restarts with another number of sink tasks


@dataclass
class Observer:
    """Hooks that check what happens. Each may raise."""

    persisting: Callable[[dict[int, Position]], None] = lambda positions: None
    telling: Callable[[ToWorker], None] = lambda message: None
    acted: Callable[[SimWorker, Task], None] = lambda process, task: None
    admitted: Callable[[SimWorker, Link, int], None] = lambda process, link, number: None
    recovering: Callable[[SimWorker, SourceTask], None] = lambda process, task: None
    overdue: Callable[[SimWorker, SourceTask], None] = lambda process, task: None
    cancelling: Callable[[SimWorker, Task, Sequence[int]], None] = lambda process, task, emissions: None


class HomeCluster(AnyCluster, Protocol):
    """A simulated cluster, as its processes see it."""

    node_queues: dict[tuple[int, NodeGroup], NodeQueue]  # by operator and who shares them

    @property
    def by_epoch(self) -> Mapping[int, SimWorker]: ...

    @property
    def first_epoch(self) -> int:
        """The first epoch of the current run. A restarted coordinator begins a new run."""
        ...

    @property
    def ledger_limits(self) -> LedgerLimits: ...

    @property
    def held_limit(self) -> int: ...

    @property
    def polls(self) -> Polls: ...

    @property
    def store(self) -> Store: ...

    @property
    def commits(self) -> SlowCommits: ...

    @property
    def wires(self) -> Wires: ...

    @property
    def bounds(self) -> Bounds | None:
        """``None``: no limits."""
        ...

    @property
    def tally(self) -> Tally: ...

    @property
    def observer(self) -> Observer: ...

    def maybe_crash(self, process: SimWorker) -> Callable[[], None]: ...

    def to_coordinator(self, leader: Coordinator, message: FromWorker, lag_ns: int) -> None: ...

    def hears(self, process: SimWorker) -> bool:
        """Whether the driver side of a sink takes messages of this process."""
        ...

    def connections_end(self, process: SimWorker) -> None: ...

    def exited(self, process: SimWorker, why: str) -> None: ...


class SimWorker:
    """One process: an epoch of a worker."""

    def __init__(self, cluster: HomeCluster, worker: int, epoch: int) -> None:
        self.cluster = cluster
        self.plan = cluster.plan  # a later run may have another plan
        self.first_epoch = cluster.first_epoch
        self.core = Worker(worker, epoch)
        self.worker = worker
        self.epoch = epoch
        self.alive = True
        self.opened_ns = 0
        self.stopped_until_ns = 0  # as after SIGSTOP
        self.cut_off_until_ns = 0  # until then it cannot reach the coordinator
        self.commit_every_ms = cluster.rng.choice([10, 30, 100])  # longest time between commits
        self.lag_ns = cluster.rng.choice([1, 1, 1, 15]) * MS  # of messages to and from the coordinator
        self.tasks: dict[int, Task] = {}
        self.coordinator = cluster.coordinator  # the one that started it; it may have crashed since
        self.numbers: dict[tuple[int, int, int], int] = {}  # (sending task, target, its epoch) -> last frame number
        self.sequences: dict[Link, LinkSequence] = {}
        self.scheduled: set[int] = set()
        self.cancelled = CancelledEmissions()
        self.queues: dict[int, SharedQueue[Task]] = {}  # by operator; queues that several tasks may draw from
        self.node_queues: dict[int, NodeQueue] = {}  # by operator; queues of the node groups that it belongs to
        self.scope: str | None = None  # how queues are shared
        bounds = cluster.bounds
        self.send_loop = SimSendLoop(self) if bounds is None else SimSendLoop(self, bounds.room.lane)
        self.threads = Threads(self, cluster.wires)
        self.links = SimLinks(self, cluster.wires)
        self.gates = None if bounds is None else Gates(self, self.send_loop, bounds)

    # -- life

    def guarded(self, action: Callable[[], None]) -> Callable[[], None]:
        """An action that happens only if the process is alive, and after it is no longer stopped."""

        def act() -> None:
            if not self.alive:
                return
            if self.cluster.engine.now_ns < self.stopped_until_ns:
                self.cluster.engine.after(self.stopped_until_ns - self.cluster.engine.now_ns, act)
                return
            action()

        return act

    def start(self) -> None:
        machine = f"sim{self.worker // MACHINE}"
        self.tell(Registered(self.worker, self.epoch, (machine, self.worker), self.epoch, machine))
        self.cluster.engine.after(20 * MS, self.guarded(self.beat))

    def beat(self) -> None:
        self.tell(Alive(self.worker, self.epoch))
        for task in self.tasks.values():
            if isinstance(task, SourceTask):
                if task.check_overdue(self.cluster.engine.now_ns):
                    self.cluster.observer.overdue(self, task)
                    self.tell(Renew(self.worker, self.epoch))
                self.wake(task)
        self.cluster.engine.after(20 * MS, self.guarded(self.beat))

    def tell(self, message: FromWorker) -> None:
        self.cluster.to_coordinator(self.coordinator, message, self.lag_ns + self.cut_off_ns)

    @property
    def cut_off_ns(self) -> int:
        """How long this process is still cut off from the coordinator. TCP delivers all messages afterwards."""
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
                    counts = self.core.membership.counts  # frames of a new epoch may have come before the news of it
                    self.sequences = {link: seq for link, seq in self.sequences.items() if counts(link[0], link[1])}
                    for number in self.tasks:
                        self.threads.post(number, partial(self.links.relink, number, command.workers))
                case TellTasks():
                    if isinstance(command.message, Members):
                        self.gather(command.message.members)
                    if isinstance(command.message, Techniques):
                        self.send_loop.switch(command.message.tail.send)
                        self.share(command.message.tail.shared_queues)
                    for task in self.tasks.values():
                        self.threads.do(task.number, partial(self.tell_task, task, command.message))
                case Reply():
                    self.tell(command.message)
                case Exit():
                    self.die("left")

    def tell_task(self, task: Task, message: ToWorker) -> None:
        self.on_task(task, partial(task.handle, message))
        self.wake(task)
        if isinstance(task, SourceTask) and isinstance(message, Recover):
            self.cluster.observer.recovering(self, task)

    def gather(self, members: Mapping[int, Member]) -> None:
        """Find the node queues for the current epochs, or keep those that are still to be emptied."""
        plan, cluster = self.plan, self.cluster
        before, self.node_queues = self.node_queues, {}
        for operator in plan.operators:
            group = node_group_of(plan, operator, members, self.worker)
            known = before.get(operator.index)
            if group is not None and (self.scope == NODE or (known is not None and known.group == group)):
                queue = cluster.node_queues.setdefault((operator.index, group), NodeQueue(group))
                self.node_queues[operator.index] = queue
            if operator.index in self.queues:
                supply = self.node_queues.get(operator.index)
                self.queues[operator.index].supply = supply if self.scope == NODE else None

    def share(self, scope: str | None) -> None:
        """Change how tasks share queues. Each task follows in its own time."""
        if scope == self.scope:
            return
        self.scope = scope
        self.gather(self.core.membership.members)
        for index in self.queues:
            for task in self.sharing(index):
                self.cluster.engine.after(self.cluster.delay(), self.guarded(partial(self.follow_scope, task, index)))
        self.empty_node_queues()

    def sharing(self, operator: int) -> list[Task]:
        """The tasks of an operator here, which may draw from one queue."""
        return [task for task in self.tasks.values() if self.plan.operator_of[task.number] == operator]

    def follow_scope(self, task: Task, operator: int) -> None:
        shared = self.plan.shares(task.number, self.scope)
        if shared != (task.tap is not None):
            draw = partial(task.draw_from, self.queues[operator] if shared else None)
            self.threads.do(task.number, partial(self.on_task, task, draw))
        self.wake_all(self.sharing(operator))

    def empty_node_queues(self) -> None:
        """Give tasks what is in node queues that are no longer used here but that others may still put into."""
        for index, queue in self.node_queues.items() if self.scope != NODE else ():
            tasks = self.sharing(index)
            while tasks and queue:
                task = self.cluster.rng.choice(tasks)
                task.receive(queue.take(1)[1])
                self.wake_all(tasks)

    def die(self, why: str) -> None:
        if self.alive:
            self.alive = False
            self.cluster.tally.zombies_refused += why == "fenced"
            self.cluster.disturbed(self.cluster.engine.now_ns)
            self.cluster.connections_end(self)
            self.cluster.engine.after(self.cluster.delay(), lambda: self.cluster.exited(self, why))

    def crash(self) -> None:
        raise Crash

    def do(self, task: int, action: Callable[[], None]) -> None:
        self.threads.do(task, action)

    # -- tasks

    def open(self, assign: Assign) -> None:
        cluster, plan = self.cluster, self.plan
        self.opened_ns = cluster.engine.now_ns
        self.scope = assign.tail.shared_queues
        limits, clock = cluster.ledger_limits, cluster.engine.clock
        context = WorkerContext(
            plan,
            self.worker,
            self.epoch,
            limits,
            clock,
            cluster.rng,
            held_limit=cluster.held_limit,
            tail=assign.tail,
            cancelled=self.cancelled,
            sightings=self.core.sightings,
        )
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
                split.index: self.reader(split, assign.starts[split.index].offset) for split in plan.splits_of(leader)
            }
            task = assemble(leader, Bodies(functions, writers, readers, assign.starts), context)
            if isinstance(task, SourceTask):
                task.draining = assign.draining
                task.look_every_ns = 20 * MS
            self.tasks[leader] = task
            self.wake(task)
            self.queues = context.queues
            if task.sinks:
                cluster.engine.after(cluster.delay(), self.guarded(lambda task=task: self.commit(task)))  # type: ignore[misc]
        self.send_loop.switch(assign.tail.send)

    def reader(self, split: SplitPlan, offset: int) -> Reader:
        source = self.cluster.plan.operators[split.source].operator.body
        reader: Reader = source.open(SplitStart(split.name, offset))
        polls = self.cluster.polls
        if polls is READY:
            return reader
        endless = polls.endless and not self.cluster.tally.restarts  # a new coordinator does not know of the drain
        return FitfulReader(reader, polls, polls.rng(split.key, self.epoch), endless)

    def writer(self, sink: str, task: int) -> Writer:
        store, crash = self.cluster.store, self.cluster.maybe_crash(self)
        place = SinkTask("job", sink, task, self.epoch, self.first_epoch)
        if store.on_driver:
            return DriverWriter(store.driver_side(sink), place, crash, lambda: self.cluster.hears(self))
        return StoreWriter(store, place, crash)

    def commit(self, task: Task) -> None:
        self.threads.do(task.number, partial(self.commit_now, task))

    def commit_now(self, task: Task) -> None:
        self.cluster.commits.commit(self, task)
        every = self.cluster.rng.randrange(1, self.commit_every_ms) * MS
        self.cluster.engine.after(every, self.guarded(lambda: self.commit(task)))

    def wake(self, task: Task) -> None:
        if task.number not in self.scheduled:
            self.scheduled.add(task.number)
            self.cluster.engine.after(self.cluster.delay(), self.guarded(lambda: self.step(task)))

    def wake_all(self, tasks: Iterable[Task]) -> None:
        for task in sorted(tasks, key=lambda task: task.number):
            self.wake(task)

    def step(self, task: Task) -> None:
        self.scheduled.discard(task.number)
        self.threads.do(task.number, lambda: self.threads.call(task, partial(self.step_now, task)))

    def step_now(self, task: Task) -> None:
        rng = self.cluster.rng

        def work() -> None:
            for _ in range(rng.randrange(1, 4)):
                if self.held_back(task):
                    return  # its results must leave first
                if task.feedback_receiver is not None and rng.random() < LOOKED_UP:
                    task.feedback_receiver.process_pending()
                if task.tap is not None:
                    task.tap.portion = rng.choice([1, 1, 2, 64])
                if task.runnable:
                    task.run(0)
                elif isinstance(task, SourceTask) and ready(task):
                    most = 4 if self.gates is None else self.gates.room.lane
                    task.read(min(most, rng.randrange(1, 5)))

        self.on_task(task, work)
        if task.notified:
            self.wake_all(task.notified)
            task.notified.clear()
        if self.gates is not None:
            self.gates.make_room(task)
        if not self.held_back(task) and (task.runnable or wants_time(task)):
            self.wake(task)

    def held_back(self, task: Task) -> bool:
        return task.held_full or (self.gates is not None and self.gates.holds_back(task))

    def on_task(self, task: Task, work: Callable[[], Any]) -> None:
        """Let a task work, then send its results. Crashes and fencing end the process here."""
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
        gates = self.gates
        for lane in task.lanes:
            if not lane.bundles or self.put(lane):
                continue
            if gates is not None:
                gates.flush(task, lane)
            elif self.send_loop.takes(task, lane.target):
                self.send_loop.put(task, lane.target, lane.take())
            else:
                self.send(task.number, lane.target, lane.target, lane.take())
        for owner, fold in task.acks.items():
            if (fold.both or fold.complete or fold.durable) and (
                gates is None or gates.ready(task.number, -1 - owner, owner)
            ):
                self.send(task.number, -1 - owner, owner, fold.take())
        if task.feedback_receiver is not None:
            for sender, messages in task.feedback_receiver.outbox.items():
                self.send(task.number, FEEDBACK + sender, sender, messages)
            task.feedback_receiver.outbox = {}
        if task.cancels:
            self.cancel(task)
        self.links.flush(task.number)
        if gates is not None:
            gates.look_after(task)
        if isinstance(task, SourceTask):
            for message in task.reports(self.worker, self.epoch, lambda value: None):
                self.tell(message)
        self.cluster.observer.acted(self, task)

    def put(self, lane: Lane) -> bool:
        """Put the bundles of a lane into the node queue. Returns False if there is none, or if it is full."""
        rng = self.cluster.rng
        queue = self.queue_for(lane)
        if queue is None or queue.full:
            return False
        bundles = lane.take()
        for part in portions(bundles, rng.choice([1, 1, 2, 64]), rng.getrandbits):
            queue.put(self.cluster.engine.now_ns, part)
        for _, epoch in queue.group.members:
            process = self.cluster.by_epoch[epoch]
            process.core.sightings.came(bundles)
            for other in process.queues.values():
                if other.supply is queue:
                    process.wake_all(other.tasks)
            if process.scope != NODE:
                self.cluster.engine.after(self.cluster.delay(), process.guarded(process.empty_node_queues))
        return True

    def queue_for(self, lane: Lane) -> NodeQueue | None:
        plan = self.plan
        queue = self.node_queues.get(plan.operator_of[lane.target])
        if self.scope != NODE or queue is None or not queue.group.has(plan.home[lane.target]):
            return None
        return queue

    def cancel(self, task: Task) -> None:
        """Send cancelled emissions to all workers, each by one of its tasks."""
        homes = self.plan.home
        emissions = tuple(task.cancels)
        task.cancels.clear()
        self.cluster.observer.cancelling(self, task, emissions)
        self.cancelled.add(emissions)
        for worker in sorted(set(homes) - {self.worker}):
            self.send(task.number, CANCELS + worker, homes.index(worker), emissions)

    # -- frames

    def way(self, sender: int, target: int, receiver: int) -> Way | None:
        """The connection that a frame would take now. ``None`` if it would wait or be lost."""
        if self.cluster.wires.faults.any and self.plan.home[receiver] != self.worker:
            return self.links.way(sender, target, receiver, lasting=target < FEEDBACK)
        member = self.core.membership.member(self.plan.home[receiver])
        return None if member is None else ((self.worker, self.epoch, sender, target, 0), member.epoch)

    def can_send(self, sender: int, target: int, receiver: int) -> bool:
        """Whether there is room on the link."""
        return self.gates is None or self.gates.ready(sender, target, receiver)

    def way_was_cut(self, worker: int, at_ns: int) -> None:
        self.links.way_was_cut(worker, at_ns)

    def send(self, sender: int, target: int, receiver: int, payload: Any) -> None:
        if self.cluster.wires.faults.any and self.plan.home[receiver] != self.worker:
            self.links.send(sender, target, receiver, payload, lasting=target < FEEDBACK)
            return
        member = self.core.membership.member(self.plan.home[receiver])
        if member is None:
            return  # without a receiver, the frame is lost
        place = (sender, target, member.epoch)
        number = self.numbers[place] = self.numbers.get(place, 0) + 1
        link = (self.worker, self.epoch, sender, target, 0)
        self.cluster.transmit(link, member.epoch, number, receiver, payload)

    def receive(self, link: Link, to_epoch: int, number: int, receiver: int, payload: Any) -> None:
        take = partial(self.take_frame, link, to_epoch, number, receiver, payload)
        if link[3] >= CANCELS:
            take()  # read by a thread of their own
            return
        unit = self.plan.unit_of[receiver]
        if self.gates is not None:
            take = partial(self.gates.arrive, Frame((link, to_epoch), take), unit, bundles=0 <= link[3] < FEEDBACK)
        self.threads.do(unit, take)

    def take_frame(self, link: Link, to_epoch: int, number: int, receiver: int, payload: Any) -> None:
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
            self.follow(self.core.lost_link(link[0], link[1]))
        self.cluster.observer.admitted(self, link, number)
        if link[3] >= CANCELS:
            self.cancelled.add(payload)
            return
        task = self.tasks.get(self.plan.unit_of[receiver])
        if task is None:
            return
        if link[3] < 0:
            self.on_acks(task, payload)
        elif link[3] >= FEEDBACK:
            self.on_task(task, partial(task.hear, payload))
        else:
            bundles: list[Bundle] = payload
            self.core.sightings.came(bundles)
            task.receive(bundles)
            if task.tap is not None:
                self.wake_all(task.tap.sharing)
        self.wake(task)

    def on_acks(self, task: Task, folds: tuple[Fold, Fold, Fold]) -> None:
        assert isinstance(task, SourceTask)
        self.on_task(task, lambda: task.apply(*folds))


def ready(task: SourceTask) -> bool:
    """Whether it is time for a source to read."""
    ready_ns = task.ready_ns
    return ready_ns is not None and ready_ns <= task.clock()


def wants_time(task: Task) -> bool:
    """Whether a task has something to do soon that no message will wake it for."""
    if isinstance(task, SourceTask):
        return task.ready_ns is not None or (task.hedge_ns is not None and task.hedge_ns < NEVER)
    if task.feedback_receiver is not None and task.feedback_receiver.pending:
        return True
    return isinstance(task, BatchTask) and task.deadline_ns > 0


class Crash(Fenced):
    """The process dies here. It is a ``Fenced`` because that is what the core lets pass untouched."""
