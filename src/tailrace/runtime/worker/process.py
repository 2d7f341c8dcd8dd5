"""A worker process: registers with the coordinator, opens its tasks, and runs them until the coordinator dismisses it.

Threads: the main thread reads the coordinator's messages, one sends heartbeats, one accepts links (``link_acceptor``),
and the others run tasks (``runners``). A worker does not outlive its driver: it exits at once when the control
connection ends, and after ``lease_s`` without a message.
"""

from __future__ import annotations

import os
import pickle
import resource
import socket
import sys
import threading
import time
import traceback
from functools import partial
from random import Random

from tailrace.clock import SECOND_NS, system_clock
from tailrace.core.assembly import WorkerContext, assemble
from tailrace.core.feedback.budget import FeedbackBudget
from tailrace.core.plan.call_limits import tasks_of
from tailrace.core.plan.plan import Plan
from tailrace.core.protocol.messages import Alive, Assign, Committed, Drain, Failed, Members, Registered, Techniques
from tailrace.core.protocol.sightings import Sightings
from tailrace.core.protocol.worker import CloseLinks, Exit, Life, OpenTasks, Reply, TellTasks, Worker, WorkerCommand
from tailrace.core.send_order.uplink_budget import UplinkBudget
from tailrace.errors import Fenced, OptionError, ProtocolError, TailraceError, message_of, shorten
from tailrace.policy.send_order.api import SendScheduler
from tailrace.policy.techniques import NODE, Tail
from tailrace.ring.segment import sweep, sweep_own
from tailrace.runtime.calls.limit_client import open_limit
from tailrace.runtime.calls.limit_server import LimitAddress
from tailrace.runtime.execution.stuck_calls import StuckCalls
from tailrace.runtime.execution.task_host import TaskHost
from tailrace.runtime.links.auth import dial
from tailrace.runtime.links.control import (
    Bootstrap,
    ControlConnection,
    Metrics,
    Opening,
    Ping,
    Setup,
    SinkReply,
)
from tailrace.runtime.links.dialer import Dialer
from tailrace.runtime.listening import Place, place_of_worker
from tailrace.runtime.options import BEAT_S, RunSettings
from tailrace.runtime.resource_needs import file_limit, free_shared_bytes, links_of, why_no_rings
from tailrace.runtime.send_order.node_uplinks import NodeUplinks
from tailrace.runtime.send_order.send_loop import SendLoop
from tailrace.runtime.shared_queues.pools import Pools
from tailrace.runtime.worker.driver_calls import DriverCalls
from tailrace.runtime.worker.interpreter import arm_watchdog, disarm_watchdog, prepare_process, set_aside
from tailrace.runtime.worker.link_acceptor import LinkAcceptor
from tailrace.runtime.worker.logs import LogBuffer, captured
from tailrace.runtime.worker.opening import Opener
from tailrace.runtime.worker.recorder import Recorder, describe
from tailrace.runtime.worker.runners import Runners
from tailrace.runtime.worker.services import Services
from tailrace.runtime.worker.task_journals import TaskJournals
from tailrace.topology import Kind

HELD_S = 8.0
"""After this long without a heartbeat, or ``heartbeat_timeout_s`` if that is longer, a worker ends itself: some call
holds the interpreter, and the driver has declared the worker dead."""

SLOW_OPEN_S = 5.0
"""A task that takes longer to open is reported to the user: it may be loading a model, or hang."""

GRACE_S = 1.0
"""How much longer than its timeout a worker may go without a heartbeat before its watchdog ends it."""

EXIT_FENCED = 4
EXIT_ORPHANED = 5
CLOSE_S = 3.0


