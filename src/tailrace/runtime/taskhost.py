"""A task's host connects a pure task with the world: its links in and out, the tasks beside it, and its clockwork.

It belongs to one runner at a time. Others may only append to its queue and its mail, and wake its runner.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from tailrace.clock import MICROSECOND_NS, MILLISECOND_NS, system_clock
from tailrace.core.acks import AckFold, Fold
from tailrace.core.messages import Member, Position, Prefixes, SourceReport, ToWorker
from tailrace.core.router import Bundle, Lane
from tailrace.core.task import BatchTask, SourceTask, Task
from tailrace.errors import ProtocolError, TaskError, shorten
from tailrace.metrics.counters import TaskSnapshot
from tailrace.runtime.connectors.fingerprint import fingerprint
from tailrace.runtime.current import running
from tailrace.runtime.links import InLink, OutLink
from tailrace.runtime.runner import IDLE_NS, Runner
from tailrace.runtime.wire import ACKS, BUNDLES, decode_bundles, decode_folds, encode, encode_folds
from tailrace.topology import Kind

SLICE_NS = 500 * MICROSECOND_NS
"""How long a task works before what it has sent leaves, and others on its runner get their turn."""

READ_AT_ONCE = 256
"""Roots that a source reads before what they have led to leaves."""

QUEUE_LIMIT = 256
"""Bundles that may wait in front of a task. Beyond, senders are held back."""

LANE_LIMIT = 256
"""Bundles that may wait to leave a task on one lane. Beyond, the task is held back."""

FRAME_BUNDLES = 1024
"""Bundles in one frame, at most: what a receiver gets in one piece delays whatever else it has to do."""

REPORT_NS = 25 * MILLISECOND_NS
SNAPSHOT_NS = 400 * MILLISECOND_NS
OVERDUE_NS = 1000 * MILLISECOND_NS

LONG_CALL_NS = 1 * MILLISECOND_NS
LONG_CALLS = 3
"""A task on a shared runner that is found this often with calls this long on average gets a runner of its own."""


class Neighbours(Protocol):
    """What a host needs to know of its worker."""

    def host_of(self, task: int) -> TaskHost | None:
        """The host of a task's unit, if it lives in this worker."""
        ...

    def home_of(self, task: int) -> int: ...

    def member(self, worker: int) -> Member | None: ...

    def connect(self, link: OutLink, member: Member, done: Callable[[socket.socket | None], None]) -> None:
        """Make a connection in the background."""
        ...

    def lost_link(self) -> None: ...

    def tell(self, message: Any) -> None:
        """Say something to the coordinator."""
        ...

    def isolate(self, host: TaskHost) -> None:
        """Give this host a runner of its own."""
        ...

    worker: int
    epoch: int


@dataclass
class _Due:
    """When the next of each recurrent duty is due."""

    report_ns: int = 0
    snapshot_ns: int = 0
    overdue_ns: int = 0


