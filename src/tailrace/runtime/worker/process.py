"""A worker process: it registers with the coordinator, opens its tasks, and runs them until it is told to leave.

Threads: this one listens to the coordinator; one beats; one accepts links (``link_acceptor``); the rest run tasks.
Whatever happens to the driver, a worker leaves: at once when the connection ends, and when nothing has been heard for
a while.
"""

from __future__ import annotations

import itertools
import os
import pickle
import resource
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from tailrace.clock import SECOND_NS, system_clock
from tailrace.core.assembly import Surroundings, assemble
from tailrace.core.feedback.budget import FeedbackBudget
from tailrace.core.plan.plan import Plan
from tailrace.core.protocol.messages import Alive, Assign, Drain, Failed, Member, Members, Registered, Renew, Techniques
from tailrace.core.protocol.sightings import Sightings
from tailrace.core.protocol.worker import CloseLinks, Exit, Life, OpenTasks, Reply, TellTasks, Worker, WorkerCommand
from tailrace.core.send_order.uplink_budget import UplinkBudget
from tailrace.core.tasks.deferred import AsyncTask
from tailrace.core.tasks.source import SourceTask
from tailrace.errors import Fenced, ProtocolError, TailraceError, TaskError, shorten
from tailrace.policy.send_order.api import SendScheduler
from tailrace.policy.techniques import NODE, Tail
from tailrace.ring.segment import sweep, sweep_own
from tailrace.runtime.execution.async_runner import AsyncRunner
from tailrace.runtime.execution.runner import RunnableTask, Runner
from tailrace.runtime.execution.stuck_calls import StuckCalls
from tailrace.runtime.execution.task_host import TaskHost
from tailrace.runtime.links.auth import dial
from tailrace.runtime.links.cancellations import Cancellations
from tailrace.runtime.links.channels import Channel
from tailrace.runtime.links.control import (
    Bootstrap,
    ControlConnection,
    Metrics,
    Notice,
    Opening,
    Ping,
    Setup,
    SinkCall,
    SinkReply,
)
from tailrace.runtime.links.dialer import Dialer
from tailrace.runtime.links.link import OutLink
from tailrace.runtime.options import BEAT_S, RunSettings
from tailrace.runtime.resource_needs import file_limit, free_shared_bytes, links_of, why_no_rings
from tailrace.runtime.send_order.node_uplinks import NodeUplinks
from tailrace.runtime.send_order.send_loop import SendLoop
from tailrace.runtime.shared_queues.node_queue import NodeQueue
from tailrace.runtime.shared_queues.pools import Pools
from tailrace.runtime.worker.interpreter import arm_watchdog, disarm_watchdog, prepare_process, set_aside
from tailrace.runtime.worker.link_acceptor import LinkAcceptor
from tailrace.runtime.worker.logs import LogBuffer, captured
from tailrace.runtime.worker.opening import Opener
from tailrace.runtime.worker.recorder import Recorder, describe
from tailrace.topology import Kind

HELD_S = 8.0
"""A worker whose beats stay away for so long has a call that holds the interpreter, if the driver is not as patient."""

SLOW_OPEN_S = 5.0
"""A task that takes so long to open is named: a model may take as long to load, and a hanging one takes for ever."""

GRACE_S = 1.0
"""How much longer a worker may go without a beat than anybody could count on it."""

EXIT_FENCED = 4
EXIT_ORPHANED = 5
CLOSE_S = 3.0