class WorkerProcess:
    """One worker in one epoch."""

    def __init__(self, bootstrap: Bootstrap, logs: LogBuffer) -> None:
        self.worker = bootstrap.worker
        self.epoch = bootstrap.epoch
        secret = bootstrap.secret
        self._limits = None if bootstrap.limits is None else LimitAddress(*bootstrap.limits)
        self._core = Worker(self.worker, self.epoch, Sightings(threading.Lock()))
        self._logs = logs
        hello = {"role": "worker", "worker": self.worker, "epoch": self.epoch}
        contact = dial(bootstrap.address, secret, hello, bootstrap.fingerprint)
        place = place_of_worker(contact.connection.getsockname()[0])
        self._connection = ControlConnection(contact.connection, contact.seals)
        self._heard_ns = system_clock()
        say = self._say_no_ring, self._say_unreachable
        self._dialer = Dialer(self.worker, self.epoch, place.address, secret, *say, bootstrap.fingerprint)
        self._services = Services(self._core, self._connection, self._dialer, self._lost_link, orphaned)
        self._link_acceptor = self._listen(place, bootstrap)
        self._runners: Runners | None = None
        self._send_loop: SendLoop | None = None
        self._plan: Plan | None = None
        self._setup: Setup | None = None
        self._lease_s = RunSettings().lease_s  # the longest silence of the driver before this process exits
        self._driver_calls = DriverCalls(self._connection, self._lease_s, orphaned)
        self._opener: Opener | None = None
        self._journals: TaskJournals | None = None
        self._recorder: Recorder | None = None
        self._failed = False
        self._stuck = StuckCalls(self._detach, self._services.say)
        self._unreached: dict[int, int] = {}  # by worker, how often it was reported as unreachable
        sweep()

    def _listen(self, place: Place, bootstrap: Bootstrap) -> LinkAcceptor:
        try:
            return LinkAcceptor(self._services, place, bootstrap.ports, bootstrap.secret, bootstrap.certificate)
        except OptionError as error:
            if bootstrap.replaces:  # its predecessor may have the port: another process in its place finds it free
                self._services.say("listen", f"worker {self.worker} is started once more: {error}")
            else:
                self._services.tell(Failed(self.worker, self.epoch, error))
            self._connection.close()
            raise ProtocolError(str(error)) from error

    # -- warnings for the user

    def _say_no_queue(self, why: str) -> None:
        self._services.say("queue", f"queues are shared by the tasks of a worker, not of a node: {why}")

    def _say_own_part(self, why: str) -> None:
        self._services.say("link", f"each worker has its part of the link, which the node does not share: {why}")

    def _say_no_ring(self, why: str) -> None:
        self._services.say("ring", f"workers of one machine talk over TCP, not through shared memory: {why}")

    def _say_unreachable(self, worker: int, why: str) -> None:
        times = self._unreached[worker] = self._unreached.get(worker, 0) + 1
        topic = f"unreachable {self.worker} {worker} {times}"  # a new topic each time, so that each is shown
        self._services.say(topic, f"worker {self.worker} cannot reach worker {worker}, tuples for it wait: {why}")

    def _say_no_recording(self, why: str) -> None:
        self._services.say("record", why)

    # -- the main loop

    def run(self) -> None:
        """Serve until the coordinator dismisses the worker, then return. In any other case the process exits."""
        threading.Thread(target=self._beat, name="beat", daemon=True).start()
        self._link_acceptor.start()
        self._services.tell(
            Registered(self.worker, self.epoch, self._link_acceptor.address, os.getpid(), socket.gethostname())
        )
        try:
            self._obey()
        except ProtocolError as error:  # threads run by now: Spark must not be given this interpreter back
            sys.stderr.write(f"tailrace: worker {self.worker} leaves: {error}\n")
            orphaned()

    def _obey(self) -> None:
        for message in self._connection.receive():
            self._heard_ns = system_clock()
            match message:
                case Ping():
                    pass
                case Setup():
                    self._setup = message
                    self._lease_s = message.options.lease_s
                    self._driver_calls.timeout_s = self._lease_s
                    self._connection.wait_for_peer(self._lease_s)
                    self._dialer.ring_job = message.job_id if message.options.ring else None
                    self._dialer.timeout_s = message.options.heartbeat_timeout_s
                    self._link_acceptor.timeout_s = 2 * message.options.heartbeat_timeout_s
                case SinkReply():
                    self._driver_calls.replied(message)
                case _:
                    self._follow(self._core.handle(message))
                    if self._core.life is Life.LEAVING:
                        return
        orphaned()

    def _lost_link(self, worker: int, epoch: int) -> None:
        self._follow(self._core.lost_link(worker, epoch))

    def _follow(self, commands: list[WorkerCommand]) -> None:
        for command in commands:
            match command:
                case OpenTasks():
                    assign = command.assign
                    threading.Thread(target=self._open, args=(assign,), name="open", daemon=True).start()
                case CloseLinks():
                    for host in self._services.hosts.values():
                        host.post(partial(host.relink, command.workers))
                    if self._services.pools is not None:
                        self._services.pools.relink(command.workers)
                    if self._send_loop is not None:
                        self._send_loop.relink(command.workers)
                case TellTasks():
                    if isinstance(command.message, Members):
                        for shared in self._shared_by_node():
                            shared.follow(command.message.members)
                    if isinstance(command.message, Drain):
                        self._stuck.draining = True
                    if isinstance(command.message, Techniques):
                        self._switch(command.message.tail)
                    if isinstance(command.message, Committed) and self._journals is not None:
                        self._journals.committed(command.message.offsets)
                    for host in self._services.hosts.values():
                        host.handle(command.message)
                case Reply():
                    self._services.tell(command.message)
                case Exit():
                    self._leave()

    def _shared_by_node(self) -> list[Pools | NodeUplinks]:
        return [one for one in (self._services.pools, self._services.node_uplinks) if one is not None]

    def _beat(self) -> None:
        while self._core.life is not Life.LEAVING:
            arm_watchdog(self._beatless_s)
            time.sleep(BEAT_S)
            arm_watchdog(self._lease_s + GRACE_S)  # a send may block while the driver is paused
            self._services.tell(Alive(self.worker, self.epoch))
            self._dialer.end_cut_links()
            logs = self._logs.take()
            if logs is not None:
                self._services.tell(logs)
            self._stuck.look(tuple(self._services.hosts.values()), system_clock())
            self._send_metrics()
            self._tell_opening()
            if system_clock() - self._heard_ns > self._lease_s * SECOND_NS:
                orphaned()
        disarm_watchdog()

    def _detach(self, host: TaskHost) -> None:
        assert self._runners is not None
        self._runners.detach(host)

    @property
    def _beatless_s(self) -> float:
        """How long this worker may go without a heartbeat. By then the driver has declared it dead."""
        timeout_s = 0.0 if self._setup is None else self._setup.options.heartbeat_timeout_s
        return max(HELD_S, timeout_s) + GRACE_S

    def _tell_opening(self) -> None:
        """Report a task that takes long to open: a user's ``open`` may wait for something that never comes."""
        opening = None if self._opener is None else self._opener.opening
        if opening is not None and system_clock() - opening[1] > SLOW_OPEN_S * SECOND_NS:
            self._services.tell(Opening(opening[0], (system_clock() - opening[1]) / SECOND_NS))

    def _send_metrics(self) -> None:
        snapshots = [snapshot for host in tuple(self._services.hosts.values()) for snapshot in host.snapshots]
        usage = resource.getrusage(resource.RUSAGE_SELF)
        self._services.tell(Metrics(snapshots, usage.ru_utime + usage.ru_stime))

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
        self._services.use_plan(plan)
        why = why_no_rings(links_of(plan, self.worker), file_limit(), free_shared_bytes())
        if why is not None and self._dialer.ring_job is not None:
            self._dialer.ring_job = None
            self._say_no_ring(why)
        job = setup.job_id, setup.elapsed_ns, setup.first_epoch
        opener = self._opener = Opener(plan, self.worker, self.epoch, *job, self._driver_calls.call)
        opener.open_limit = lambda limit: open_limit(limit, self._limits, tasks=tasks_of(plan, limit))
        journals = TaskJournals(plan, self.epoch)
        opener.open_journal = journals.open
        if options.record is not None:
            header = describe(plan, setup.job_id, self.worker, self.epoch, system_clock)
            self._recorder = Recorder(str(options.record), header, plan, system_clock, self._say_no_recording)
        rng = Random(os.urandom(16))
        context = WorkerContext(
            plan,
            self.worker,
            self.epoch,
            options.ledger,
            system_clock,
            rng,
            observer=self._recorder,
            guard=threading.Lock,
            tail=assign.tail,
            cancelled=self._services.cancellations.emissions,
            feedback_budget=FeedbackBudget(len(set(plan.home)), options.feedback_share),
            say=self._services.say,
            sightings=self._core.sightings,
        )
        hosts: dict[int, TaskHost] = {}
        for leader, members in plan.units(self.worker):
            bodies = opener.open(leader, members, dict(assign.starts))
            task = assemble(leader, bodies, context)
            if assign.draining:
                task.handle(Drain())
            kinds = {plan.operators[plan.operator_of[member]].operator.kind for member in members}
            host = TaskHost(task, self._services, Kind.BLOCKING if Kind.BLOCKING in kinds else min(kinds, key=_rank))
            hosts[leader] = host
            for reader in bodies.readers.values():
                if hasattr(reader, "wake_by"):
                    reader.wake_by(host.request_turn)
        journals.committed({split: position.offset for split, position in assign.starts.items()})
        self._journals = journals
        runners = self._runners = Runners(self.runner_failed)
        pools = Pools(
            self._services, plan, setup.job_id, hosts, context.queues, runners.shared, runners.new, self._say_no_queue
        )
        self._services.pools, self._services.hosts = pools, hosts
        runners.start(hosts.values(), plan, opener)
        pools.start()
        self._switch(assign.tail)
        if self._core.life is not Life.LEAVING:
            set_aside()

    def _switch(self, tail: Tail) -> None:
        """Switch to these techniques. Hedging is switched by the sources, which get the message themselves."""
        assert self._services.pools is not None
        self._schedule(tail.send)
        self._services.pools.switch(tail.shared_queues)

    def _schedule(self, scheduler: SendScheduler | None) -> None:
        """Send tuples for other workers in the order of ``scheduler``; with None, each task sends its own at once."""
        setup, plan = self._setup, self._plan
        assert setup is not None and plan is not None
        bytes_per_s = setup.options.link_bytes_per_s
        if self._send_loop is None:
            if scheduler is None and bytes_per_s is None:
                return
            most, rng = setup.options.outgoing_tuples, Random(os.urandom(16))
            hosts = self._services.hosts.values()
            assert self._runners is not None
            runner = self._runners.for_send_loop(hosts)
            budget = None if bytes_per_s is None else UplinkBudget(bytes_per_s)
            self._send_loop = SendLoop(runner, hosts, plan, self._services, most_tuples=most, budget=budget, rng=rng)
            if bytes_per_s is not None and setup.options.link_scope == NODE:
                uplinks = NodeUplinks(self._services, plan, bytes_per_s, self._send_loop, self._say_own_part)
                self._services.node_uplinks = uplinks
                uplinks.follow(self._core.membership.members)
        self._send_loop.switch(scheduler)

    # -- the end

    def runner_failed(self, error: BaseException) -> None:
        """A runner has ended with an error: this worker was replaced, a user's function raised, or there is a bug."""
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
            self._services.tell(logs)
        try:
            self._services.tell(Failed(self.worker, self.epoch, error))
        except Exception as why_not:  # it cannot be pickled, or is too large
            short = f"{type(error).__name__}: {shorten(str(error))}: it cannot be sent as it is: {message_of(why_not)}"
            self._services.tell(Failed(self.worker, self.epoch, TailraceError(short)))

    def _leave(self) -> None:
        for shared in self._shared_by_node():
            shared.close()
        for host in self._services.hosts.values():
            host.post(host.snapshot)
        if self._runners is not None:
            self._runners.stop(CLOSE_S)
        self._dialer.close()
        if self._recorder is not None:
            self._recorder.close()
        problems = self._opener.close() if self._opener is not None else []
        for problem in problems:
            print(problem)
        self._send_metrics()
        logs = self._logs.take()
        if logs is not None:
            self._services.tell(logs)
        self._link_acceptor.close()
        self._services.cancellations.close()
        self._connection.close()


def _rank(kind: Kind) -> int:
    """Ranks AUTO first: a unit is AUTO if one of its operators is, because that one may have long calls."""
    return 0 if kind is Kind.AUTO else 1


def orphaned() -> None:
    """End this process at once: its driver is gone."""
    sweep_own()
    os._exit(EXIT_ORPHANED)


def serve(bootstrap: Bootstrap) -> None:
    """Run a worker until the coordinator dismisses it. Raises Refused or OSError if it is not admitted."""
    prepare_process()
    with captured() as logs:
        WorkerProcess(bootstrap, logs).run()
