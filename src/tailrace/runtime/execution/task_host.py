"""A host connects one pure task with its worker: links in and out, neighbouring tasks, commits, recurring duties.

It belongs to one runner at a time. Other threads may only append to the task's queue and to the host's mail, and wake
its runner.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from tailrace.clock import MICROSECOND_NS, MILLISECOND_NS, system_clock
from tailrace.core.bundles import FeedbackMessage, any_urgent
from tailrace.core.feedback.receiver import FeedbackReceiver
from tailrace.core.protocol.acks import Folds
from tailrace.core.protocol.messages import Flush, ToWorker
from tailrace.core.queues.rounds import Rounds
from tailrace.core.tasks.base import Task
from tailrace.metrics.counters import TaskSnapshot
from tailrace.runtime.current_task import running
from tailrace.runtime.execution.commits import Commits
from tailrace.runtime.execution.duties import Duties, snapshots_in_call, snapshots_of
from tailrace.runtime.execution.ports import OutputQueue, SharedInput, WorkerServices
from tailrace.runtime.execution.runner import IDLE_NS, Runner
from tailrace.runtime.execution.sender import Sender
from tailrace.runtime.execution.task_input import TaskInput
from tailrace.runtime.links.channels import Channel
from tailrace.runtime.links.event_loop import EventLoop
from tailrace.topology import Kind

SLICE_NS = 500 * MICROSECOND_NS
"""How long a task works before its output leaves, and others on its runner get their turn."""

READ_AT_ONCE = 256
"""Roots that a source reads before the bundles they led to leave."""

EMIT_NS = 20 * MICROSECOND_NS
"""About what it takes to emit a root. The rest of the time that a read takes is the user's iterator."""

RETRY_NS = 2 * MILLISECOND_NS
"""How soon a host tries again whose output cannot leave."""

UNCOUNTED_CALLS = 64
"""Calls of a task with a runner of its own that are counted together: to count one costs as much as to run it."""

STRAIGHT_ON = 16
STRAIGHT_ON_NS = 100 * MILLISECOND_NS
"""How often, and for how long, a task with a runner of its own goes on with queued tuples before it reads links."""

LONG_CALL_NS = 1 * MILLISECOND_NS
LONG_CALLS = 3
"""A task on a shared runner that is found 3 times with calls longer than 1 ms on average gets a runner of its own."""


