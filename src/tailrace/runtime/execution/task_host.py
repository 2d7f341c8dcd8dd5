"""A task's host connects a pure task with the world: its links in and out, the tasks beside it, and its clockwork.

It belongs to one runner at a time. Others may only append to its queue and its mail, and wake its runner.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from threading import Thread
from typing import Any, Protocol

from tailrace.clock import MICROSECOND_NS, MILLISECOND_NS, system_clock
from tailrace.core.failures import traceback_of
from tailrace.core.feedback.receiver import FeedbackReceiver
from tailrace.core.protocol.acks import Folds
from tailrace.core.protocol.messages import Flush, ToWorker
from tailrace.core.protocol.sightings import Sightings
from tailrace.core.queues.rounds import Rounds, bundle_limit
from tailrace.core.routing.router import FeedbackMessage, urgent
from tailrace.core.tasks.base import Task
from tailrace.core.tasks.deferred import BatchTask
from tailrace.core.tasks.source import SourceTask
from tailrace.core.tasks.stages import CommitSinkStage
from tailrace.errors import ProtocolError, TaskError
from tailrace.metrics.counters import TaskSnapshot
from tailrace.runtime.connectors.fingerprint import fingerprint
from tailrace.runtime.current_task import running
from tailrace.runtime.execution.runner import IDLE_NS, Runner
from tailrace.runtime.execution.sender import Neighbours, Sender
from tailrace.runtime.links.channels import Channel
from tailrace.runtime.links.frames import ACKS, BUNDLES, NOTES, decode_bundles, decode_folds, decode_notes
from tailrace.runtime.links.in_links import BundleLinks, InLinks, Membership, PatientLinks
from tailrace.runtime.links.link import InLink
from tailrace.runtime.send_order.send_loop import Outgoing
from tailrace.runtime.shared_queues.node_queue import Ear
from tailrace.runtime.shared_queues.pool import Pool
from tailrace.topology import Kind

SLICE_NS = 500 * MICROSECOND_NS
"""How long a task works before what it has sent leaves, and others on its runner get their turn."""

READ_AT_ONCE = 256
"""Roots that a source reads before what they have led to leaves."""

EMIT_NS = 20 * MICROSECOND_NS
"""About what it takes to emit a root that was read: the rest of a reading is the user's iterator."""

REPORT_NS = 25 * MILLISECOND_NS
SNAPSHOT_NS = 200 * MILLISECOND_NS
OVERDUE_NS = 1000 * MILLISECOND_NS

UNCOUNTED_CALLS = 64
"""Calls of a task with a runner of its own that are counted together: to count one costs as much as to run it."""

STRAIGHT_ON = 16
STRAIGHT_ON_NS = 100 * MILLISECOND_NS
"""How often, and for how long, a task that has a runner to itself goes on with what is queued before it reads links."""

LONG_COMMIT_NS = 2 * MILLISECOND_NS
SHORT_COMMITS = 16
"""A task whose last commits were all shorter than that carries them out itself. Any other has a thread do it, which
costs less than a tenth of that, so that nobody waits for a disk."""

LONG_CALL_NS = 1 * MILLISECOND_NS
LONG_CALLS = 3
"""A task on a shared runner that is found this often with calls this long on average gets a runner of its own."""


class Surrounding(Neighbours, Membership, Protocol):
    """What a host needs to know of its worker."""

    def tell(self, message: Any) -> None:
        """Say something to the coordinator."""
        ...

    worker: int
    epoch: int

    @property
    def sightings(self) -> Sightings:
        """Of what comes from other workers."""
        ...


@dataclass
class _Due:
    """When the next of each recurrent duty is due."""

    report_ns: int = 0
    snapshot_ns: int = 0
    overdue_ns: int = 0


