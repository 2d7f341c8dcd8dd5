"""The coordinator at work: the pure one decides, this one listens, starts workers, has prefixes stored and keeps time.

One thread makes all decisions, in the order in which events reach its queue. It does not wait for the disk: writes have
a thread of their own.
"""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import cloudpickle

from tailrace.clock import SECOND_NS, system_clock
from tailrace.connector import DriverSink
from tailrace.core.failures import traceback_of
from tailrace.core.plan.plan import EdgePlan, Plan
from tailrace.core.protocol import coordinator as core
from tailrace.core.protocol.messages import Abandon, Assign, Command, Finish, Persist, Registered, Send, StartWorker
from tailrace.errors import Fenced, TailraceError
from tailrace.metrics.edges import WatchedEdge
from tailrace.metrics.progress import ProgressBuilder, WorkerStatus, describe
from tailrace.policy.techniques import Tail
from tailrace.runtime.driver.checkpoint import Checkpoint
from tailrace.runtime.driver.checkpoint_writer import CheckpointWriter
from tailrace.runtime.driver.display import Display
from tailrace.runtime.driver.host import Host
from tailrace.runtime.driver.load import LoadMeter
from tailrace.runtime.driver.worker_connections import WorkerConnections
from tailrace.runtime.links.auth import new_secret
from tailrace.runtime.links.control import Bootstrap, Logs, Metrics, Notice, Opening, Ping, Setup, SinkCall, SinkReply
from tailrace.runtime.options import RESTART, RunSettings
from tailrace.runtime.worker.interpreter import raise_file_limit
from tailrace.topology import Role

BACKLOG = 64
TICK_S = 0.05
PING_S = 1.0
RETRY_S = 0.5

LOAD_S = 0.25
"""How often sources hear what their roots and hedges cost, if they hedge: they know nothing of it before."""

LATE_S = 1.0
"""A driver that was itself held up for so long, by a paused process or a busy interpreter, cannot judge the silence of
others."""


@dataclass(frozen=True)
class Place:
    """Where the coordinator listens."""

    bind: str
    address: str  # by which workers reach it


LOOPBACK = Place("127.0.0.1", "127.0.0.1")


@dataclass
class _WorkerFacts:
    pid: int = 0
    host: str = ""
    opening: str = ""  # a task that takes long to open, and for how long already
    cpu_seconds: dict[int, float] = field(default_factory=dict)  # by epoch: late news of a dead one is not lost


