"""The receiving halves of a task: one for each load-aware edge into it, told what arrives and what has been run.

Whoever brings bundles and notes, from whatever thread, only appends them, and so does whoever has run a tuple, which
is another task's thread where several draw from one queue. The thread that runs the task tells the halves about them
between calls, and of calls that have ended only after that: a half that gives out credits when a tuple is done should
know by then who waits. How soon it does that depends on what it has cost of late (``budget``).
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
"""After this time it is urgent to tell something. After as many such times as the worker has tasks it is told whatever
that costs, which is once in this time by all of them together."""

TOGETHER = 32
"""Where senders wait to hear of them, so many tuples that have been run are urgent: together they cost little each."""

LONG_NS = MILLISECOND_NS
EACH_NS = 500 * MICROSECOND_NS
"""Calls are long that took so long in all, and each on average."""


class FeedbackReceiver:
    """Of one task.

    Law: a half is told of each tuple that came under its membership, and of its execution after its arrival; of nothing
    that came under another one.
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
        self._arrivals: deque[Arrival] = deque()  # of which nobody was told
        self._unheard: deque[int] = deque()  # tuples that came, and of whose coming no half wants to hear
        self.notes: dict[int, list[FeedbackMessage]] = {}  # to senders, by task number; whoever sends them empties it
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
        self._looked_ns = 0
        self._clock = clock
        self._rng = rng
        self._halves: dict[int, Receiver] = {}  # by edge index
        self._first = {edge.index: plan.operators[edge.upstream].first_task for edge in edges}  # sender of each
        self.patient = False  # whether what arrives may be told after the next call
        self._deaf = False  # whether nobody wants to hear what arrives
        self._awaited = False  # whether senders wait to hear of what has been run
        self._done: deque[Run] = deque()
        self._untold = 0  # tuples in there; this and the next are about right where several threads add to them
        self._untold_ns = 0  # for which tasks were busy
        self._first_ns = 0  # when the first of them had been run
        self._queued = 0  # tuples that came and have not been run
        self._early: list[tuple[int, Callable[[Any, int], None], Any]] = []  # under memberships yet to come
        self._bind_halves()

    def bind(self, version: int) -> None:
        """Begin anew under a newer membership."""
        self.version = version
        self.notes.clear()
        self._bind_halves()
        early, self._early = self._early, []
        for happened, tell, what in early:
            self._tell(happened, tell, what, self._clock())
        self._post()

    def _bind_halves(self) -> None:
        for edge in self._edges:
            upstream, downstream = (self._plan.operators[end] for end in edge.ends)
            assert has_feedback(edge.grouping)
            half = edge.grouping.bind_receiver(self._task, downstream.tasks, upstream.tasks, self._rng)
            self._halves[edge.index] = half
        halves = self._halves.values()
        self.patient = self.hears_one and all(half.arrivals_can_wait for half in halves)
        self._awaited = any(half.senders_wait for half in halves)
        self._deaf = not any(half.hears_arrivals for half in halves)
        self._post()

    # -- what happens

    def arrived(self, items: Sequence[Any], mixed: bool) -> None:
        """Bundles have come, and notes in between. From any thread; the halves hear of it when the task looks up.

        Not the bundles themselves are kept until then: they are gone from the cache when they have been run.
        """
        if self._deaf and not mixed:
            self._unheard.append(tuples_in(items))
            return
        at_ns = self._clock()
        parts = came(items)
        self._arrivals.append((at_ns, parts, self._clock() - at_ns))

    def executed_run(self, origin: Origin | None, values: list[Any], durations_ns: list[int]) -> None:
        """Tuples of one sender, with nothing attached, have been run. Nobody's: there are none."""
        if origin is not None:
            self._ran((origin, values, None, durations_ns), sum(durations_ns))

    def executed(self, origin: Origin | None, value: Any, message: Message | None, duration_ns: int) -> None:
        """A tuple has been run. The halves hear of it when the task looks up."""
        self._ran((origin, (value,), None if message is None else (message,), (duration_ns,)), duration_ns)

    def executed_all(self, bundle: Bundle, durations: Sequence[int], whole_ns: int) -> None:
        """A bundle has been run; what took longer than the calls themselves is shared out evenly."""
        values, origin, said = bundle[VALUES], bundle[ORIGIN], bundle[ATTACHED]
        if len(values) == 1:
            self._ran((origin, values, said, (whole_ns,)), whole_ns)
            return
        rest_ns = max(0, whole_ns - sum(durations)) // len(values)
        self._ran((origin, values, said, [duration_ns + rest_ns for duration_ns in durations]), whole_ns)

    def dropped_all(self, bundle: Bundle) -> None:
        """A bundle has been thrown away."""
        self._ran((bundle[ORIGIN], bundle[VALUES], bundle[ATTACHED], None), 0)

    def _ran(self, run: Run, busy_ns: int) -> None:
        if not self._untold:
            self._first_ns = self._clock()
        self._done.append(run)
        self._untold += len(run[1])
        self._untold_ns += busy_ns

    @property
    def hears_one(self) -> bool:
        """Whether nothing that others have sent meanwhile can matter to what is said of a call that has ended."""
        return len(self.senders) == 1

    @property
    def pending(self) -> bool:
        """Whether there is something to tell."""
        return bool(self._done or self._arrivals or self._unheard)

    def due(self, idle: bool) -> bool:
        """Whether there is something to tell, and it may be told. ``idle``: there is nothing left to run."""
        return self.pending and self.due_ns(idle) <= self._clock()

    def due_ns(self, idle: bool) -> int:
        """From when on the task may look up: when it is earned, the sooner the more urgent it is, and soon anyway.

        Senders that hold tuples until long calls have ended wait for nothing but the bound.
        """
        feedback_budget, long = self._feedback_budget, self._long
        if self._untold_ns >= feedback_budget.paying_ns > 0:
            return 0
        if long and self._awaited:
            due_ns = feedback_budget.bound_ns
        elif (long and idle) or (self._awaited and self._untold >= TOGETHER):
            due_ns = feedback_budget.urgent_ns
        else:
            due_ns = min(feedback_budget.ample_ns, max(feedback_budget.urgent_ns, self._looked_ns + LATE_NS))
        return min(due_ns, self._looked_ns + LATE_NS * feedback_budget.tasks)

    @property
    def _long(self) -> bool:
        return self._untold_ns >= LONG_NS and self._untold_ns >= self._untold * EACH_NS

    def look_up(self) -> None:
        """Tell the halves what has arrived, then what has been run."""
        now_ns = self._clock()
        ended, arrivals, spent_ns = self._done, self._arrivals, 0
        awaited = self._awaited and self._long
        late_ns = now_ns - self._first_ns if self._untold else 0
        for half in self._halves.values():
            half.late_ns = late_ns
        self._untold = self._untold_ns = 0
        known = len(ended)  # what ends from here on, in another thread, may not be among the arrivals below
        while self._unheard:
            self._queued += self._unheard.popleft()
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
        self._post()
        self._looked_ns = self._clock()
        spent_ns += self._looked_ns - now_ns
        self._counters.feedback_ns += spent_ns
        if awaited:
            self._feedback_budget.spend_within_bound(spent_ns, now_ns)
        else:
            self._feedback_budget.spend(spent_ns, now_ns)
        if known:
            self._feedback_budget.told()

    def _came(self, part: Any, at_ns: int) -> None:
        if is_feedback(part):
            self._tell(part[VERSION], self._heard, part, at_ns)
            return
        self._queued += part[1]
        if part[0] is not None:
            self._tell(part[0][2], self._received, part, at_ns)

    def _ended(self, run: Run, now_ns: int) -> None:
        origin = run[0]
        self._queued -= len(run[1])
        if origin is None:
            return
        if origin[2] == self.version:
            self._executed(run, now_ns)
        else:
            self._tell(origin[2], self._executed, run, now_ns)

    def _tell(self, version: int, tell: Callable[[Any, int], None], what: Any, now_ns: int) -> None:
        if version == self.version:
            tell(what, now_ns)
        elif version > self.version:
            self._early.append((version, tell, what))

    # -- telling a half

    def _received(self, part: tuple[Origin, int, Sequence[Message | None] | None], now_ns: int) -> None:
        (edge, sender, _), tuples, said = part
        half = self._halves[edge]
        if said is None:
            half.received_many(sender, tuples, now_ns)
            return
        for message in said:
            half.received(sender, message, now_ns)

    def _executed(self, run: Run, now_ns: int) -> None:
        origin, values, said, durations_ns = run
        assert origin is not None
        edge, sender, _ = origin
        try:
            if len(values) == 1 and durations_ns is not None:
                message = None if said is None else said[0]
                self._halves[edge].executed(sender, values[0], message, durations_ns[0], self._queued, now_ns)
            elif durations_ns is not None and said is None:
                self._halves[edge].executed_many(sender, values, durations_ns, self._queued, now_ns)
            else:
                self._ended_one_by_one(self._halves[edge], sender, run, now_ns)
        except AssertionError:
            raise
        except Exception as error:
            raise self._unreadable(edge, values[0] if len(values) == 1 else values, error) from error

    def _ended_one_by_one(self, half: Receiver, sender: int, run: Run, now_ns: int) -> None:
        _, values, said, durations_ns = run
        left = self._queued + len(values)
        for position, value in enumerate(values):
            left -= 1
            message = None if said is None else said[position]
            if durations_ns is None:
                half.dropped(sender, message, left, now_ns)
            else:
                half.executed(sender, value, message, durations_ns[position], left, now_ns)

    def _unreadable(self, edge: int, value: Any, error: Exception) -> TailraceError:
        upstream, downstream = (self._plan.operators[end].name for end in self._plan.edges[edge].ends)
        return TailraceError(
            f"a tuple that has been run can no longer be read: from={upstream} to={downstream} "
            f"grouping={self._plan.edges[edge].grouping.name} tuple={shorten(value)} "
            f"cause={type(error).__name__}: {error}; does {downstream} change its input?"
        )

    def _heard(self, note: FeedbackMessage, now_ns: int) -> None:
        _, edge, sender, _, message = note
        self._halves[edge].hear(sender, message, now_ns)

    def _post(self) -> None:
        for edge, half in self._halves.items():
            outbox = half.outbox
            if outbox:
                first = self._first[edge]
                for sender, message in outbox:
                    self.notes.setdefault(first + sender, []).append(
                        (FEEDBACK, edge, self._task, self.version, message)
                    )
                self._counters.feedback_messages += len(outbox)
                outbox.clear()
