"""A simulated cluster: the production core in virtual time, with a network and processes that fail.

All decisions that the runtime leaves to ``core`` are left to ``core`` here too. The cluster delivers messages late,
twice or not at all, lets workers and the whole run crash, hang and come back, and tells the observer what happens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Unpack

from tailrace.clock import MILLISECOND_NS
from tailrace.core.plan.node_groups import NodeGroup
from tailrace.core.plan.plan import Plan
from tailrace.core.protocol.coordinator import Coordinator, CoordinatorLimits, Phase
from tailrace.core.protocol.ledger import LedgerLimits
from tailrace.core.protocol.messages import (
    Abandon,
    Command,
    Finish,
    FromWorker,
    Persist,
    Position,
    Send,
    StartWorker,
)
from tailrace.core.protocol.worker_deaths import SILENCE
from tailrace.policy.techniques import PLAIN, Tail, Techniques
from tailrace.sim.faults.bounds import Bounds
from tailrace.sim.faults.driver import NONE, Driver, Hardship
from tailrace.sim.faults.events import Engine
from tailrace.sim.faults.interfaces import Link
from tailrace.sim.faults.journal import Journal
from tailrace.sim.faults.links import NO_FAULTS, LinkFaults, Wires
from tailrace.sim.faults.node_queue import NodeQueue
from tailrace.sim.faults.polls import READY, Polls
from tailrace.sim.faults.process import Observer, SimWorker, Tally
from tailrace.sim.faults.sinks.slow_commits import SlowCommits
from tailrace.sim.faults.sinks.store import Store
from tailrace.topology import Role

MS = MILLISECOND_NS

MAX_DEATHS = 8
"""Most deaths of one worker without progress. Only a nemesis kills one so often in a row."""

LIMITS = CoordinatorLimits(
    heartbeat_timeout_ns=60 * MS,
    start_timeout_ns=10_000 * MS,
    settle_ns=5 * MS,
    flush_every_ns=10 * MS,
    leave_timeout_ns=100 * MS,
    max_deaths=MAX_DEATHS,
)

BACKSTOP_NS = 200 * MS
"""Recovery timeout of ledgers: longer than a root ever takes while nothing is wrong."""

MAX_RESTARTS = 2
"""Most restarts of the whole run, so that it makes progress in between."""


@dataclass(frozen=True)
class Network:
    """Probabilities of what happens to frames between workers."""

    lost: float
    doubled: float
    delayed: float
    quiet_after_ns: int  # from then on there are no faults


@dataclass(frozen=True)
class Crashes:
    """Probabilities of a crash at the worst moments."""

    at_commit: float  # of a worker, between the commit of a sink and its ack
    at_persist: float  # of the coordinator, just before or after it stores a prefix


class Cluster:
    """Coordinator, workers, network and store of one simulated run."""

    def __init__(
        self,
        plan: Plan,
        rng: Random,
        network: Network,
        max_pending: int,
        held_limit: int,
        crashes: Crashes,
        tail: Tail = PLAIN,
        link_faults: LinkFaults = NO_FAULTS,
        link_rng: Random | None = None,
        hardship: Hardship = NONE,
        driver_rng: Random | None = None,
        polls: Polls = READY,
    ) -> None:
        self.plan = plan
        self.polls = polls
        self.rng = rng
        self.network = network
        self.crashes = crashes
        self.engine = Engine()
        self.journal = Journal(self.engine.clock)
        self.store = Store(self.journal)
        self.tally = Tally()
        self.observer = Observer()
        self.ledger_limits = LedgerLimits(max_pending, BACKSTOP_NS)
        self.held_limit = held_limit
        self.by_epoch: dict[int, SimWorker] = {}
        self.node_queues: dict[tuple[int, NodeGroup], NodeQueue] = {}  # by operator and node group
        self.finished = False
        self.error: Exception | None = None
        self.drained_ns = 0  # when the user asked to drain; 0: never
        self.disturbed_until_ns = 0  # no process has died or been stopped after this
        self.stored: dict[int, Position] = {split.index: Position(0, None) for split in plan.splits}
        self.stored_epoch = 1
        self.tail = tail
        self.commits = SlowCommits(None)
        self.bounds: Bounds | None = None  # limits of queues, lanes and links; None: no limits
        self.wires = Wires(self, link_faults, link_rng or Random(0))
        self.driver = Driver(self, hardship, driver_rng or Random(0))
        self.first_epoch = self.stored_epoch  # of this run; a restarted coordinator begins a new one
        self.later_plans: list[Plan] = []  # plans of the next runs, if they differ
        self.coordinator = self.new_coordinator()

    def new_coordinator(self) -> Coordinator:
        """A coordinator that continues from the stored checkpoint."""
        plan = self.plan
        sources = [op for op in plan.operators if op.operator.role is Role.SOURCE]
        tasks = [op.first_task + index for op in sources for index in range(op.tasks)]
        homes = {task: plan.home[task] for task in tasks}
        return Coordinator(plan.workers, tasks, homes, dict(self.stored), LIMITS, self.stored_epoch, self.tail)

    def start(self) -> None:
        self.lead()
        self.driver.start()

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
        """Perhaps crash the coordinator. Another one continues from the stored checkpoint; old workers are orphans.

        Orphans notice after a while that their coordinator is gone. Until then all of them are zombies.
        """
        if self.quiet or self.coordinator.phase is not Phase.RUNNING or self.tally.restarts >= MAX_RESTARTS:
            return False
        if self.rng.random() >= self.crashes.at_persist:
            return False
        self.tally.restarts += 1
        for process in self.by_epoch.values():
            if process.alive:
                self.engine.after(self.rng.randrange(1, 150) * MS, lambda p=process: p.die("orphaned"))  # type: ignore[misc]
        if self.later_plans:
            self.tally.changed_plans += self.later_plans[0] is not self.plan
            self.plan = self.later_plans.pop(0)
        self.first_epoch = self.stored_epoch
        self.driver.restart()
        self.coordinator = self.new_coordinator()
        self.engine.after(self.delay(), self.lead)
        return True

    def drain(self) -> None:
        """The user asks to drain. A coordinator that takes over later does not know of it."""
        if self.coordinator.phase is Phase.STARTING:
            self.engine.after(10 * MS, self.drain)
            return
        leader = self.coordinator

        def begin() -> list[Command]:
            self.drained_ns = self.engine.now_ns
            return leader.drain(self.engine.now_ns)

        self.driver.post(leader, begin)

    def switch(self, **techniques: Unpack[Techniques]) -> None:
        """The user switches techniques. A coordinator that takes over later does not know of it."""
        leader = self.coordinator
        self.driver.post(leader, lambda: leader.switch(leader.tail.changed(techniques)))

    def lead(self) -> None:
        self.obey(self.coordinator.start(self.engine.now_ns))

    # -- the coordinator's side

    def to_coordinator(self, leader: Coordinator, message: FromWorker, lag_ns: int) -> None:
        """Deliver a message in order, as on one connection: all messages of a worker have the same delay."""

        def deliver() -> None:
            came_ns = self.engine.now_ns
            self.journal.note("to coordinator", message.worker, message.epoch)
            self.driver.arrive(leader, message.worker, message.epoch, lambda: leader.handle(message, came_ns))

        self.engine.after(lag_ns, deliver)

    def hears(self, process: SimWorker) -> bool:
        """Whether the driver side of a sink takes messages of this process."""
        coordinator = self.coordinator
        return process.coordinator is coordinator and coordinator.epoch_of(process.worker) == process.epoch

    def exited(self, process: SimWorker, why: str) -> None:
        self.journal.note("exit", process.worker, process.epoch)
        leader = process.coordinator
        self.driver.post(leader, lambda: leader.exited(process.worker, process.epoch, why, self.engine.now_ns))

    def obey(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case StartWorker():
                    if command.epoch in self.by_epoch:
                        raise AssertionError(f"an epoch is used twice: {command.epoch}")
                    self.journal.note("start", command.worker, command.epoch)
                    process = SimWorker(self, command.worker, command.epoch)
                    self.by_epoch[command.epoch] = process
                    self.engine.after(self.rng.randrange(1, 40) * MS, process.guarded(process.start))
                case Send():
                    self.to_worker(command)
                case Persist():
                    if self.maybe_restart():
                        return
                    self.driver.store(command)
                case Abandon():  # the process lives on as a zombie until it notices
                    if command.why.startswith(SILENCE):
                        self.driver.was_silent(command.epoch)
                case Finish():
                    self.finished = True
                    self.error = command.error

    def write(self, persist: Persist) -> bool:
        """A write of the checkpoint is done. Returns False if the coordinator crashes right after it."""
        self.observer.persisting(dict(persist.positions))
        offsets = sorted((split, position.offset) for split, position in persist.positions.items())
        self.journal.note("stored", offsets, persist.next_epoch)
        self.stored, self.stored_epoch = dict(persist.positions), persist.next_epoch
        return not self.maybe_restart()

    def to_worker(self, command: Send) -> None:
        self.observer.telling(command.message)
        self.journal.note("to worker", command.worker, command.epoch)
        process = self.by_epoch[command.epoch]
        deliver = process.guarded(partial(process.hear, command.message))
        self.engine.after(process.lag_ns + process.cut_off_ns, deliver)

    def connections_end(self, process: SimWorker) -> None:
        """Other processes notice that their connections to this process have ended."""
        for other in tuple(self.by_epoch.values()) if self.wires.faults.any else ():
            if other.alive:
                self.engine.after(
                    self.wires.rng.randrange(1, 2 * MS), other.guarded(partial(other.links.peer_ended, process.epoch))
                )

    # -- the network

    def transmit(self, link: Link, to_epoch: int, number: int, receiver: int, payload: Any) -> None:
        self.journal.note("frame", link, to_epoch, number, receiver)
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
        if self.bounds is not None:
            self.bounds.under_way[link, to_epoch] += copies
        process = self.by_epoch[to_epoch]
        receive = partial(process.receive, link, to_epoch, number, receiver, payload)
        arrive = process.guarded(partial(self.arrive, link, process.worker, receive))
        for copy in range(copies):
            self.engine.after(MS + late + copy * self.delay(), arrive)

    def arrive(self, link: Link, at: int, receive: Callable[[], None]) -> None:
        """Deliver a frame, unless its connection is closed or the network between the two workers is cut."""
        if link[4] not in self.wires.closed and self.wires.passes(link[0], at):
            receive()