class TaskHost:
    """Hosts one unit."""

    def __init__(self, task: Task, neighbours: Neighbours, kind: Kind) -> None:
        self.task = task
        self.kind = kind
        self.runner: Runner | None = None
        self.shared = False  # the runner has other tasks too
        self.snapshots: list[TaskSnapshot] = []
        self.waiting: set[Runner] = set()  # runners of senders that found the queue full
        self._near = neighbours
        self._mail: deque[Callable[[], None]] = deque()
        self._in: list[InLink] = []
        self._out: dict[tuple[str, int], OutLink] = {}
        self._paused = False
        self._blocked_since_ns = 0
        self._long_calls = 0
        self._due = _Due()
        self._reported: tuple[bool, bool] | None = None
        self.worked_ns = 0  # wall time, since its runner last asked
        self.cpu_ns = 0  # the runner's share of it
        self._label = task.label

    # -- from any thread

    def post(self, action: Callable[[], None]) -> None:
        """Have this done by the thread that runs the task."""
        self._mail.append(action)
        self.wake()

    def handle(self, message: ToWorker) -> None:
        self.post(lambda: self._handle(message))

    def wake(self) -> None:
        runner = self.runner
        if runner is not None:
            runner.wake()

    @property
    def full(self) -> bool:
        return len(self.task.queue) >= QUEUE_LIMIT

    @property
    def has_news(self) -> bool:
        return bool(self._mail) or (bool(self.task.queue) and not self._blocked_since_ns)

    # -- moving between runners

    def moved_to(self, runner: Runner | None) -> None:
        links: list[InLink | OutLink] = [*self._in, *self._out.values()]
        if runner is None:
            for link in links:
                link.unwatch()
        else:
            self.runner = runner
            for link in links:
                link.watch(runner)

    # -- receiving

    def take_link(self, connection: socket.socket, kind: str, worker: int, epoch: int) -> None:
        """A peer has connected. Replaces an older link of a lower epoch only when that one breaks by itself."""
        on_frame = self._on_bundles if kind == "bundles" else self._on_acks
        link = InLink(connection, worker, epoch, on_frame, self._lost_in)
        self._in.append(link)
        assert self.runner is not None
        link.paused = self._paused and kind == "bundles"
        link.watch(self.runner)

    def _on_bundles(self, kind: int, payload: memoryview) -> None:
        if kind != BUNDLES:
            raise ProtocolError(f"frame of another kind: kind={kind} expected={BUNDLES}; are versions mixed?")
        self.task.receive(decode_bundles(payload))
        if len(self.task.queue) >= QUEUE_LIMIT and not self._paused:
            self._pause(True)

    def _on_acks(self, kind: int, payload: memoryview) -> None:
        if kind != ACKS:
            raise ProtocolError(f"frame of another kind: kind={kind} expected={ACKS}; are versions mixed?")
        self.apply(*decode_folds(payload))

    def apply(self, both: Fold, complete: Fold, durable: Fold) -> None:
        assert isinstance(self.task, SourceTask)
        self.task.apply(both, complete, durable)

    def _pause(self, pause: bool) -> None:
        self._paused = pause
        if not isinstance(self.task, SourceTask):  # its links bring acks, which are never held back
            for link in self._in:
                if pause:
                    link.pause()
                else:
                    link.resume()

    def _lost_in(self, link: InLink, error: Exception | None) -> None:
        self._in.remove(link)
        self._near.lost_link()

    # -- working

    def work(self, now_ns: int) -> None:
        """Do what is to be done, for about a slice."""
        while self._mail:
            self._mail.popleft()()
        task = self.task
        if self._blocked_since_ns:
            self._flush()
            if self._blocked_since_ns:
                self._recurrent(now_ns)
                return
        ready_ns = task.ready_ns if isinstance(task, SourceTask) else None
        if task.runnable or (ready_ns is not None and ready_ns <= now_ns) or self._sinks_due(now_ns):
            running.label = self._label
            started_ns = system_clock()
            self._run(task, ready_ns, now_ns)
            self.worked_ns += system_clock() - started_ns
            running.label = ""
        self._flush()
        self._make_room()
        self._recurrent(now_ns)

    def _run(self, task: Task, ready_ns: int | None, now_ns: int) -> None:
        if task.runnable:
            counters = task.counters[0]
            calls, busy_ns = counters.received, counters.busy_ns
            task.run(SLICE_NS)
            if self.shared and self.kind is Kind.AUTO:
                self._note_length(counters.received - calls, counters.busy_ns - busy_ns)
        if isinstance(task, SourceTask) and ready_ns is not None and ready_ns <= now_ns:
            read = task.read(READ_AT_ONCE)
            if self.shared and self.kind is Kind.AUTO:
                self._note_length(read, system_clock() - now_ns - read * 20 * MICROSECOND_NS)
        for sink in task.sinks:
            deadline_ns = sink.deadline_ns
            if deadline_ns is not None and deadline_ns <= now_ns:
                sink.commit()

    def _note_length(self, calls: int, busy_ns: int) -> None:
        if busy_ns > LONG_CALL_NS * max(calls, 1):
            self._long_calls += 1
            if self._long_calls == LONG_CALLS:
                self._near.isolate(self)

    def _sinks_due(self, now_ns: int) -> bool:
        for sink in self.task.sinks:
            deadline_ns = sink.deadline_ns
            if deadline_ns is not None and deadline_ns <= now_ns:
                return True
        return False

    def _make_room(self) -> None:
        if len(self.task.queue) <= QUEUE_LIMIT // 2:
            if self._paused:
                self._pause(False)
            if self.waiting:
                waiting, self.waiting = self.waiting, set()
                for runner in waiting:
                    runner.wake()

    def _handle(self, message: ToWorker) -> None:
        running.label = self._label
        self.task.handle(message)
        running.label = ""

    # -- sending

    def _flush(self) -> None:
        """Send what the task has left in its lanes and folds, as far as the receivers take it."""
        blocked = False
        for lane in self.task.lanes:
            if lane.bundles:
                self._flush_lane(lane)
                blocked = blocked or len(lane.bundles) >= LANE_LIMIT
        for owner, fold in self.task.acks.items():
            if fold:
                self._flush_acks(owner, fold)
        if blocked and not self._blocked_since_ns:
            self._blocked_since_ns = system_clock()
        elif not blocked and self._blocked_since_ns:
            self.task.counters[0].blocked_ns += system_clock() - self._blocked_since_ns
            self._blocked_since_ns = 0

    def _flush_lane(self, lane: Lane) -> None:
        near = self._near.host_of(lane.target)
        if near is not None:
            self._hand_over(near, lane)
            return
        link = self._link("bundles", lane.target)
        while link.ready and lane.bundles:
            if len(lane.bundles) <= FRAME_BUNDLES:
                bundles = lane.take()
            else:
                bundles, lane.bundles = lane.bundles[:FRAME_BUNDLES], lane.bundles[FRAME_BUNDLES:]
            self._send_bundles(link, lane, bundles)

    def _hand_over(self, near: TaskHost, lane: Lane) -> None:
        if near.full:
            assert self.runner is not None
            near.waiting.add(self.runner)
            if near.full:  # still: it will wake us. If not, it may have looked before we were on its list.
                return
        near.task.queue.extend(lane.take())
        if near.runner is not self.runner:
            near.wake()

    def _send_bundles(self, link: OutLink, lane: Lane, bundles: list[Bundle]) -> None:
        try:
            payload = encode(bundles)
        except Exception as error:
            bundles = self._without_the_unsendable(lane, bundles, error)
            if not bundles:
                return
            payload = encode(bundles)
        try:
            link.send(BUNDLES, payload)
        except ProtocolError as error:
            if len(bundles) == 1:
                raise self._unsendable(lane, bundles[0][5], error) from None
            half = len(bundles) // 2
            lane.bundles = bundles[half:] + lane.bundles
            self._send_bundles(link, lane, bundles[:half])

    def _without_the_unsendable(self, lane: Lane, bundles: list[Bundle], error: Exception) -> list[Bundle]:
        """Name the tuple that cannot be pickled; there is no way to send it, so this ends the run."""
        for bundle in bundles:
            for value in bundle[5]:
                try:
                    encode(value)
                except Exception as cause:
                    raise self._unsendable(lane, value, cause) from None
        raise error

    def _unsendable(self, lane: Lane, value: Any, cause: Exception) -> TaskError:
        plan = self.task.plan
        edge = plan.edges[lane.edge]
        operator = plan.operators[edge.upstream].name
        index = plan.task_index(self.task.number)
        to = plan.operators[edge.downstream].name
        why = f"a tuple cannot be sent: from={operator} to={to} cause={type(cause).__name__}: {cause}"
        return TaskError(operator, index, shorten(value), why)

    def _flush_acks(self, owner: int, fold: AckFold) -> None:
        near = self._near.host_of(owner)
        if near is None:
            link = self._link("acks", owner)
            if link.ready:
                link.send(ACKS, encode_folds(fold.take()))
        elif near.runner is self.runner:
            near.apply(*fold.take())
        else:
            folds = fold.take()
            near.post(lambda: near.apply(*folds))

    def _link(self, kind: str, target: int) -> OutLink:
        link = self._out.get((kind, target))
        if link is None:
            home = self._near.home_of(target)
            link = self._out[kind, target] = OutLink(kind, self.task.number, target, home, self._lost_out)
        if link.member is not None and link.member != self._near.member(link.worker):
            link.close()  # what we would send now would be lost, and nobody might notice
        if not link.open and link.member is None:
            self._connect(link)
        return link

    def _connect(self, link: OutLink) -> None:
        member = self._near.member(link.worker)
        if member is None:
            return  # nobody is there: news of a new membership will wake us
        link.member = member
        self._near.connect(
            link, member, lambda connection: self.post(lambda: self._connected(link, member, connection))
        )

    def _connected(self, link: OutLink, member: Member, connection: socket.socket | None) -> None:
        if link.member != member:
            if connection is not None:
                connection.close()
        elif connection is None:
            link.member = None  # tried again at the next flush
        else:
            assert self.runner is not None
            link.attach(connection, self.runner)

    def _lost_out(self) -> None:
        self._near.lost_link()

    def relink(self, workers: frozenset[int]) -> None:
        """These workers have been replaced: links with them are of no use any more."""
        for link in self._out.values():
            if link.worker in workers:
                link.close()
        for inward in [link for link in self._in if link.worker in workers]:
            current = self._near.member(inward.worker)
            if current is None or inward.epoch < current.epoch:
                inward.close()
                self._in.remove(inward)
        self._connect_ahead()

    def _connect_ahead(self) -> None:
        """Make connections before the first tuple needs them."""
        targets = [("bundles", lane.target) for lane in self.task.lanes]
        if not isinstance(self.task, SourceTask) or self.task.sinks:
            targets += [("acks", owner) for owner in self.task.acks]
        for kind, target in targets:
            if self._near.host_of(target) is None:
                self._link(kind, target)

    # -- clockwork

    def wake_ns(self, now_ns: int) -> int:
        """When this host wants to work next, if nothing happens before."""
        task = self.task
        if self._mail:
            return now_ns
        wake_ns = min(now_ns + IDLE_NS, max(self._due.snapshot_ns, now_ns))
        for sink in task.sinks:
            deadline_ns = sink.deadline_ns
            if deadline_ns is not None:
                wake_ns = min(wake_ns, deadline_ns)
        if isinstance(task, SourceTask):
            wake_ns = min(wake_ns, self._source_wake_ns(task, now_ns))
        if self._blocked_since_ns or self._unsent():
            return min(wake_ns, now_ns + 2 * MILLISECOND_NS)
        if task.runnable:
            return now_ns
        if isinstance(task, BatchTask) and task.deadline_ns:
            wake_ns = min(wake_ns, task.deadline_ns)
        return wake_ns

    def _unsent(self) -> bool:
        """Whether something waits for a connection; those that wait for a socket are woken by it."""
        return any(not link.open for link in self._out.values()) and (
            any(lane.bundles for lane in self.task.lanes) or any(self.task.acks.values())
        )

    def _source_wake_ns(self, task: SourceTask, now_ns: int) -> int:
        wake_ns = now_ns + IDLE_NS
        if task.ledger.moved or self._reported != (task.settled, task.wants_commit):
            wake_ns = max(self._due.report_ns, now_ns)
        ready_ns = task.ready_ns
        if ready_ns is not None and not self._blocked_since_ns:
            wake_ns = min(wake_ns, ready_ns)
        return wake_ns

    def _recurrent(self, now_ns: int) -> None:
        task, due = self.task, self._due
        if isinstance(task, SourceTask):
            if now_ns >= due.report_ns:
                due.report_ns = now_ns + REPORT_NS
                self.report(task)
            if now_ns >= due.overdue_ns:
                due.overdue_ns = now_ns + OVERDUE_NS
                task.check_overdue(now_ns)
        if now_ns >= due.snapshot_ns:
            due.snapshot_ns = now_ns + SNAPSHOT_NS
            self.snapshot()

    def report(self, task: SourceTask) -> None:
        """Tell the coordinator how far the ledger is."""
        near = self._near
        moved = task.ledger.uncommitted()
        if moved:
            positions = {split: Position(offset, fingerprint(value)) for split, (offset, value) in moved.items()}
            near.tell(Prefixes(near.worker, near.epoch, positions))
        state = (task.settled, task.wants_commit)
        if state != self._reported:
            self._reported = state
            near.tell(SourceReport(near.worker, near.epoch, task.number, *state))

    def snapshot(self) -> None:
        """Counters as they are now, for whoever sends them on."""
        counters = self.task.counters
        counters[0].queued = len(self.task.queue)
        counters[0].cpu_ns = self.cpu_ns
        if isinstance(self.task, SourceTask):
            ledger = self.task.ledger
            counters[0].pending = ledger.pending
            counters[0].reemitted = ledger.reemitted
            counters[0].complete = ledger.complete_latency
            counters[0].durable_latency = ledger.durable_latency
            counters[0].completed = ledger.complete_latency.count
            counters[0].durable = ledger.durable_latency.count
        self.snapshots = [one.snapshot() for one in counters]