class TaskHost:
    """Hosts one unit."""

    def __init__(self, task: Task, neighbours: Surrounding, kind: Kind) -> None:
        self.task = task
        self.kind = kind
        self.runner: Runner | None = None
        self.shared = False  # the runner has other tasks too
        self.wants_own_runner = False  # its calls have proved long
        self.busy_since_ns = 0  # when it was last given something to run; 0: it has come back
        self.bundle_bytes = 1  # of late, on average; written by neighbours too, which does no harm
        self.snapshots: list[TaskSnapshot] = []
        self.waiting: set[Runner] = set()  # runners of senders that found the queue full
        self.pool: Pool | None = None  # with whom it draws from one queue
        self._near = neighbours
        self._mail: deque[Callable[[], None]] = deque()
        self._patient: PatientLinks | None = None  # those of a source, to whom all tasks report
        if isinstance(task, SourceTask):
            self._patient = PatientLinks(neighbours, lambda: task.in_a_hurry)
        self._in = self._patient or InLinks(neighbours)  # what nothing holds back: acks and feedback
        self._rounds = Rounds(lambda: len(task.queue), lambda: bundle_limit(self.bundle_bytes))
        receive = partial(Task.receive, task)
        self._bundles_in = BundleLinks(neighbours, self._rounds, self.read_bundles, receive)  # unless the pool reads
        self._to_be_read = False  # there are links that have been paused, and are no more
        self._sender = Sender(task, neighbours, self.post)
        self._ear: Ear | None = None
        self._blocked_since_ns = 0
        self._long_calls = 0
        self._due = _Due()
        self._short_commits = 0  # in a row
        self._overfull = False  # so much has come during a commit that the task must wait for its end
        self._ended_ns = 0  # when it last stopped working
        self.worked_ns = 0  # wall time, since its runner last asked
        self.cpu_ns = 0  # the runner's share of it
        self.label = task.label

    # -- from any thread

    def post(self, action: Callable[[], None]) -> None:
        """Have this done by the thread that runs the task."""
        self._mail.append(action)
        self.wake()

    def handle(self, message: ToWorker) -> None:
        self.post(lambda: self._handle(message))

    def take_notes(self, notes: list[FeedbackMessage], said_ns: int) -> None:
        """A task beside this one reports. Whoever holds no tuples mostly has no use for it before the next one."""
        self._mail.append(partial(self.task.hear, notes, said_ns))
        if self.task.holds or urgent(notes):
            self.wake()

    def take_acks(self, folds: Folds, sent_ns: int) -> None:
        """A task beside this source has run something. The source mostly has no use for it before it works anyway."""
        self._mail.append(partial(self.apply, folds, sent_ns))
        if self._patient is None or self._patient.in_a_hurry:
            self.wake()

    def wake(self) -> None:
        runner = self.runner
        if runner is not None:
            runner.wake()

    def look_again(self) -> None:
        """Have the task try to send what it could not. Its runner may be the one that calls, and about to sleep."""
        self.post(_nothing)

    def wake_waiting(self) -> None:
        """Senders that found the queue full may look again."""
        while self.waiting:
            try:
                runner = self.waiting.pop()
            except KeyError:
                return  # another task of the pool was faster
            runner.wake()

    @property
    def since_ns(self) -> int:
        """When the call began that has been under way for longest; 0: none is."""
        return 0 if self.runner is None else self.runner.since_ns(self)

    @property
    def idle(self) -> bool:
        """Whether it sleeps, and would run a tuple if it were woken for one."""
        return self.runner is not None and self.runner.idle and not self._blocked_since_ns

    @property
    def rounds(self) -> Rounds:
        """Which senders to this task take part in."""
        pool = self.pool
        return self._rounds if pool is None else pool.rounds

    @property
    def held_back(self) -> bool:
        """Whether the task must wait until what it has sent is taken."""
        return bool(self._blocked_since_ns)

    @property
    def has_news(self) -> bool:
        if self._mail:
            return True
        receiving = self.task.receiving
        waiting = bool(self.task.queue) or (receiving is not None and receiving.due(idle=True))
        return waiting and not (self._blocked_since_ns or self._overfull)

    # -- moving between runners

    def moved_to(self, runner: Runner | None) -> None:
        self._sender.moved_to(runner)
        self._in.moved_to(runner)
        self._bundles_in.moved_to(runner)
        if runner is not None:
            self.runner = runner
        if self.pool is not None:
            self.listen()

    def move_out(self) -> None:
        """Have a runner of its own, if it has none."""
        self.wants_own_runner = self.shared

    # -- sharing a queue

    def share(self, pool: Pool | None) -> None:
        """Draw from one queue with others from now on, or from one of its own. Between two calls, in its own thread.

        Whoever has put something into a queue asks afterwards whom to wake. So the pool is there before the task draws
        from its queue, and until after it has left that.
        """
        left = self.pool
        if pool is left:
            return
        if pool is not None:
            self.pool = pool
            self.task.draw_from(pool.queue)
            pool.joined(self, self._bundles_in.give())
        elif left is not None:
            self.task.draw_from(None)
            self.pool = None
            left.left(self)
        self.listen()

    def keep(self, links: list[InLink]) -> None:
        """These links bring bundles for this task. The pool reads them no more."""
        pool = self.pool
        if pool is not None:
            pool.post(partial(pool.keep, self, links))
        else:
            self._bundles_in.keep(links)

    def listen(self) -> None:
        """To the bell of the queue that the pool draws from now. Of hosts on a shared runner one does."""
        if self._ear is not None:
            self._ear.close()
            self._ear = None
        pool = self.pool
        node = None if pool is None else pool.node
        if pool is None or node is None or self.runner is None or (self.shared and pool.hosts[0] is not self):
            return
        bell = node.bell()
        if bell is not None:
            self._ear = Ear(node, self.runner, bell)
            self.hear_bell(not self._blocked_since_ns)

    def hear_bell(self, able: bool) -> None:
        """Whether it could run what it is woken for."""
        if self._ear is not None:
            self._ear.listen(able)

    # -- receiving

    def take_link(self, channel: Channel, kind: str, worker: int, epoch: int) -> None:
        """A peer has connected."""
        pool = self.pool
        if kind != "bundles":
            self._in.take(channel, worker, epoch, partial(self._on_news, channel.ring is not None))
        elif pool is not None:
            pool.post(partial(pool.take_link, self, channel, worker, epoch))
        else:
            self._bundles_in.take(channel, worker, epoch)

    def read_bundles(self, kind: int, payload: memoryview) -> list[Any]:
        """A frame has come, with these in it."""
        if kind != BUNDLES:
            raise ProtocolError(f"frame of another kind: kind={kind} expected={BUNDLES}; are versions mixed?")
        bundles = self.decode(payload)
        self.bundle_bytes = (self.bundle_bytes + len(payload) // len(bundles)) // 2 + 1
        return bundles

    def decode(self, payload: memoryview) -> list[Any]:
        try:
            bundles = decode_bundles(payload)
        except ProtocolError:
            raise
        except Exception as error:  # the user's class says no, here or at the next try
            operator, task = self.label.rsplit("/", 1)
            raise TaskError(operator, int(task), "(while reading it)", traceback_of(error)) from None
        self._near.sightings.came(bundles)
        return bundles

    def _on_news(self, near: bool, kind: int, payload: memoryview) -> None:
        if kind == NOTES and self.task.lines:
            self._on_notes(near, payload)
        elif kind == ACKS and isinstance(self.task, SourceTask):
            folds, sent_ns = decode_folds(payload)
            self.apply(folds, sent_ns if near else system_clock())
        else:
            raise ProtocolError(f"frame of another kind: kind={kind} task={self.label}; are versions mixed?")

    def _on_notes(self, near: bool, payload: memoryview) -> None:
        began_ns = system_clock()
        notes, said_ns = decode_notes(payload)
        self.task.spent_on_feedback(began_ns)
        self.task.hear(notes, said_ns if near else None)

    def apply(self, folds: Folds, sent_ns: int) -> None:
        assert isinstance(self.task, SourceTask)
        self.task.apply(*folds, sent_ns)

    # -- working

    def work(self, now_ns: int) -> None:
        """Do what is to be done, for about a slice."""
        while self._mail:
            self._mail.popleft()()
        if self._patient is not None:
            self._patient.read()
        task = self.task
        if task.sinks:
            self._commit_due(now_ns)
        if self._blocked_since_ns:
            self._flush()
            if self._blocked_since_ns:
                if self.pool is not None and task.queue:
                    self.pool.wake(self, 1)  # in its place
                    node = self.pool.node
                    if node is not None:
                        node.pass_on()
                self._recurrent(now_ns)
                return
        if self._overfull:
            self._flush()
            self._recurrent(now_ns)
            return
        self._to_be_read = False
        self._step(task, now_ns)
        steps = 1
        while steps < STRAIGHT_ON and self._may_go_on(task, now_ns):
            self._step(task, now_ns)
            steps += 1
        self._recurrent(now_ns)

    def _may_go_on(self, task: Task, now_ns: int) -> bool:
        """Whether there is more to run, and nothing on its links or in its mail that could matter before."""
        return (
            task.runnable
            and not (self.shared or self._mail or self._to_be_read or self._blocked_since_ns)
            and not (task.lines or task.sinks)
            and self._ended_ns - now_ns < STRAIGHT_ON_NS
            and not isinstance(task, SourceTask)
        )

    def _step(self, task: Task, now_ns: int) -> None:
        """Run tuples for about a slice, and have what they lead to leave."""
        receiving = task.receiving
        if receiving is not None and self._may_look_up(task, receiving):
            receiving.look_up()
            self._sender.flush_notes()  # now: the next call may be long
        ready_ns = task.ready_ns if isinstance(task, SourceTask) else None
        if task.runnable or (ready_ns is not None and ready_ns <= now_ns):
            self._call(self._run, task, ready_ns, now_ns)
            if receiving is not None and receiving.hears_one and receiving.due(not task.runnable):
                receiving.look_up()
                self._sender.flush_notes()  # before all else: the sender may have waited for this
        if task.told:
            self._tell(task.told)
        self._flush()
        self._make_room()

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call what may not return: meanwhile another thread may take the other tasks of a shared runner."""
        running.label = self.label
        self.busy_since_ns = started_ns = system_clock()
        seat = None
        if self.shared:
            assert self.runner is not None
            seat = self.runner.seat
            seat.release()
        try:
            function(*arguments)
        finally:
            if seat is not None:
                seat.acquire()
            self._ended_ns = system_clock()
            self.busy_since_ns = 0
            self.worked_ns += self._ended_ns - started_ns
            running.label = ""

    def _may_look_up(self, task: Task, receiving: FeedbackReceiver) -> bool:
        runnable = task.runnable
        return receiving.due(not runnable) and not (receiving.patient and task.tap is None and runnable)

    def _tell(self, told: set[Task]) -> None:
        """Halves of these tasks have something to hear."""
        while told:
            host = self._near.host_of(told.pop().number)
            if host is not None:
                host.wake()

    def _run(self, task: Task, ready_ns: int | None, now_ns: int) -> None:
        if task.runnable:
            counters = task.wirings[0].counters
            calls, busy_ns = counters.received, counters.busy_ns
            task.run(SLICE_NS)
            if self.shared or len(task.wirings[0].durations) >= UNCOUNTED_CALLS:
                task.settle()
            if self.shared and self.kind is Kind.AUTO:
                self._note_length(counters.received - calls, counters.busy_ns - busy_ns)
        if isinstance(task, SourceTask) and ready_ns is not None and ready_ns <= now_ns:
            began_ns = system_clock()
            read = task.read(min(READ_AT_ONCE, self._sender.limit))
            if self.shared and self.kind is Kind.AUTO:
                self._note_length(read, system_clock() - began_ns - read * EMIT_NS)

    def _note_length(self, calls: int, busy_ns: int) -> None:
        if busy_ns > LONG_CALL_NS * max(calls, 1):
            self._long_calls += 1
            if self._long_calls >= LONG_CALLS:
                self.wants_own_runner = True
                for host in self.pool.hosts if self.pool is not None else ():
                    host.wants_own_runner = host.shared
        elif self._long_calls:
            self._long_calls -= 1

    def _commit_due(self, now_ns: int) -> None:
        for sink in self.task.sinks:
            deadline_ns = sink.deadline_ns
            if deadline_ns is None or deadline_ns > now_ns:
                continue
            if self._commits_apart:
                carry_out = sink.begin_commit()
                name = f"{self.label} commit"
                Thread(target=self._commit, args=(sink, carry_out), name=name, daemon=True).start()
            else:
                self._call(sink.commit)
                self._count_commit(self._ended_ns - now_ns)
        self._overfull = any(sink.overfull for sink in self.task.sinks)

    def _commit(self, sink: CommitSinkStage, carry_out: Callable[[], None]) -> None:
        """In a thread of its own: whatever comes of it, the task's thread deals with it."""
        running.label = self.label
        began_ns = system_clock()
        try:
            carry_out()
        except BaseException as error:
            self.post(partial(_raise, error))
        else:
            self.post(partial(self._committed, sink, system_clock() - began_ns))

    def _committed(self, sink: CommitSinkStage, took_ns: int) -> None:
        self._call(sink.end_commit)
        self._count_commit(took_ns)

    @property
    def _commits_apart(self) -> bool:
        return self._short_commits < SHORT_COMMITS

    def _count_commit(self, took_ns: int) -> None:
        self._short_commits = 0 if took_ns > LONG_COMMIT_NS else self._short_commits + 1

    def _make_room(self) -> None:
        pool, rounds = self.pool, self._rounds
        if pool is not None:
            pool.make_room()
        elif (rounds.behind or self.waiting) and rounds.due:
            if rounds.begin(system_clock()):
                self._to_be_read = self._bundles_in.admit()
            self.wake_waiting()

    def _handle(self, message: ToWorker) -> None:
        if isinstance(message, Flush) and self._commits_apart:
            for sink in self.task.sinks:
                sink.hurry()
        else:
            self._call(self.task.handle, message)

    def _flush(self) -> None:
        """Send what the task has left, as far as receivers take it. A task whose output stays is held back."""
        if self._sender.flush():
            if not self._blocked_since_ns:
                self._blocked_since_ns = system_clock()
                self.hear_bell(False)
        elif self._blocked_since_ns:
            self.task.wirings[0].counters.blocked_ns += system_clock() - self._blocked_since_ns
            self._blocked_since_ns = 0
            self.hear_bell(True)

    def route(self, outgoing: Outgoing | None) -> None:
        """Have what leaves for other workers sent by the send loop, or by this task."""
        self._sender.route(outgoing)

    def relink(self, workers: frozenset[int]) -> None:
        """These workers have been replaced: links with them are of no use any more."""
        self._sender.relink(workers)
        self._in.relink(workers)
        self._bundles_in.relink(workers)

    # -- clockwork

    def wake_ns(self, now_ns: int) -> int:
        """When this host wants to work next, if nothing happens before."""
        task = self.task
        if self._mail or (task.runnable and not (self._blocked_since_ns or self._overfull)):
            return now_ns
        wake_ns = min(now_ns + IDLE_NS, max(self._due.snapshot_ns, now_ns))
        for sink in task.sinks:
            deadline_ns = sink.deadline_ns
            if deadline_ns is not None:
                wake_ns = min(wake_ns, deadline_ns)
        if isinstance(task, SourceTask):
            wake_ns = min(wake_ns, self._source_wake_ns(task, now_ns))
        if self._blocked_since_ns or self._sender.waits_for_connection:
            return min(wake_ns, now_ns + 2 * MILLISECOND_NS)
        if task.receiving is not None and task.receiving.pending:
            wake_ns = min(wake_ns, max(now_ns, task.receiving.due_ns(idle=True)))
        if isinstance(task, BatchTask) and task.deadline_ns:
            wake_ns = min(wake_ns, task.deadline_ns)
        return wake_ns

    def _source_wake_ns(self, task: SourceTask, now_ns: int) -> int:
        wake_ns = now_ns + IDLE_NS
        if task.ledger.pending or task.ledger.moved or not task.settled:
            wake_ns = max(self._due.report_ns, now_ns)
        if not (self._blocked_since_ns or self._overfull):
            for due_ns in (task.ready_ns, task.hedge_ns):
                if due_ns is not None:
                    wake_ns = min(wake_ns, due_ns)
        return wake_ns

    def _recurrent(self, now_ns: int) -> None:
        task, due = self.task, self._due
        if isinstance(task, SourceTask):
            if now_ns >= due.report_ns or task.stuck:
                due.report_ns = now_ns + REPORT_NS
                for message in task.reports(self._near.worker, self._near.epoch, fingerprint):
                    self._near.tell(message)
            if now_ns >= due.overdue_ns:
                due.overdue_ns = now_ns + OVERDUE_NS
                if task.check_overdue(now_ns):
                    self._near.renew()
        if now_ns >= due.snapshot_ns:
            due.snapshot_ns = now_ns + SNAPSHOT_NS
            self.snapshot()

    def snapshot(self) -> None:
        """Counters as they are now, for whoever sends them on."""
        self.task.settle()
        now_ns = system_clock()
        counters = self.task.counters
        tap = self.task.tap
        counts = tap is None or tap.sharing[0] is self.task  # a queue is counted once
        counters[0].queued = len(self.task.queue) if counts else 0
        node = None if self.pool is None else self.pool.node
        if counts and node is not None:
            counters[0].queued += node.queued if node.group.maker == self._near.worker else 0
        counters[0].cpu_ns = self.cpu_ns
        backlog, largest = self._sender.backlog
        counters[0].backlog, counters[0].largest_backlog = backlog, max(counters[0].largest_backlog, largest)
        self.task.show()
        for one in counters:
            one.at_ns = now_ns
        self.snapshots = [one.snapshot() for one in counters]

    def show_busy(self, now_ns: int) -> None:
        """The same in the place of a task that is in a long call, and has been busy for as long."""
        counters = self.task.counters
        counters[0].queued, counters[0].at_ns = len(self.task.queue), now_ns
        leader, *fused = (one.snapshot() for one in counters)
        self.snapshots = [replace(leader, busy_ns=leader.busy_ns + now_ns - self.busy_since_ns), *fused]


def _raise(error: BaseException) -> None:
    raise error


def _nothing() -> None:
    """To be woken is enough."""