class TaskHost:
    """Hosts one unit: a leading task with the tasks fused to it. It is the unit's ``Mailbox``, and a ``RunnableTask``.

    Law: only the thread of its runner works on it, or one that holds the run lock of that runner.
    """

    def __init__(self, task: Task, services: WorkerServices, kind: Kind) -> None:
        self.task = task
        self.number = task.number
        self.label = task.label
        self.kind = kind
        self.runner: Runner | None = None
        self.shared = False  # the runner has other tasks too
        self.wants_own_runner = False  # its calls have proved long
        self.busy_since_ns = 0  # when its present call began; 0: it is in none
        self.worked_ns = 0  # wall time since its runner last asked
        self.cpu_ns = 0  # its share of the runner's CPU time
        self.bundle_bytes = 1  # a running average; written by neighbours too, and a lost update does no harm
        self.waiting: set[EventLoop] = set()  # loops of senders that found the queue full
        self.shared_input: SharedInput | None = None  # in place of its own queue and links
        self.snapshots: list[TaskSnapshot] = []
        self.input = TaskInput(self, services)
        self._services = services
        self._mail: deque[Callable[[], None]] = deque()
        self._deferred = self.input.deferred
        self._make_room = self.input.make_room
        self._links_resumed = False  # paused links have been resumed, and not been read since
        self._sender = Sender(task, services, self.post)
        self._commits = Commits(task, self.label, self._call, self.post)
        self._overfull = False  # so much has come during a commit that the task must wait for its end
        self._duties = Duties(task, services, self.snapshot)
        self._do_duties = self._duties.do_due
        self._blocked_since_ns = 0  # when its output was last held back; 0: it is not
        self._long_calls = 0
        self._ended_ns = 0  # when it last stopped working

    # -- from any thread

    def post(self, action: Callable[[], None]) -> None:
        """Carry this out in the thread that runs the task."""
        self._mail.append(action)
        self.wake()

    def handle(self, message: ToWorker) -> None:
        """The coordinator has sent a message."""
        self.post(lambda: self._handle(message))

    def receive_feedback(self, messages: list[FeedbackMessage], sent_ns: int) -> None:
        """Feedback from a task of this worker. A task that holds no tuples mostly needs it only for its next one."""
        self._mail.append(partial(self.task.hear, messages, sent_ns))
        if self.task.holds_tuples or any_urgent(messages):
            self.wake()

    def receive_acks(self, folds: Folds, sent_ns: int) -> None:
        """Acks from a task of this worker. A source mostly needs them only when it works anyway."""
        self._mail.append(partial(self.apply, folds, sent_ns))
        if self._deferred is None or self._deferred.needs_acks_now:
            self.wake()

    def wake(self) -> None:
        runner = self.runner
        if runner is not None:
            runner.wake()

    def request_turn(self) -> None:
        """Have the host work once more, even if its runner is the caller and about to sleep."""
        self.post(_nothing)

    @property
    def oldest_call_ns(self) -> int:
        """When the oldest call that is under way began; 0: none is."""
        return 0 if self.runner is None else self.runner.oldest_call_ns(self)

    @property
    def idle(self) -> bool:
        """Whether it sleeps, and would run a tuple if it were woken for one."""
        return self.runner is not None and self.runner.idle and not self._blocked_since_ns

    @property
    def rounds(self) -> Rounds:
        """The rounds of admission that senders to this task take part in."""
        shared = self.shared_input
        return self.input.rounds if shared is None else shared.rounds

    @property
    def held_back(self) -> bool:
        """Whether the task must wait until its output leaves."""
        return bool(self._blocked_since_ns)

    @property
    def has_work(self) -> bool:
        if self._mail:
            return True
        receiving = self.task.feedback_receiver
        waiting = bool(self.task.queue) or (receiving is not None and receiving.due(idle=True))
        return waiting and not (self._blocked_since_ns or self._overfull)

    def snapshot_while_busy(self, now_ns: int) -> None:
        """Take a snapshot in place of a task that is in a long call."""
        self.snapshots = snapshots_in_call(self.task, self.busy_since_ns, now_ns)

    # -- runners

    def moved_to(self, runner: Runner | None) -> None:
        self._sender.moved_to(runner)
        self.input.moved_to(runner)
        if runner is not None:
            self.runner = runner
        if self.shared_input is not None:
            self.shared_input.listen()

    def request_own_runner(self) -> None:
        """Have the runner let it go after its turn, if that is a shared one."""
        self.wants_own_runner = self.shared

    def leave_shared_runner(self) -> None:
        self.shared = False
        if self.shared_input is not None:
            self.shared_input.leave_shared_runner()

    # -- links

    def take_link(self, channel: Channel, kind: str, worker: int, epoch: int) -> None:
        """Read this link, which a peer has opened."""
        if kind == "bundles" and self.shared_input is not None:
            self.shared_input.take_link(channel, worker, epoch)
        else:
            self.input.take_link(channel, kind, worker, epoch)

    def relink(self, workers: frozenset[int]) -> None:
        """These workers have been replaced: close links with their former epochs."""
        self._sender.relink(workers)
        self.input.relink(workers)

    def send_through(self, output: OutputQueue | None) -> None:
        """Have a send loop send the bundles for other workers, or the task itself if None."""
        self._sender.send_through(output)

    def apply(self, folds: Folds, sent_ns: int) -> None:
        self.task.apply(*folds, sent_ns)

    # -- working

    def work(self, now_ns: int) -> None:
        """Do what there is to do, for about a slice."""
        while self._mail:
            self._mail.popleft()()
        if self._deferred is not None:
            self._deferred.read()
        task = self.task
        if task.sinks:
            self._overfull = self._commits.begin_due(now_ns)
        if self._blocked_since_ns:
            self._flush()
            if self._blocked_since_ns:
                if self.shared_input is not None and task.queue:
                    self.shared_input.wake_another()
                self._do_duties(now_ns)
                return
        if self._overfull:
            self._flush()
            self._do_duties(now_ns)
            return
        self._links_resumed = False
        self._step(task, now_ns)
        steps = 1
        while steps < STRAIGHT_ON and self._may_go_on(task, now_ns):
            self._step(task, now_ns)
            steps += 1
        self._do_duties(now_ns)

    def _may_go_on(self, task: Task, now_ns: int) -> bool:
        """Whether there is more to run, and nothing on the links or in the mail that could matter before."""
        return (
            task.runnable
            and not (self.shared or self._mail or self._links_resumed or self._blocked_since_ns)
            and not (task.feedback_edges or task.sinks)
            and self._ended_ns - now_ns < STRAIGHT_ON_NS
            and not task.owns_roots
        )

    def _step(self, task: Task, now_ns: int) -> None:
        """Run tuples for about a slice, and send what they led to."""
        receiving = task.feedback_receiver
        if receiving is not None and self._may_look_up(task, receiving):
            receiving.process_pending()
            self._sender.flush_feedback()  # now: the next call may be long
        ready_ns = task.ready_ns if task.owns_roots else None
        if task.runnable or (ready_ns is not None and ready_ns <= now_ns):
            self._call(self._run, task, ready_ns, now_ns)
            if receiving is not None and receiving.has_one_sender and receiving.due(not task.runnable):
                receiving.process_pending()
                self._sender.flush_feedback()  # before all else: the sender may wait for it
        if task.notified:
            self._wake_notified(task.notified)
        self._flush()
        shared = self.shared_input
        if shared is None:
            self._links_resumed = self._make_room()
        else:
            shared.make_room()

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call what may not return. Meanwhile another thread may take over the other tasks of a shared runner."""
        running.label = self.label
        self.busy_since_ns = started_ns = system_clock()
        run_lock = None
        if self.shared:
            assert self.runner is not None
            run_lock = self.runner.run_lock
            run_lock.release()
        try:
            function(*arguments)
        finally:
            if run_lock is not None:
                run_lock.acquire()
            self._ended_ns = system_clock()
            self.busy_since_ns = 0
            self.worked_ns += self._ended_ns - started_ns
            running.label = ""

    def _may_look_up(self, task: Task, receiving: FeedbackReceiver) -> bool:
        runnable = task.runnable
        return receiving.due(not runnable) and not (receiving.arrivals_can_wait and task.tap is None and runnable)

    def _wake_notified(self, notified: set[Task]) -> None:
        """Wake tasks whose tuples have been run here: they have feedback to send."""
        while notified:
            mailbox = self._services.mailbox_of(notified.pop().number)
            if mailbox is not None:
                mailbox.wake()

    def _run(self, task: Task, ready_ns: int | None, now_ns: int) -> None:
        if task.runnable:
            counters = task.wirings[0].counters
            calls, busy_ns = counters.received, counters.busy_ns
            task.run(SLICE_NS)
            if self.shared or len(task.wirings[0].durations) >= UNCOUNTED_CALLS:
                task.settle()
            if self.shared and self.kind is Kind.AUTO:
                self._note_length(counters.received - calls, counters.busy_ns - busy_ns)
        if ready_ns is not None and ready_ns <= now_ns:
            began_ns = system_clock()
            read = task.read(min(READ_AT_ONCE, self._sender.limit))
            if self.shared and self.kind is Kind.AUTO:
                self._note_length(read, system_clock() - began_ns - read * EMIT_NS)

    def _note_length(self, calls: int, busy_ns: int) -> None:
        if busy_ns > LONG_CALL_NS * max(calls, 1):
            self._long_calls += 1
            if self._long_calls >= LONG_CALLS:
                self.wants_own_runner = True
                if self.shared_input is not None:
                    self.shared_input.request_own_runners()
        elif self._long_calls:
            self._long_calls -= 1

    def _handle(self, message: ToWorker) -> None:
        if isinstance(message, Flush) and self._commits.in_threads:
            self._commits.commit_soon()
        else:
            self._call(self.task.handle, message)

    def _flush(self) -> None:
        """Send the task's output, as far as receivers take it. A task whose output stays is held back."""
        if self._sender.flush():
            if not self._blocked_since_ns:
                self._blocked_since_ns = system_clock()
                self.set_able(False)
        elif self._blocked_since_ns:
            self.task.wirings[0].counters.blocked_ns += system_clock() - self._blocked_since_ns
            self._blocked_since_ns = 0
            self.set_able(True)

    def set_able(self, able: bool) -> None:
        """Say whether the task could run what it is woken for."""
        if self.shared_input is not None:
            self.shared_input.set_able(able)

    # -- time

    def wake_ns(self, now_ns: int) -> int:
        task = self.task
        if self._mail or (task.runnable and not (self._blocked_since_ns or self._overfull)):
            return now_ns
        wake_ns = min(now_ns + IDLE_NS, max(self._duties.snapshot_ns, now_ns))
        for sink in task.sinks:
            deadline_ns = sink.deadline_ns
            if deadline_ns is not None:
                wake_ns = min(wake_ns, deadline_ns)
        if task.owns_roots:
            wake_ns = min(wake_ns, self._source_wake_ns(task, now_ns))
        if self._blocked_since_ns or self._sender.waits_for_connection:
            return min(wake_ns, now_ns + RETRY_NS)
        if task.feedback_receiver is not None and task.feedback_receiver.pending:
            wake_ns = min(wake_ns, max(now_ns, task.feedback_receiver.due_ns(idle=True)))
        if task.deadline_ns:
            wake_ns = min(wake_ns, task.deadline_ns)
        return wake_ns

    def _source_wake_ns(self, task: Task, now_ns: int) -> int:
        wake_ns = now_ns + IDLE_NS
        if task.has_unreported_progress:
            wake_ns = max(self._duties.report_ns, now_ns)
        if not (self._blocked_since_ns or self._overfull):
            for due_ns in (task.ready_ns, task.hedge_ns):
                if due_ns is not None:
                    wake_ns = min(wake_ns, due_ns)
        return wake_ns

    def snapshot(self) -> None:
        """Take a snapshot of the counters, for the worker to send on."""
        queued_on_node = 0 if self.shared_input is None else self.shared_input.queued_on_node
        self.snapshots = snapshots_of(self.task, self.cpu_ns, self._sender.backlog, queued_on_node)


def _nothing() -> None:
    """An action whose only purpose is the turn that it causes."""
