"""The coordinator's event loop: feeds events and the time to the pure ``Coordinator``, and executes its commands.

One thread makes all decisions, in the order in which events reach its queue. It never waits for the disk: checkpoints
are written in a thread of their own. What the run reports about itself is in ``run_status``.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection
from dataclasses import astuple
from typing import Any

import cloudpickle

from tailrace.clock import SECOND_NS, system_clock
from tailrace.connector import DriverSink
from tailrace.core.failures import traceback_of
from tailrace.core.plan.call_limits import limits_of
from tailrace.core.plan.plan import Plan
from tailrace.core.protocol import coordinator as core
from tailrace.core.protocol.messages import (
    Abandon,
    Assign,
    Command,
    Finish,
    Persist,
    Position,
    Registered,
    Send,
    StartWorker,
)
from tailrace.core.protocol.worker_deaths import SILENCE, TOO_LATE
from tailrace.errors import Fenced, TailraceError
from tailrace.policy.techniques import Tail
from tailrace.runtime.calls.limit_server import limit_address
from tailrace.runtime.driver.checkpoint import Checkpoint
from tailrace.runtime.driver.checkpoint_writer import CheckpointWriter
from tailrace.runtime.driver.display import Display
from tailrace.runtime.driver.host import Host
from tailrace.runtime.driver.run_status import RunStatus
from tailrace.runtime.driver.worker_connections import WorkerConnections
from tailrace.runtime.encryption.certificate import accepting, make_certificate
from tailrace.runtime.links.auth import new_secret
from tailrace.runtime.links.control import Bootstrap, Logs, Metrics, Notice, Opening, Ping, Setup, SinkCall, SinkReply
from tailrace.runtime.listening import Place, listen
from tailrace.runtime.options import RESTART, RunSettings
from tailrace.runtime.worker.interpreter import raise_file_limit
from tailrace.topology import Role

BACKLOG = 64
TICK_S = 0.05
PING_S = 1.0
RETRY_S = 0.5

LOAD_S = 0.25
"""How often sources get a load report while hedging is on. Until the first one they know nothing about load."""

LATE_S = 1.0
"""If the driver itself was delayed this long, by a paused process or a busy interpreter, it excuses the silence of
workers during that time."""


class CoordinatorServer:
    """Runs one topology until it is done, stopped or failed."""

    def __init__(
        self, plan: Plan, options: RunSettings, host: Host, checkpoint: Checkpoint, run_id: str, place: Place
    ) -> None:
        self.plan = plan
        started_ns = system_clock()
        self._certificate = make_certificate() if options.encrypt else None  # first of all: it may be refused
        self._begun_ns = 0  # when sources began to read; 0 before that
        self._options = options
        self._host = host
        self._checkpoint = checkpoint
        self._first_epoch = checkpoint.next_epoch  # the first epoch of this run
        self._display = Display()
        self._checkpoint_writer = CheckpointWriter(checkpoint, self._on_checkpoint_written)
        self._turned_ns = 0  # when ``_tick`` last ran
        self._unstarted: list[tuple[int, StartWorker]] = []  # with the time of the next attempt
        self._plan_bytes: bytes = cloudpickle.dumps(plan)
        self._events: queue.SimpleQueue[Callable[[], list[Command]]] = queue.SimpleQueue()
        self._finished = threading.Event()
        self.running = threading.Event()  # set once all workers have been ready, or the run has ended
        self.error: Exception | None = None
        lost_state = checkpoint.lost_state(options.state == RESTART)
        self._noticed: set[str] = set()  # topics that the user has been warned of
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
        self._tail = options.tail  # what the user asked for last; workers may not have switched yet
        self._place = place
        limits = limits_of(plan)
        self._ports, encrypt = options.ports, self._certificate is not None
        self._limits = limit_address(*limits, place=place, ports=self._ports, encrypt=encrypt) if limits else None
        raise_file_limit()
        self._secret = new_secret()
        self._listener = listen(place.bind, self._ports, BACKLOG)
        self._connections = WorkerConnections(
            self._listener,
            self._secret,
            self._expected,
            self._on_message,
            self._on_worker_gone,
            self._on_unreadable,
            None if self._certificate is None else accepting(self._certificate),
        )
        self._status = RunStatus(plan, self._core, run_id, checkpoint.job_id, options.tail, lost_state, started_ns)

    # -- called by the run handle

    def start(self) -> None:
        self._turned_ns = system_clock()
        self._checkpoint_writer.start()
        self._display.start()
        commands = self._core.start(self._turned_ns)  # here, not in the loop: progress lists the workers at once
        self._post(lambda: commands)
        self._connections.start()
        threading.Thread(target=self._run_loop, name="tailrace-coordinator", daemon=True).start()

    def drain(self) -> None:
        self._post(lambda: self._core.drain(system_clock()))

    def fail(self, error: Exception) -> None:
        self._post(lambda: self._core.fail(error, system_clock()))

    @property
    def tail(self) -> Tail:
        return self._tail

    def switch(self, tail: Tail) -> None:
        self._tail = tail
        self._status.switched(tail)
        self._post(lambda: self._core.switch(tail))

    def raise_barrier(self) -> Callable[[], bool]:
        """Returns a function that tells whether every record that sources could read by now is durable."""
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

    def has_settled(self, sources: Collection[int]) -> bool:
        """Whether these source tasks will read no more, and all they have read is durable."""
        return self._core.settled(sources)

    @property
    def recoveries(self) -> int:
        return self._core.recoveries

    @property
    def positions(self) -> dict[int, Position]:
        """How far the durable prefix of each split reaches: a restart reads on from there."""
        return dict(self._core.positions)

    @property
    def address(self) -> tuple[str, int]:
        """Where workers register."""
        host, port = self._listener.getsockname()[:2]
        return host, port

    @property
    def secret(self) -> bytes:
        """Every peer proves that it knows this. It lasts as long as the run."""
        return self._secret

    @property
    def fingerprint(self) -> bytes | None:
        """The fingerprint of the certificate that all processes of the run show; None if it is not encrypted."""
        return None if self._certificate is None else self._certificate.fingerprint

    def epoch_of(self, worker: int) -> int:
        """The epoch of the process that is this worker now."""
        return self._core.epoch_of(worker)

    def pids(self) -> dict[int, int]:
        """Process ids of the newest process of each worker, once it has registered."""
        return self._status.pids()

    def progress(self) -> dict[str, Any]:
        """The progress of the run; rates are since the last call."""
        outcome = None
        if self._finished.is_set():
            outcome = "failed" if self.error is not None else "finished"
        return self._status.progress(self._tail, outcome)

    # -- the event loop

    def _post(self, event: Callable[[], list[Command]]) -> None:
        self._events.put(event)

    def _run_loop(self) -> None:
        pinged_ns = reported_ns = 0
        try:
            while not self._finished.is_set():
                try:
                    self._execute(self._events.get(timeout=TICK_S)())
                except queue.Empty:
                    pass
                if system_clock() - self._turned_ns >= TICK_S * SECOND_NS:
                    self._execute(self._tick())
                    self._execute(self._start_again())
                if self._core.phase is core.Phase.RUNNING and not self._begun_ns:
                    self._begun_ns = system_clock()
                    self.running.set()
                now_ns = system_clock()
                if now_ns - pinged_ns > PING_S * SECOND_NS:
                    pinged_ns = now_ns
                    self._connections.send_all(Ping())
                if self._tail.hedge is not None and now_ns - reported_ns > LOAD_S * SECOND_NS:
                    reported_ns = now_ns
                    self._send_load()
        except BaseException as error:  # a bug in the coordinator must not leave the run hanging
            self._finish(error if isinstance(error, Exception) else TailraceError(repr(error)))

    def _send_load(self) -> None:
        load = self._status.load()
        if load is not None:
            self._connections.send_all(load)

    def _tick(self) -> list[Command]:
        """Tell the coordinator the time, so that it can declare silent workers dead. First collect all signs of life.

        A message counts from when its bytes were read, not from when it is handled: the event queue may be long. If the
        driver itself was delayed, its reader threads were too, and that time is excused. Bytes that have arrived but
        are unread also count: a reader thread may wait longer for the interpreter than this one.
        """
        now_ns = system_clock()
        held_ns, self._turned_ns = now_ns - self._turned_ns, now_ns
        if held_ns > LATE_S * SECOND_NS:
            self._core.excuse(now_ns, held_ns)
        for place, arrived_ns in self._connections.arrivals():
            self._core.heard(*place, arrived_ns)
        for place in self._core.silent(now_ns):
            if self._connections.waiting(place):
                self._core.heard(*place, now_ns)
        return self._core.tick(now_ns)

    def _execute(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case StartWorker():
                    self._start_worker(command)
                case Send():
                    if isinstance(command.message, Assign):
                        elapsed_ns = system_clock() - self._begun_ns if self._begun_ns else 0
                        job_id, first_epoch = self._checkpoint.job_id, self._first_epoch
                        setup = Setup(self._plan_bytes, self._options, job_id, elapsed_ns, first_epoch)
                        self._connections.send(command.worker, command.epoch, setup)
                    self._connections.send(command.worker, command.epoch, command.message)
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
            self._execute(self._core.stored(system_clock()))

    def _on_checkpoint_written(self, error: Exception | None) -> None:
        if error is None:
            self._post(lambda: self._core.stored(system_clock()))
        else:
            self._post(lambda: self._core.not_stored(error, system_clock()))

    def _start_worker(self, command: StartWorker) -> None:
        address = (self._place.address, self._listener.getsockname()[1])
        limits = None if self._limits is None else astuple(self._limits)
        own = (command.worker, command.epoch)
        replaces = command.epoch >= self._first_epoch + self.plan.workers
        bootstrap = Bootstrap(address, self._secret, *own, limits, self._certificate, self._ports, replaces)
        try:
            self._host.start(bootstrap, self._on_process_exit)
        except OSError as error:  # out of files, threads or processes, perhaps temporarily
            text = (
                f"a worker cannot be started yet: worker={command.worker} cause={error}; are there too many processes?"
            )
            self._notice(f"start {command.epoch}", text)
            self._unstarted.append((system_clock() + int(RETRY_S * SECOND_NS), command))

    def _start_again(self) -> list[Command]:
        """Commands whose start failed and is due again. Those that the coordinator no longer wants are dropped."""
        now_ns = system_clock()
        due = [command for at_ns, command in self._unstarted if at_ns <= now_ns]
        self._unstarted = [(at_ns, command) for at_ns, command in self._unstarted if at_ns > now_ns]
        waits = core.WorkerState.STARTING
        return [
            command
            for command in due
            if self._core.epoch_of(command.worker) == command.epoch and self._core.state_of(command.worker) is waits
        ]

    def _on_process_exit(self, worker: int, epoch: int, why: str) -> None:
        """The host reports that a process has exited. Its last messages may not have been read yet, and come first."""
        self._connections.await_last_messages(worker, epoch)
        self._on_worker_gone(worker, epoch, why)

    def _on_worker_gone(self, worker: int, epoch: int, why: str) -> None:
        self._post(lambda: self._core.exited(worker, epoch, why, system_clock()))

    def _abandon(self, command: Abandon) -> None:
        if self._core.phase in (core.Phase.STARTING, core.Phase.RUNNING):
            self._display.warn(f"worker {command.worker} is gone: {command.why}; it is started again")
        self._status.abandoned(command.worker)
        self._host.abandon(command.worker, command.epoch, silent=command.why.startswith((SILENCE, TOO_LATE)))

    def _finish(self, error: Exception | None) -> None:
        self.error = error
        self._connections.stop_accepting()
        self._host.close()
        self._connections.close()
        self._checkpoint_writer.close()
        self._display.close()
        self._finished.set()
        self.running.set()

    # -- messages of workers, in the reader thread of each

    def _expected(self, worker: int) -> int | None:
        return self._core.epoch_of(worker) if worker in range(self.plan.workers) else None

    def _on_unreadable(self, worker: int, error: Exception) -> None:
        self.fail(TailraceError(f"a message of a worker cannot be read: worker={worker} cause={error!r}"))

    def _on_message(self, worker: int, epoch: int, message: Any) -> None:
        match message:
            case Metrics():
                self._status.counted(worker, epoch, message)
            case Logs():
                self._display.show(worker, message)
            case Notice():
                self._notice(message.topic, message.text)
            case Opening():
                self._status.opening(worker, message)
                self._notice(
                    f"open {epoch} {message.label}",
                    f"a task does not get open: task={message.label} worker={worker} seconds={message.seconds:.0f}; "
                    "does its open() wait for something?",
                )
            case SinkCall():
                self._answer_sink(worker, epoch, message)
            case _:
                if isinstance(message, Registered):
                    self._status.registered(worker, message)
                received_ns = system_clock()  # here: the event may wait in the queue, which is not the worker's fault
                self._post(lambda: self._core.handle(message, received_ns))

    def _notice(self, topic: str, text: str) -> None:
        if topic not in self._noticed:
            self._noticed.add(topic)
            self._display.warn(text)

    def _answer_sink(self, worker: int, epoch: int, call: SinkCall) -> None:
        """Answer in the event loop, which knows the current epochs: a call of a replaced process is refused."""

        def decide() -> list[Command]:
            reply: SinkReply
            try:
                if epoch != self._core.epoch_of(worker):
                    raise Fenced(f"a higher epoch has taken over: worker={worker} epoch={epoch}")
                sink: DriverSink = next(op for op in self.plan.operators if op.name == call.operator).operator.body
                # A sink of the user's own around one of ours may have no driver side: it does without.
                answer = sink.on_message(call.task, epoch, call.message) if hasattr(sink, "on_message") else None
                reply = SinkReply(call.call, answer, None)
            except TailraceError as error:
                reply = SinkReply(call.call, None, error)
            except Exception as error:  # sent as text: an exception of the user may not unpickle
                why = f"the sink's driver side failed: operator={call.operator} task={call.task}"
                reply = SinkReply(call.call, None, TailraceError(f"{traceback_of(error).rstrip()}\n{why}"))
            self._connections.send(worker, epoch, reply)
            return []

        self._post(decide)


def _operators_on(plan: Plan, worker: int) -> list[str]:
    tasks = [task for task, home in enumerate(plan.home) if home == worker]
    return list(dict.fromkeys(plan.operators[plan.operator_of[task]].name for task in tasks))
