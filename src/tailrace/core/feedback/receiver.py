"""The feedback receiver of a task: it tells the task's load-aware groupings what has arrived and what has been run.

Threads that bring bundles, and threads that have run tuples, only append to a queue here. The second may belong to
another task, where several tasks draw from one queue. The task's own thread empties the queue between two calls, in
``process_pending``: first the arrivals, then the finished calls, because a grouping that grants credits when a tuple is
done must know by then which senders wait. How soon that happens depends on what feedback has cost lately (``budget``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from tailrace.clock import MICROSECOND_NS, MILLISECOND_NS, Clock
from tailrace.core.bundles import (
    ATTACHED,
    FEEDBACK,
    ORIGIN,
    ORIGIN_VERSION,
    VALUES,
    VERSION,
    Bundle,
    FeedbackMessage,
    Origin,
    is_feedback,
    tuples_in,
)
from tailrace.core.feedback.budget import FeedbackBudget
from tailrace.core.feedback.runs import Arrival, Run, came, joined
from tailrace.core.plan.plan import EdgePlan, Plan
from tailrace.errors import TailraceError, shorten
from tailrace.metrics.counters import TaskCounters
from tailrace.policy.groupings.feedback import Message, Receiver, has_feedback

LATE_NS = 10 * MILLISECOND_NS
"""A report older than this is urgent. One older than this times the number of tasks in the worker is sent whatever it
costs, so that all tasks together send one such report in this time."""

URGENT_TUPLES = 32
"""Where senders hold tuples until they get reports, this many finished tuples make a report urgent."""

LONG_TOTAL_NS = MILLISECOND_NS
LONG_EACH_NS = 500 * MICROSECOND_NS
"""Unreported calls count as long if they took this much in total, and this much each on average."""


class FeedbackReceiver:
    """Receiver-side state of all load-aware groupings on the edges into one task.

    Any thread may call ``arrived``, ``executed*`` and ``dropped_all``; all other methods are for the task's own thread.

    Law: a grouping's receiver is told of each tuple that came under its version of the membership, and of its execution
    after its arrival. It is told of nothing that came under another version.
    """

    def __init__(
        self,
        plan: Plan,
        number: int,
        edges: Sequence[EdgePlan],
        counters: TaskCounters,
        feedback_budget: FeedbackBudget,
        clock: Clock,
        rng: Random,
    ) -> None:
        self._arrivals: deque[Arrival] = deque()  # not processed yet
        self._counted: deque[int] = deque()  # numbers of tuples that arrived, where no grouping looks at arrivals
        self.outbox: dict[int, list[FeedbackMessage]] = {}  # for senders, by task number; the runtime empties it
        self.senders = [
            plan.operators[edge.upstream].first_task + index
            for edge in edges
            for index in range(plan.operators[edge.upstream].tasks)
        ]
        self.version = 0
        self._plan = plan
        self._task = plan.task_index(number)
        self._edges = edges
        self._counters = counters
        self._feedback_budget = feedback_budget
        feedback_budget.tasks += 1
        self._processed_ns = 0  # when process_pending last ended
        self._clock = clock
        self._rng = rng
        self._receivers: dict[int, Receiver] = {}  # by edge index
        self._first_sender = {edge.index: plan.operators[edge.upstream].first_task for edge in edges}
        self.arrivals_can_wait = False  # whether arrivals may be processed after the next call
        self._ignores_arrivals = False  # whether no grouping looks at arrivals
        self._senders_wait = False  # whether senders hold tuples until they get reports
        self._done: deque[Run] = deque()  # not processed yet
        # The next two are only about right where several threads add to them.
        self._unreported = 0  # tuples in _done
        self._unreported_ns = 0  # the time they took
        self._first_ns = 0  # when the first of them had been run
        self._queued = 0  # tuples that arrived and have not been run
        self._early: list[tuple[int, Callable[[Any, int], None], Any]] = []  # of later versions of the membership
        self._bind_receivers()

    def bind(self, version: int) -> None:
        """Start again with new receivers under a newer version of the membership."""
        self.version = version
        self.outbox.clear()
        self._bind_receivers()
        early, self._early = self._early, []
        for belongs_to, process, what in early:
            self._process(belongs_to, process, what, self._clock())
        self._fill_outbox()

    def _bind_receivers(self) -> None:
        for edge in self._edges:
            upstream, downstream = (self._plan.operators[end] for end in edge.ends)
            assert has_feedback(edge.grouping)
            receiver = edge.grouping.bind_receiver(self._task, downstream.tasks, upstream.tasks, self._rng)
            self._receivers[edge.index] = receiver
        receivers = self._receivers.values()
        self.arrivals_can_wait = self.has_one_sender and all(receiver.arrivals_can_wait for receiver in receivers)
        self._senders_wait = any(receiver.senders_wait for receiver in receivers)
        self._ignores_arrivals = not any(receiver.hears_arrivals for receiver in receivers)
        self._fill_outbox()

    @property
    def queued(self) -> int:
        """Tuples that arrived and have not been run, as far as it has processed that."""
        return self._queued

    # -- what happens, from any thread

    def arrived(self, items: Sequence[Any], mixed: bool) -> None:
        """Bundles have come. ``mixed``: there are feedback messages among them.

        Keeps a summary of the bundles, not the bundles: by the time it is processed they would have left the cache.
        """
        if self._ignores_arrivals and not mixed:
            self._counted.append(tuples_in(items))
            return
        at_ns = self._clock()
        parts = came(items)
        self._arrivals.append((at_ns, parts, self._clock() - at_ns))

    def executed_run(self, origin: Origin | None, values: list[Any], durations_ns: list[int]) -> None:
        """Tuples of one sender, with nothing attached, have been run. Without an origin there is nothing to report."""
        if origin is not None:
            self._ran((origin, values, None, durations_ns), sum(durations_ns))

    def executed(self, origin: Origin | None, value: Any, message: Message | None, duration_ns: int) -> None:
        """A tuple has been run."""
        self._ran((origin, (value,), None if message is None else (message,), (duration_ns,)), duration_ns)

    def executed_all(self, bundle: Bundle, durations: Sequence[int], whole_ns: int) -> None:
        """A bundle has been run in ``whole_ns``. Time beyond that of the calls is divided evenly among its tuples."""
        values, origin, attached = bundle[VALUES], bundle[ORIGIN], bundle[ATTACHED]
        if len(values) == 1:
            self._ran((origin, values, attached, (whole_ns,)), whole_ns)
            return
        rest_ns = max(0, whole_ns - sum(durations)) // len(values)
        self._ran((origin, values, attached, [duration_ns + rest_ns for duration_ns in durations]), whole_ns)

    def dropped_all(self, bundle: Bundle) -> None:
        """A bundle was not run, because its emission is cancelled."""
        self._ran((bundle[ORIGIN], bundle[VALUES], bundle[ATTACHED], None), 0)

    def _ran(self, run: Run, busy_ns: int) -> None:
        if not self._unreported:
            self._first_ns = self._clock()
        self._done.append(run)
        _, values, _, _ = run
        self._unreported += len(values)
        self._unreported_ns += busy_ns

    @property
    def has_one_sender(self) -> bool:
        """With one sender, a finished call can be reported before the arrivals are processed."""
        return len(self.senders) == 1

    @property
    def pending(self) -> bool:
        """Whether ``process_pending`` has something to do."""
        return bool(self._done or self._arrivals or self._counted)

    def due(self, idle: bool) -> bool:
        """Whether to call ``process_pending`` now. ``idle``: the task has nothing left to run."""
        return self.pending and self.due_ns(idle) <= self._clock()

    def due_ns(self, idle: bool) -> int:
        """The time from which ``process_pending`` may be called.

        The budget decides, and lets urgent reports pass sooner. Where senders hold tuples until long calls have ended,
        only the bound on all feedback counts. No report waits longer than ``LATE_NS`` times the number of tasks.
        """
        feedback_budget, long = self._feedback_budget, self._long
        if self._unreported_ns >= feedback_budget.paying_ns > 0:
            return 0
        if long and self._senders_wait:
            due_ns = feedback_budget.bound_ns
        elif (long and idle) or (self._senders_wait and self._unreported >= URGENT_TUPLES):
            due_ns = feedback_budget.urgent_ns
        else:
            due_ns = min(feedback_budget.ample_ns, max(feedback_budget.urgent_ns, self._processed_ns + LATE_NS))
        return min(due_ns, self._processed_ns + LATE_NS * feedback_budget.tasks)

    @property
    def _long(self) -> bool:
        return self._unreported_ns >= LONG_TOTAL_NS and self._unreported_ns >= self._unreported * LONG_EACH_NS

    def process_pending(self) -> None:
        """Tell the groupings' receivers what has arrived, then what has been run. Fills ``outbox``."""
        now_ns = self._clock()
        ended, arrivals, spent_ns = self._done, self._arrivals, 0
        senders_wait = self._senders_wait and self._long
        late_ns = now_ns - self._first_ns if self._unreported else 0
        for receiver in self._receivers.values():
            receiver.late_ns = late_ns
        self._unreported = self._unreported_ns = 0
        known = len(ended)  # the arrivals below may lack the tuples of calls that end later, in another thread
        while self._counted:
            self._queued += self._counted.popleft()
        while arrivals:
            at_ns, parts, took_ns = arrivals.popleft()
            spent_ns += took_ns
            for part in parts:
                self._came(part, at_ns)
        if known == 1:
            self._ended(ended.popleft(), now_ns)
        elif known:
            for run in joined([ended.popleft() for _ in range(known)]):
                self._ended(run, now_ns)
        self._fill_outbox()
        self._processed_ns = self._clock()
        spent_ns += self._processed_ns - now_ns
        self._counters.feedback_ns += spent_ns
        if senders_wait:
            self._feedback_budget.spend_within_bound(spent_ns, now_ns)
        else:
            self._feedback_budget.spend(spent_ns, now_ns)
        if known:
            self._feedback_budget.report_sent()

    def _came(self, part: Any, at_ns: int) -> None:
        if is_feedback(part):
            self._process(part[VERSION], self._heard, part, at_ns)
            return
        origin, tuples, _ = part
        self._queued += tuples
        if origin is not None:
            self._process(origin[ORIGIN_VERSION], self._received, part, at_ns)

    def _ended(self, run: Run, now_ns: int) -> None:
        origin, values, _, _ = run
        self._queued -= len(values)
        if origin is None:
            return
        if origin[ORIGIN_VERSION] == self.version:
            self._executed(run, now_ns)
        else:
            self._process(origin[ORIGIN_VERSION], self._executed, run, now_ns)

    def _process(self, version: int, process: Callable[[Any, int], None], what: Any, now_ns: int) -> None:
        if version == self.version:
            process(what, now_ns)
        elif version > self.version:
            self._early.append((version, process, what))

    # -- telling a grouping's receiver

    def _received(self, part: tuple[Origin, int, Sequence[Message | None] | None], now_ns: int) -> None:
        (edge, sender, _), tuples, attached = part
        receiver = self._receivers[edge]
        if attached is None:
            receiver.received_many(sender, tuples, now_ns)
            return
        for message in attached:
            receiver.received(sender, message, now_ns)

    def _executed(self, run: Run, now_ns: int) -> None:
        origin, values, attached, durations_ns = run
        assert origin is not None
        edge, sender, _ = origin
        try:
            if len(values) == 1 and durations_ns is not None:
                message = None if attached is None else attached[0]
                self._receivers[edge].executed(sender, values[0], message, durations_ns[0], self._queued, now_ns)
            elif durations_ns is not None and attached is None:
                self._receivers[edge].executed_many(sender, values, durations_ns, self._queued, now_ns)
            else:
                self._ended_one_by_one(self._receivers[edge], sender, run, now_ns)
        except AssertionError:
            raise
        except Exception as error:
            raise self._unreadable(edge, values[0] if len(values) == 1 else values, error) from error

    def _ended_one_by_one(self, receiver: Receiver, sender: int, run: Run, now_ns: int) -> None:
        _, values, attached, durations_ns = run
        left = self._queued + len(values)
        for position, value in enumerate(values):
            left -= 1
            message = None if attached is None else attached[position]
            if durations_ns is None:
                receiver.dropped(sender, message, left, now_ns)
            else:
                receiver.executed(sender, value, message, durations_ns[position], left, now_ns)

    def _unreadable(self, edge: int, value: Any, error: Exception) -> TailraceError:
        upstream, downstream = (self._plan.operators[end].name for end in self._plan.edges[edge].ends)
        return TailraceError(
            f"a tuple that has been run can no longer be read: from={upstream} to={downstream} "
            f"grouping={self._plan.edges[edge].grouping.name} tuple={shorten(value)} "
            f"cause={type(error).__name__}: {error}; does {downstream} change its input?"
        )

    def _heard(self, item: FeedbackMessage, now_ns: int) -> None:
        _, edge, sender, _, message = item
        self._receivers[edge].hear(sender, message, now_ns)

    def _fill_outbox(self) -> None:
        for edge, receiver in self._receivers.items():
            outbox = receiver.outbox
            if outbox:
                first = self._first_sender[edge]
                for sender, message in outbox:
                    waiting = self.outbox.setdefault(first + sender, [])
                    waiting.append((FEEDBACK, edge, self._task, self.version, message))
                self._counters.feedback_messages += len(outbox)
                outbox.clear()