class WorkerProcess:
    """One epoch of one worker."""

    def __init__(self, bootstrap: Bootstrap, logs: LogBuffer) -> None:
        self.worker = bootstrap.worker
        self.epoch = bootstrap.epoch
        secret = bootstrap.secret
        self._core = Worker(self.worker, self.epoch, Sightings(threading.Lock()))
        self._logs = logs
        hello = {"role": "worker", "worker": self.worker, "epoch": self.epoch}
        contact = dial(bootstrap.address, secret, hello)
        self._host = contact.connection.getsockname()[0]
        self._line = ControlConnection(contact.connection, contact.seals)
        self._heard_ns = system_clock()
        self._link_acceptor = LinkAcceptor(self, self._host, secret)
        self._dialer = Dialer(self.worker, self.epoch, self._host, secret, self._say_no_ring, self._say_unreachable)
        self._hosts: dict[int, TaskHost] = {}  # unit -> host
        self._runners: list[Runner] = []
        self.pools: Pools | None = None
        self.node_links: NodeUplinks | None = None
        self._shared: Runner | None = None  # of the tasks with short calls
        self._send_loop: SendLoop | None = None
        self._numbers = itertools.count()
        self._calls: dict[int, tuple[threading.Event, list[SinkReply]]] = {}
        self._plan: Plan | None = None
        self._others: list[int] = []
        self._setup: Setup | None = None
        self._lease_s = RunSettings().lease_s  # without a word from the driver for so long, it is gone, or we are
        self._opener: Opener | None = None
        self._recorder: Recorder | None = None
        self._failed = False
        self._stuck = StuckCalls(self.detach, lambda topic, text: self.tell(Notice(topic, text)))
        self._unreached: dict[int, int] = {}  # how often the user was told that a worker cannot be reached
        self.cancelling = Cancellations()
        sweep()

    # -- what task hosts ask for

    def mailbox_of(self, task: int) -> TaskHost | None:
        assert self._plan is not None
        return self._hosts.get(self._plan.unit_of[task])

    def find(self, task: int) -> TaskHost | None:
        return self.mailbox_of(task) if self._plan is not None and 0 <= task < len(self._plan.home) else None

    def home_of(self, task: int) -> int:
        assert self._plan is not None
        return self._plan.home[task]

    def member(self, worker: int) -> Member | None:
        return self._core.membership.member(worker)

    @property
    def sightings(self) -> Sightings:
        return self._core.sightings

    def counts(self, worker: int, epoch: int) -> bool:
        return self._core.membership.counts(worker, epoch)

    def node_queue_for(self, task: int) -> NodeQueue | None:
        return None if self.pools is None else self.pools.node_queue_for(task)

    @property
    def _shared_by_node(self) -> list[Pools | NodeUplinks]:
        return [shared for shared in (self.pools, self.node_links) if shared is not None]

    def ask(self, member: Member, hello: dict[str, Any]) -> tuple[socket.socket, dict[str, Any]]:
        return self._dialer.ask(member, hello)

    def _say_no_queue(self, why: str) -> None:
        self.tell(Notice("queue", f"queues are shared by the tasks of a worker, not of a node: {why}"))

    def _say_own_part(self, why: str) -> None:
        self.tell(Notice("link", f"each worker has its part of the link, which the node does not share: {why}"))

    def connect(self, link: OutLink, member: Member, done: Callable[[Channel | None], None]) -> None:
        self._dialer.connect(link, member, done)

    def _say_no_ring(self, why: str) -> None:
        self.tell(Notice("ring", f"workers of one machine talk over TCP, not through shared memory: {why}"))

    def _say_unreachable(self, worker: int, why: str) -> None:
        times = self._unreached[worker] = self._unreached.get(worker, 0) + 1
        topic = f"unreachable {self.worker} {worker} {times}"  # each time is news, and they are rare
        self.tell(Notice(topic, f"worker {self.worker} cannot reach worker {worker}, tuples for it wait: {why}"))

    def _say_no_recording(self, why: str) -> None:
        self.tell(Notice("record", why))

    def others(self) -> Sequence[int]:
        return self._others

    def cancel(self, emissions: Sequence[int]) -> None:
        self.cancelling.cancel(emissions)

    def lost_link(self, worker: int, epoch: int) -> None:
        self._follow(self._core.lost_link(worker, epoch))

    def renew(self) -> None:
        self.tell(Renew(self.worker, self.epoch))

    def tell(self, message: Any) -> None:
        try:
            self._line.send(message)
        except OSError:
            if self._core.life is not Life.LEAVING:
                orphaned()

    def isolate(self, host: RunnableTask) -> None:
        """Give this host, which the shared runner has let go, a runner of its own."""
        own = self._own_runner(host)
        own.adopt(host)
        own.start()

    def detach(self, host: TaskHost) -> None:
        """A call of this host does not return: have the others of its runner go on. The caller holds the run lock."""
        assert host.runner is not None
        if host.shared_input is not None:
            host.shared_input.request_own_runners()
            host.wants_own_runner = False
        host.runner.detach(host, self._own_runner(host))

    def _own_runner(self, host: RunnableTask) -> Runner:
        """A new runner for this host alone, which is yet to be started."""
        host.leave_shared_runner()
        return self._new_runner(host.label)

    def _new_runner(self, name: str) -> Runner:
        """Which is to be started."""
        runner = Runner(name, self.runner_failed)
        self._runners.append(runner)
        return runner

    # -- life

    def run(self) -> None:
        """Returns when the coordinator lets the worker go. In any other case the process ends."""
        threading.Thread(target=self._beat, name="beat", daemon=True).start()
        self._link_acceptor.start()
        self.tell(Registered(self.worker, self.epoch, self._link_acceptor.address, os.getpid(), socket.gethostname()))
        for message in self._line.receive():
            self._heard_ns = system_clock()
            match message:
                case Ping():
                    pass
                case Setup():
                    self._setup = message
                    self._lease_s = message.options.lease_s
                    self._line.wait_for_peer(self._lease_s)
                    self._dialer.rings_of = message.job_id if message.options.ring else None
                    self._dialer.patience_s = message.options.heartbeat_timeout_s
                    self._link_acceptor.patience_s = 2 * message.options.heartbeat_timeout_s
                case SinkReply():
                    waiter = self._calls.pop(message.call, None)
                    if waiter is not None:
                        waiter[1].append(message)
                        waiter[0].set()
                case _:
                    self._follow(self._core.handle(message))
                    if self._core.life is Life.LEAVING:
                        return
        orphaned()

    def _follow(self, commands: list[WorkerCommand]) -> None:
        for command in commands:
            match command:
                case OpenTasks():
                    assign = command.assign
                    threading.Thread(target=self._open, args=(assign,), name="open", daemon=True).start()
                case CloseLinks():
                    for host in self._hosts.values():
                        host.post(lambda host=host, workers=command.workers: host.relink(workers))  # type: ignore[misc]
                    if self.pools is not None:
                        self.pools.relink(command.workers)
                    if self._send_loop is not None:
                        self._send_loop.relink(command.workers)
                case TellTasks():
                    if isinstance(command.message, Members):
                        for shared in self._shared_by_node:
                            shared.follow(command.message.members)
                    if isinstance(command.message, Drain):
                        self._stuck.draining = True
                    if isinstance(command.message, Techniques):
                        self._switch(command.message.tail)
                    for host in self._hosts.values():
                        host.handle(command.message)
                case Reply():
                    self.tell(command.message)
                case Exit():
                    self._leave()

    def _beat(self) -> None:
        while self._core.life is not Life.LEAVING:
            arm_watchdog(self._beatless_s)
            time.sleep(BEAT_S)
            arm_watchdog(self._lease_s + GRACE_S)  # a driver that stands still takes in nothing, and is waited for
            self.tell(Alive(self.worker, self.epoch))
            self._dialer.end_cut_links()
            logs = self._logs.take()
            if logs is not None:
                self.tell(logs)
            self._stuck.look(tuple(self._hosts.values()), system_clock())
            self._send_metrics()
            self._tell_opening()
            if system_clock() - self._heard_ns > self._lease_s * SECOND_NS:
                orphaned()
        disarm_watchdog()

    @property
    def _beatless_s(self) -> float:
        """After so long without a beat no driver counts on this worker any more."""
        timeout_s = 0.0 if self._setup is None else self._setup.options.heartbeat_timeout_s
        return max(HELD_S, timeout_s) + GRACE_S

    def _tell_opening(self) -> None:
        """A user's ``open`` may wait for something that never comes, and the run with it."""
        opening = None if self._opener is None else self._opener.opening
        if opening is not None and system_clock() - opening[1] > SLOW_OPEN_S * SECOND_NS:
            self.tell(Opening(opening[0], (system_clock() - opening[1]) / SECOND_NS))

    def _send_metrics(self) -> None:
        snapshots = [snapshot for host in tuple(self._hosts.values()) for snapshot in host.snapshots]
        usage = resource.getrusage(resource.RUSAGE_SELF)
        self.tell(Metrics(snapshots, usage.ru_utime + usage.ru_stime))

    # -- opening

    def _open(self, assign: Assign) -> None:
        try:
            self._open_tasks(assign)
        except BaseException as error:
            self.runner_failed(error)
        else:
            self._follow(self._core.opened())

    def _open_tasks(self, assign: Assign) -> None:
        setup = self._setup
        assert setup is not None
        plan: Plan = pickle.loads(setup.plan)
        options: RunSettings = setup.options
        self._plan = plan
        why = why_no_rings(links_of(plan, self.worker), file_limit(), free_shared_bytes())
        if why is not None and self._dialer.rings_of is not None:
            self._dialer.rings_of = None
            self._say_no_ring(why)
        first = {home: task for task, home in reversed(list(enumerate(plan.home)))}
        self._others = [task for home, task in sorted(first.items()) if home != self.worker]
        job = setup.job_id, setup.elapsed_ns, setup.first_epoch
        opener = self._opener = Opener(plan, self.worker, self.epoch, *job, self.call_driver)
        if options.record is not None:
            header = describe(plan, setup.job_id, self.worker, self.epoch, system_clock)
            self._recorder = Recorder(str(options.record), header, plan, system_clock, self._say_no_recording)
        rng = Random(os.urandom(16))
        around = Surroundings(
            plan,
            self.worker,
            self.epoch,
            options.ledger,
            system_clock,
            rng,
            observer=self._recorder,
            guard=threading.Lock,
            tail=assign.tail,
            cancelled=self.cancelling.emissions,
            feedback_budget=FeedbackBudget(len(first), options.feedback_share),
            say=lambda topic, text: self.tell(Notice(topic, text)),
            sightings=self._core.sightings,
        )
        hosts: dict[int, TaskHost] = {}
        for leader, members in plan.units(self.worker):
            bodies = opener.open(leader, members, dict(assign.starts))
            task = assemble(leader, bodies, around)
            if isinstance(task, SourceTask):
                task.draining = assign.draining
            kinds = {plan.operators[plan.operator_of[member]].operator.kind for member in members}
            host = TaskHost(task, self, Kind.BLOCKING if Kind.BLOCKING in kinds else min(kinds, key=_rank))
            hosts[leader] = host
            for reader in bodies.readers.values():
                if hasattr(reader, "wake_by"):
                    reader.wake_by(host.request_turn)
        shared = self._shared = Runner("shared", self.runner_failed, self.isolate)
        self.pools = Pools(self, plan, setup.job_id, hosts, around.queues, shared, self._new_runner, self._say_no_queue)
        self._hosts = hosts
        self._start_runners(plan, shared, self.pools)
        self._switch(assign.tail)
        if self._core.life is not Life.LEAVING:
            set_aside()

    def _switch(self, tail: Tail) -> None:
        """These techniques are on from now on. Sources hear of replays by themselves."""
        assert self.pools is not None
        self._schedule(tail.send)
        self.pools.switch(tail.shared_queues)

    def _schedule(self, scheduler: SendScheduler | None) -> None:
        """Have tasks' tuples for other workers sent in this order; None: as tasks see fit."""
        setup, plan = self._setup, self._plan
        assert setup is not None and plan is not None
        bytes_per_s = setup.options.link_bytes_per_s
        if self._send_loop is None:
            if scheduler is None and bytes_per_s is None:
                return
            most, rng = setup.options.outgoing_tuples, Random(os.urandom(16))
            hosts = self._hosts.values()
            runner = self._runner_of_send_loop()
            budget = None if bytes_per_s is None else UplinkBudget(bytes_per_s)
            self._send_loop = SendLoop(runner, hosts, plan, self, most_tuples=most, budget=budget, rng=rng)
            if bytes_per_s is not None and setup.options.link_scope == NODE:
                self.node_links = NodeUplinks(self, plan, bytes_per_s, self._send_loop, self._say_own_part)
                self.node_links.follow(self._core.membership.members)
        self._send_loop.switch(scheduler)

    def _runner_of_send_loop(self) -> Runner:
        """That of short calls, unless tasks stay there whose calls may be long."""
        assert self._shared is not None
        if not any(host.kind is Kind.CPU for host in self._hosts.values()):
            return self._shared
        own = self._new_runner("send")
        own.start()
        return own

    def _start_runners(self, plan: Plan, shared: Runner, pools: Pools) -> None:
        self._runners.append(shared)
        for host in self._hosts.values():
            task = host.task
            if isinstance(task, AsyncTask):
                concurrency = plan.operators[plan.operator_of[task.number]].operator.options["concurrency"]
                self._runners.append(AsyncRunner(task.label, self.runner_failed, host, task, concurrency))
            elif host.kind is Kind.BLOCKING:
                self._new_runner(task.label).adopt(host)
            else:
                host.shared = True
                shared.adopt(host)
        for runner in self._runners:
            runner.start()
        pools.start()

    def call_driver(self, operator: str, task: int, message: Any) -> Any:
        """Ask a sink's half on the driver, and wait for the answer."""
        call = next(self._numbers)
        waiter: tuple[threading.Event, list[SinkReply]] = (threading.Event(), [])
        self._calls[call] = waiter
        try:
            self._line.send(SinkCall(call, operator, task, message))
        except OSError:
            orphaned()
        except Exception as error:
            kind = "" if isinstance(error, ProtocolError) else f"{type(error).__name__}: "
            why = f"rows cannot be sent to the driver: {kind}{error}"
            raise TaskError(operator, task, "(in a commit)", why) from None
        if not waiter[0].wait(self._lease_s):
            raise TailraceError(f"the driver does not answer: operator={operator} task={task}; is it overloaded?")
        reply = waiter[1][0]
        if reply.error is not None:
            raise reply.error
        return reply.reply

    # -- the end

    def runner_failed(self, error: BaseException) -> None:
        """A runner cannot go on: someone has replaced us, or a user function raised, or there is a bug."""
        if isinstance(error, Fenced):
            sys.stderr.write(f"tailrace: worker {self.worker} leaves: {error}\n")
            sweep_own()
            os._exit(EXIT_FENCED)
        if self._failed:
            return
        self._failed = True
        if not isinstance(error, TailraceError):
            text = "".join(traceback.format_exception(error))
            error = TailraceError(f"{text}\na worker failed: worker={self.worker}")
        logs = self._logs.take()
        if logs is not None:
            self.tell(logs)
        try:
            self.tell(Failed(self.worker, self.epoch, error))
        except Exception as why_not:  # it cannot be pickled, or is too large
            short = f"{type(error).__name__}: {shorten(str(error))}: it cannot be sent as it is: {why_not}"
            self.tell(Failed(self.worker, self.epoch, TailraceError(short)))

    def _leave(self) -> None:
        for shared in self._shared_by_node:
            shared.close()
        for host in self._hosts.values():
            host.post(host.snapshot)
        for runner in self._runners:
            runner.stop()
        deadline = time.monotonic() + CLOSE_S
        for runner in self._runners:
            runner.join(max(0.05, deadline - time.monotonic()))
        self._dialer.close()
        if self._recorder is not None:
            self._recorder.close()
        problems = self._opener.close() if self._opener is not None else []
        for problem in problems:
            print(problem)
        self._send_metrics()
        logs = self._logs.take()
        if logs is not None:
            self.tell(logs)
        self._link_acceptor.close()
        self.cancelling.close()
        self._line.close()


def _rank(kind: Kind) -> int:
    """AUTO if any operator of a unit says so: it may have long calls."""
    return 0 if kind is Kind.AUTO else 1


def orphaned() -> None:
    sweep_own()
    os._exit(EXIT_ORPHANED)


def serve(bootstrap: Bootstrap) -> None:
    """Be a worker, until the coordinator lets it go. Raises Refused or OSError if it does not take it in."""
    prepare_process()
    with captured() as logs:
        WorkerProcess(bootstrap, logs).run()
