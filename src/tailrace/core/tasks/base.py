"""A task receives bundles, runs them through its stages, and leaves the results in its lanes and its acks in ack folds.

It is pure: the runtime brings bundles, empties lanes and folds, and decides when the task runs. A task object stands
for a whole unit: a leading operator's task together with the tasks fused to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from tailrace.clock import Clock
from tailrace.core.bundles import (
    EMISSION,
    VALUES,
    Bundle,
    FeedbackMessage,
    Origin,
    has_feedback_messages,
    is_feedback,
)
from tailrace.core.emissions import is_hedge
from tailrace.core.feedback.budget import FeedbackBudget
from tailrace.core.feedback.receiver import FeedbackReceiver
from tailrace.core.feedback.sender import FeedbackSender
from tailrace.core.hedging.cancelled import CancelledEmissions
from tailrace.core.plan.plan import Plan
from tailrace.core.protocol.acks import AckFold, Fold
from tailrace.core.protocol.messages import Committed, Flush, FromWorker, Members, Techniques, ToWorker
from tailrace.core.queues.shared import SharedQueue, Tap
from tailrace.core.routing.router import DisjointHalvesEdge, Lane
from tailrace.core.tasks.commit_sink import CommitSinkStage
from tailrace.core.tasks.stages import OperatorStage, Wiring
from tailrace.errors import ProtocolError, TailraceError
from tailrace.metrics.counters import TaskCounters
from tailrace.policy.techniques import Tail


class BundleQueue(Protocol):
    """A queue that a task takes bundles from: a deque, or its tap on a queue that other tasks draw from too."""

    def __len__(self) -> int: ...

    def append(self, bundle: Any, /) -> None: ...

    def extend(self, bundles: Iterable[Any], /) -> None: ...

    def popleft(self) -> Any: ...


class Task:
    """The common part of all tasks: an input queue, lanes, ack folds, and the committing sinks that are fused in.

    The runtime treats all kinds of tasks alike: methods for sources have defaults here that do nothing.
    """

    owns_roots = False  # True for sources: they get acks, read roots, and report to the coordinator
    deadline_ns = 0  # when a batch runs although it is not full; 0: there is no batch

    def __init__(self, plan: Plan, number: int, clock: Clock) -> None:
        self.plan = plan
        self.number = number
        self.new_queue: Callable[[], BundleQueue] = deque  # makes a queue of the task's own
        self.queue: BundleQueue = self.new_queue()
        self.tap: Tap[Task] | None = None  # its queue, if other tasks draw from that too
        self.notified: set[Task] = set()  # tasks with new calls to report; the runtime wakes them and empties it
        self.lanes: list[Lane] = []
        self.acks: dict[int, AckFold] = {owner: AckFold() for owner in plan.owners}
        self.wirings: list[Wiring] = []  # the leader's first, then those of the fused operators
        self.sinks: list[CommitSinkStage] = []
        self.feedback_edges: dict[int, FeedbackSender] = {}  # load-aware edges out of this task, by edge index
        self.feedback_receiver: FeedbackReceiver | None = None  # for the load-aware edges into this task
        self.feedback_budget = FeedbackBudget()  # this and the next are shared by all tasks of the worker
        self.cancelled = CancelledEmissions()
        self.cancels: list[int] = []  # emissions to be cancelled everywhere; the runtime sends and empties it
        self.clock = clock
        self._owners = plan.owners

    @property
    def label(self) -> str:
        return self.plan.label(self.number)

    def receive(self, bundles: Sequence[Any]) -> None:
        """Take in bundles and feedback messages. Any thread may call this."""
        queue = self.queue
        if self.feedback_receiver is None:
            queue.extend(bundles)
        else:
            mixed = has_feedback_messages(bundles)
            self.feedback_receiver.arrived(bundles, mixed)  # first: an arrival is reported before its execution
            queue.extend([item for item in bundles if not is_feedback(item)] if mixed else bundles)
        if queue is not self.queue:
            self._follow(queue)

    def draw_from(self, shared: SharedQueue[Task] | None) -> None:
        """Take bundles from this shared queue from now on, or from a queue of its own. To be called between two calls.

        Law: each bundle for this task is drawn once, also one that another thread is just putting into the old queue.
        The old queue is emptied once more after the change, and a thread that has put something into a queue checks
        afterwards whether it is still the task's (``receive``).
        """
        left = self.queue
        if self.tap is not None:
            self.tap.leave()
        self.tap = None if shared is None else shared.tap(self)
        queue = self.new_queue() if self.tap is None else self.tap
        queue.extend(_taken_from(left))
        self.queue = queue
        self._follow(left)

    def _follow(self, left: BundleQueue) -> None:
        """Move what is in a queue that the task has left to its present queue. Any thread may call this."""
        while left is not self.queue:
            bundles = _taken_from(left)
            if not bundles:
                return
            left = self.queue  # the task may leave that one too, meanwhile
            left.extend(bundles)

    def hear(self, messages: Sequence[FeedbackMessage], sent_ns: int | None = None) -> None:
        """Tasks downstream have sent feedback, at ``sent_ns`` if that is known."""
        for _, edge, task, version, message in messages:
            self.feedback_edges[edge].hear(task, version, message, sent_ns)

    @property
    def holds_tuples(self) -> bool:
        """Whether tuples are held here until a task downstream has room for them."""
        return any(edge.held for edge in self.feedback_edges.values())

    @property
    def held_full(self) -> bool:
        """Whether so many tuples are held that the task must not make more."""
        return any(edge.full for edge in self.feedback_edges.values())

    # -- what only sources do

    @property
    def ready_ns(self) -> int | None:
        """When it is worth reading roots; None: there is nothing to read."""
        return None

    @property
    def hedge_ns(self) -> int | None:
        """When it is worth asking whether a root is late; None: nothing is hedged."""
        return None

    @property
    def needs_acks_now(self) -> bool:
        """Whether an ack that arrives would give the task something to do at once."""
        return True

    @property
    def has_unreported_progress(self) -> bool:
        """Whether ``reports`` will have something to say as time goes by."""
        return False

    @property
    def stuck(self) -> bool:
        """Whether it could go on at once if the coordinator heard its reports."""
        return False

    def read(self, limit: int) -> int:
        """Read and emit up to ``limit`` roots. Returns how many there were."""
        return 0

    def apply(self, both: Fold, complete: Fold, durable: Fold, sent_ns: int | None = None) -> None:
        """Acks have arrived."""
        raise ProtocolError(f"acks for a task that owns no roots: task={self.label}; are versions mixed?")

    def reports(self, worker: int, epoch: int, fingerprint: Callable[[Any], bytes | None]) -> list[FromWorker]:
        """Messages for the coordinator."""
        return []

    def check_overdue(self, now_ns: int) -> int:
        """Emit again the roots whose loss was not reported. Returns how many there are."""
        return 0

    # -- running

    @property
    def runnable(self) -> bool:
        return bool(self.queue)

    def run(self, budget_ns: int) -> None:
        """Work for about this long, or until there is nothing to do."""
        raise NotImplementedError

    @property
    def counters(self) -> list[TaskCounters]:
        return [wiring.counters for wiring in self.wirings]

    def spent_on_feedback(self, began_ns: int) -> None:
        """The task has worked on feedback from ``began_ns`` until now."""
        spent_ns = self.clock() - began_ns
        self.wirings[0].counters.feedback_ns += spent_ns
        self.feedback_budget.spend(spent_ns, began_ns)

    def settle(self) -> None:
        """Bring the counters up to date."""
        for wiring in self.wirings:
            wiring.settle()

    def show(self) -> None:
        """Bring the gauges up to date."""
        counters = self.wirings[0].counters
        counters.edges = tuple(edge.state() for edge in self.feedback_edges.values())
        counters.held = sum(edge.held for edge in counters.edges)

    def handle(self, message: ToWorker) -> None:
        """Act on a message of the coordinator."""
        match message:
            case Committed():
                for sink in self.sinks:
                    for split, offset in message.offsets.items():
                        sink.log.advance(split, offset)
            case Flush():
                for sink in self.sinks:
                    sink.commit()
            case Members():
                self._bind_feedback(message.version)
            case Techniques():
                self.separate_hedges(message.tail)

    def separate_hedges(self, tail: Tail) -> None:
        """Keep the tuples of hedges and of what they race on different tasks, while these techniques hedge roots."""
        for wiring in self.wirings:
            for out in wiring.outs:
                if isinstance(out, DisjointHalvesEdge):
                    out.separate_hedges(tail.hedge is not None and tail.hedge.cancels)

    def _bind_feedback(self, version: int) -> None:
        for edge in self.feedback_edges.values():
            edge.bind(version)
        if self.feedback_receiver is not None:
            self.feedback_receiver.bind(version)

    def unsendable(self, edge: int, bundle: Bundle, position: int, cause: Exception) -> None:
        """A tuple of a bundle cannot be sent. ``on_error`` of the operator that emitted it decides what happens."""
        upstream, downstream = (self.plan.operators[end].name for end in self.plan.edges[edge].ends)
        wiring = next(wiring for wiring in self.wirings if wiring.operator == upstream)
        emission, split, offset, _, lineages, values, _, _ = bundle
        error = TailraceError(
            f"a tuple cannot be sent: from={upstream} to={downstream} cause={type(cause).__name__}: {cause}"
        )
        lineage = None if lineages is None else lineages[position]
        self.acknowledge(emission, split, wiring.failed(emission, split, offset, values[position], lineage, error))

    def acknowledge(self, emission: int, split: int, ids: int) -> None:
        both = self.acks[self._owners[split]].both
        both[emission] = both.get(emission, 0) ^ ids

    def throw_away(self, bundle: Bundle) -> None:
        """Drop a bundle of a cancelled emission unrun, without an ack: no ledger waits for it."""
        counters = self.wirings[0].counters
        if is_hedge(bundle[EMISSION]):
            counters.unrun_hedges += len(bundle[VALUES])
        else:
            counters.unrun += len(bundle[VALUES])
        receiver = self._receiver_to_notify()
        if receiver is not None:
            receiver.dropped_all(bundle)

    def _receiver_to_notify(self) -> FeedbackReceiver | None:
        """The feedback receiver for the bundle taken last: that of the task that the sender chose, not of the one that
        took it from a shared queue."""
        if self.feedback_receiver is None or self.tap is None:
            return self.feedback_receiver
        self.notified.add(self.tap.chosen)
        return self.tap.chosen.feedback_receiver


def _taken_from(queue: BundleQueue) -> list[Any]:
    """Empty a queue of all that is meant for the task that has left it."""
    if isinstance(queue, Tap):
        return queue.take_back()
    bundles: list[Any] = []
    while queue:
        try:
            bundles.append(queue.popleft())
        except IndexError:
            break  # another thread was faster
    return bundles


class PlainTask(Task):
    """A task whose leader takes tuples one by one."""

    stage: OperatorStage

    def run(self, budget_ns: int) -> None:
        if self.tap is not None:
            self._run_drawn(self.tap, budget_ns)
            return
        queue, run, acks, owners, clock = self.queue, self.stage.run, self.acks, self._owners, self.clock
        cancelled = self.cancelled
        end_ns = clock() + budget_ns
        while queue:
            emission, split, offset, ack, lineages, values, _, _ = bundle = queue.popleft()
            if cancelled and emission in cancelled:
                self.throw_away(bundle)
                continue
            ids = ack ^ run(emission, split, offset, values, lineages)
            both = acks[owners[split]].both
            both[emission] = both.get(emission, 0) ^ ids
            if clock() >= end_ns:
                return

    def _run_drawn(self, tap: Tap[Task], budget_ns: int) -> None:
        """Run bundles of a queue that several tasks draw from. Another task may have emptied it a moment ago."""
        durations = self.wirings[0].durations
        run, acks, owners, clock, cancelled = self.stage.run, self.acks, self._owners, self.clock, self.cancelled
        now_ns = clock()
        end_ns = now_ns + budget_ns
        while True:
            try:
                emission, split, offset, ack, lineages, values, _, _ = bundle = tap.popleft()
            except IndexError:
                return
            if cancelled and emission in cancelled:
                self.throw_away(bundle)
                continue
            counted = len(durations)
            ids = ack ^ run(emission, split, offset, values, lineages)
            both = acks[owners[split]].both
            both[emission] = both.get(emission, 0) ^ ids
            began_ns, now_ns = now_ns, clock()
            tap.took(len(values), now_ns - began_ns)
            receiver = self._receiver_to_notify()
            if receiver is not None:
                receiver.executed_all(bundle, durations[counted:], now_ns - began_ns)
            if now_ns >= end_ns:
                return


class ObservedTask(PlainTask):
    """A plain task with a feedback receiver, which it tells how long each tuple took.

    Consecutive bundles of one tuple each, from one sender, are reported as one run.
    """

    def run(self, budget_ns: int) -> None:
        if self.tap is not None:
            self._run_drawn(self.tap, budget_ns)
            return
        queue = self.queue
        receiver, durations = self.feedback_receiver, self.wirings[0].durations
        assert receiver is not None
        run, acks, owners, clock, cancelled = self.stage.run, self.acks, self._owners, self.clock, self.cancelled
        now_ns = clock()
        end_ns = now_ns + budget_ns
        run_origin: Origin | None = None  # of the tuples in the next two lists
        ran: list[Any] = []
        took_ns: list[int] = []
        while queue:
            emission, split, offset, ack, lineages, values, origin, attached = bundle = queue.popleft()
            if cancelled and emission in cancelled:
                receiver.executed_run(run_origin, ran, took_ns)
                run_origin = None
                self.throw_away(bundle)
                continue
            counted = len(durations)
            ids = ack ^ run(emission, split, offset, values, lineages)
            both = acks[owners[split]].both
            both[emission] = both.get(emission, 0) ^ ids
            began_ns, now_ns = now_ns, clock()
            if len(values) > 1 or origin is None or attached is not None:
                receiver.executed_run(run_origin, ran, took_ns)
                run_origin = None
                receiver.executed_all(bundle, durations[counted:], now_ns - began_ns)
            elif origin is run_origin:
                ran += values
                took_ns.append(now_ns - began_ns)
            else:
                receiver.executed_run(run_origin, ran, took_ns)
                run_origin, ran, took_ns = origin, [*values], [now_ns - began_ns]
            if now_ns >= end_ns:
                break
        receiver.executed_run(run_origin, ran, took_ns)