class CoordinatorServer:
    """Runs one topology until it is done, stopped or failed."""

    def __init__(
        self, plan: Plan, options: RunSettings, host: Host, checkpoint: Checkpoint, run_id: str, place: Place
    ) -> None:
        self.plan = plan
        self.started_ns = system_clock()
        self._begun_ns = 0  # when sources were told to begin
        self._options = options
        self._host = host
        self._checkpoint = checkpoint
        self._first_epoch = checkpoint.next_epoch  # later ones are this run's
        self._display = Display()
        self._checkpoint_writer = CheckpointWriter(checkpoint, self._wrote)
        self._turned_ns = 0  # when silence was last judged
        self._unstarted: list[tuple[int, StartWorker]] = []  # when to try again
        self._plan_bytes: bytes = cloudpickle.dumps(plan)
        self._events: queue.SimpleQueue[Callable[[], list[Command]]] = queue.SimpleQueue()
        self._facts = {worker: _WorkerFacts() for worker in range(plan.workers)}
        self._finished = threading.Event()
        self.running = threading.Event()  # all workers have been ready once
        self.error: Exception | None = None
        self._state_lost = set(checkpoint.lost_state(options.state == RESTART))
        self._noticed: set[str] = set()  # topics that the user has heard of
        sources = [op for op in plan.operators if op.operator.role is Role.SOURCE]
        tasks = [op.first_task + index for op in sources for index in range(op.tasks)]
        self._core = core.Coordinator(
            workers=plan.workers,
            sources=tasks,
            homes={task: plan.home[task] for task in tasks},
            positions=checkpoint.positions(),
            limits=options.coordinator,
            first_epoch=checkpoint.next_epoch,
            tail=options.tail,
            operators={worker: _operators_on(plan, worker) for worker in range(plan.workers)},
            splits={split.index: split.key for split in plan.splits},
        )
        self._tail = options.tail  # as the user wants it, which workers may not have heard yet
        self._place = place
        raise_file_limit()
        self._secret = new_secret()
        self._listener = socket.create_server((place.bind, 0), backlog=BACKLOG)
        told = (self._hear, self._exited, self._unreadable)
        self._lines = WorkerConnections(self._listener, self._secret, self._expected, *told)
        names = [(op.name, op.operator.role.value, op.tasks) for op in plan.operators]
        watched = {edge.index: _watched(plan, edge) for edge in plan.edges if edge.feedback}
        self._progress = ProgressBuilder(
            run_id,
            checkpoint.job_id,
            plan.name,
            names,
            started_ns=self.started_ns,
            scopes={op.name: op.scope(options.tail.shared_queues) for op in plan.operators},
            edges=watched,
        )
        self._progress_lock = threading.Lock()
        self._load = LoadMeter(plan)

    # -- from the run handle

    def start(self) -> None:
        self._turned_ns = system_clock()
        self._checkpoint_writer.start()
        self._display.start()
        commands = self._core.start(self._turned_ns)  # at once: whoever asks for the progress finds the workers in it
        self._post(lambda: commands)
        self._lines.start()
        threading.Thread(target=self._decide, name="tailrace-coordinator", daemon=True).start()

    def drain(self) -> None:
        self._post(lambda: self._core.drain(system_clock()))

    def fail(self, error: Exception) -> None:
        self._post(lambda: self._core.fail(error, system_clock()))

    @property
    def tail(self) -> Tail:
        return self._tail

    def switch(self, tail: Tail) -> None:
        self._tail = tail
        self._progress.scopes = {op.name: op.scope(tail.shared_queues) for op in self.plan.operators}
        self._post(lambda: self._core.switch(tail))

    def raise_barrier(self) -> Callable[[], bool]:
        """Returns what tells whether all that sources could read from now on is durable."""
        raised = threading.Event()
        number: list[int] = []

        def event() -> list[Command]:
            commands = self._core.raise_barrier()
            number.append(self._core.barrier)
            raised.set()
            return commands

        self._post(event)
        return lambda: raised.is_set() and self._core.passed(number[0])

    def wait(self, timeout_s: float | None) -> bool:
        return self._finished.wait(timeout_s)

    @property
    def phase(self) -> core.Phase:
        return self._core.phase

    @property
    def recoveries(self) -> int:
        return self._core.recoveries

    def pids(self) -> dict[int, int]:
        """Process ids of the newest process of each worker, once it has registered."""
        return {worker: facts.pid for worker, facts in self._facts.items() if facts.pid}

    def progress(self) -> dict[str, Any]:
        """What the run has done so far; rates are since the last call."""
        with self._progress_lock:
            workers = [self._status(worker) for worker in range(self.plan.workers)]
            return self._progress.build(
                system_clock(),
                datetime.now(UTC).isoformat(timespec="milliseconds"),
                workers,
                self._core.recoveries,
                sorted(self._state_lost),
                status=self._describe(workers),
                tail=self._tail.names(),
            )

    def _describe(self, workers: Sequence[WorkerStatus]) -> str:
        if self._finished.is_set():
            return "failed" if self.error is not None else "finished"
        if self._core.phase is core.Phase.LEAVING:
            return "stopping"
        if self._core.draining:
            return "draining"
        slow = [
            facts.opening
            for worker, facts in self._facts.items()
            if facts.opening and self._core.state_of(worker) is core.WorkerState.OPENING
        ]
        return "; ".join([describe(workers), *slow])

    def _status(self, worker: int) -> WorkerStatus:
        facts = self._facts[worker]
        state = self._core.state_of(worker).value
        return WorkerStatus(
            worker=worker,
            epoch=self._core.epoch_of(worker),
            pid=facts.pid,
            host=facts.host,
            restarts=self._core.restarts_of(worker),
            cpu_seconds=sum(facts.cpu_seconds.values()),
            state={"ready": "running", "gone": "stopped", "opening": "starting"}.get(state, state),
        )

    # -- deciding

    def _post(self, event: Callable[[], list[Command]]) -> None:
        self._events.put(event)

    def _decide(self) -> None:
        pinged_ns = told_ns = 0
        try:
            while not self._finished.is_set():
                try:
                    self._obey(self._events.get(timeout=TICK_S)())
                except queue.Empty:
                    pass
                if system_clock() - self._turned_ns >= TICK_S * SECOND_NS:
                    self._obey(self._tick())
                    self._obey(self._start_again())
                if self._core.phase is core.Phase.RUNNING and not self._begun_ns:
                    self._begun_ns = system_clock()
                    self.running.set()
                now_ns = system_clock()
                if now_ns - pinged_ns > PING_S * SECOND_NS:
                    pinged_ns = now_ns
                    self._lines.send_all(Ping())
                if self._tail.hedge is not None and now_ns - told_ns > LOAD_S * SECOND_NS:
                    told_ns = now_ns
                    self._tell_load()
        except BaseException as error:  # a bug in the coordinator must not leave the run hanging
            self._finish(error if isinstance(error, Exception) else TailraceError(repr(error)))

    def _tell_load(self) -> None:
        with self._progress_lock:
            load = self._load.measure(self._progress.snapshots())
        if load is not None:
            self._lines.send_all(load)

    def _tick(self) -> list[Command]:
        """Judge, after all that speaks for workers has been heard.

        What has arrived counts when its bytes were read, not when it is handled: the queue of events may be long. If
        the driver stood still, or was busy with something else, nobody read. And what nobody has read yet has arrived
        too: threads that read may wait longer for the interpreter than this one.
        """
        now_ns = system_clock()
        held_ns, self._turned_ns = now_ns - self._turned_ns, now_ns
        if held_ns > LATE_S * SECOND_NS:
            self._core.excuse(now_ns, held_ns)
        for place, arrived_ns in self._lines.arrivals():
            self._core.heard(*place, arrived_ns)
        for place in self._core.silent(now_ns):
            if self._lines.waiting(place):
                self._core.heard(*place, now_ns)
        return self._core.tick(now_ns)

    def _obey(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case StartWorker():
                    self._start_worker(command)
                case Send():
                    if isinstance(command.message, Assign):
                        elapsed_ns = system_clock() - self._begun_ns if self._begun_ns else 0
                        job_id, first_epoch = self._checkpoint.job_id, self._first_epoch
                        setup = Setup(self._plan_bytes, self._options, job_id, elapsed_ns, first_epoch)
                        self._lines.send(command.worker, command.epoch, setup)
                    self._lines.send(command.worker, command.epoch, command.message)
                case Persist():
                    self._store(command)
                case Abandon():
                    self._abandon(command)
                case Finish():
                    self._finish(command.error)

    def _store(self, command: Persist) -> None:
        if self._checkpoint.on_disk:
            self._checkpoint_writer.order(command)
        else:
            self._obey(self._core.stored(system_clock()))

    def _wrote(self, error: Exception | None) -> None:
        if error is None:
            self._post(lambda: self._core.stored(system_clock()))
        else:
            self._post(lambda: self._core.not_stored(error, system_clock()))

    def _start_worker(self, command: StartWorker) -> None:
        address = (self._place.address, self._listener.getsockname()[1])
        bootstrap = Bootstrap(address, self._secret, command.worker, command.epoch)
        try:
            self._host.start(bootstrap, self._ended)
        except OSError as error:  # files, threads or processes have run out, perhaps for a moment only
            text = (
                f"a worker cannot be started yet: worker={command.worker} cause={error}; are there too many processes?"
            )
            self._notice(f"start {command.epoch}", text)
            self._unstarted.append((system_clock() + int(RETRY_S * SECOND_NS), command))

    def _start_again(self) -> list[Command]:
        """What could not be started, if it is still wanted: the pure coordinator says when it is too late for that."""
        now_ns = system_clock()
        due = [command for at_ns, command in self._unstarted if at_ns <= now_ns]
        self._unstarted = [(at_ns, command) for at_ns, command in self._unstarted if at_ns > now_ns]
        waits = core.WorkerState.STARTING
        return [
            command
            for command in due
            if self._core.epoch_of(command.worker) == command.epoch and self._core.state_of(command.worker) is waits
        ]

    def _ended(self, worker: int, epoch: int, why: str) -> None:
        """The host says that a process is gone. Its last words may still be on their way, and come first."""
        self._lines.hear_out(worker, epoch)
        self._exited(worker, epoch, why)

    def _exited(self, worker: int, epoch: int, why: str) -> None:
        self._post(lambda: self._core.exited(worker, epoch, why, system_clock()))

    def _abandon(self, command: Abandon) -> None:
        if self._core.phase in (core.Phase.STARTING, core.Phase.RUNNING):
            self._display.warn(f"worker {command.worker} is gone: {command.why}; it is started again")
        self._facts[command.worker].pid = 0
        for task, home in enumerate(self.plan.home):
            operator = self.plan.operators[self.plan.operator_of[task]].operator
            if home == command.worker and operator.stateful:
                self._state_lost.add(operator.name)
        self._host.abandon(command.worker, command.epoch)

    def _finish(self, error: Exception | None) -> None:
        self.error = error
        self._lines.close_door()
        self._host.close()
        self._lines.close()
        self._checkpoint_writer.close()
        self._display.close()
        self._finished.set()
        self.running.set()

    # -- talking with workers

    def _expected(self, worker: int) -> int | None:
        return self._core.epoch_of(worker) if worker in self._facts else None

    def _unreadable(self, worker: int, error: Exception) -> None:
        self.fail(TailraceError(f"a message of a worker cannot be read: worker={worker} cause={error!r}"))

    def _hear(self, worker: int, epoch: int, message: Any) -> None:
        match message:
            case Metrics():
                self._take_metrics(worker, epoch, message)
            case Logs():
                self._display.show(worker, message)
            case Notice():
                self._notice(message.topic, message.text)
            case Opening():
                self._facts[
                    worker
                ].opening = f"worker {worker} has been opening {message.label} for {message.seconds:.0f} s"
                self._notice(
                    f"open {epoch} {message.label}",
                    f"a task does not get open: task={message.label} worker={worker} seconds={message.seconds:.0f}; "
                    "does its open() wait for something?",
                )
            case SinkCall():
                self._answer_sink(worker, epoch, message)
            case _:
                if isinstance(message, Registered):
                    facts = self._facts[worker]
                    facts.pid, facts.host, facts.opening = message.pid, message.host, ""
                received_ns = system_clock()  # not when it is handled: that may be late through no fault of the worker
                self._post(lambda: self._core.handle(message, received_ns))

    def _notice(self, topic: str, text: str) -> None:
        if topic not in self._noticed:
            self._noticed.add(topic)
            self._display.warn(text)

    def _take_metrics(self, worker: int, epoch: int, metrics: Metrics) -> None:
        with self._progress_lock:
            self._facts[worker].cpu_seconds[epoch] = metrics.cpu_seconds
            self._progress.update(worker, epoch, metrics.snapshots)

    def _answer_sink(self, worker: int, epoch: int, call: SinkCall) -> None:
        """In the order of epochs and one at a time: the decision whether an epoch counts is the coordinator's."""

        def decide() -> list[Command]:
            reply: SinkReply
            try:
                if epoch != self._core.epoch_of(worker):
                    raise Fenced(f"a higher epoch has taken over: worker={worker} epoch={epoch}")
                sink: DriverSink = next(op for op in self.plan.operators if op.name == call.operator).operator.body
                reply = SinkReply(call.call, sink.on_message(call.task, epoch, call.message), None)
            except TailraceError as error:
                reply = SinkReply(call.call, None, error)
            except Exception as error:  # as text: an exception of the user's may not travel
                why = f"the sink's half on the driver failed: operator={call.operator} task={call.task}"
                reply = SinkReply(call.call, None, TailraceError(f"{traceback_of(error).rstrip()}\n{why}"))
            self._lines.send(worker, epoch, reply)
            return []

        self._post(decide)


def _operators_on(plan: Plan, worker: int) -> list[str]:
    tasks = [task for task, home in enumerate(plan.home) if home == worker]
    return list(dict.fromkeys(plan.operators[plan.operator_of[task]].name for task in tasks))


def _watched(plan: Plan, edge: EdgePlan) -> WatchedEdge:
    upstream, downstream = (plan.operators[end].name for end in edge.ends)
    return WatchedEdge(upstream, downstream, edge.grouping.name)
