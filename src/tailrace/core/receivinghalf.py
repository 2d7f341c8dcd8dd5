"""The receiving halves of a task: one for each load-aware edge into it, told what arrives and what has been run.

Whoever brings bundles and notes, from whatever thread, only appends them, and so does whoever has run a tuple, which
is another task's thread where several draw from one queue. The thread that runs the task tells the halves about them
between calls, and of calls that have ended only after that: a half that gives out credits when a tuple is done should
know by then who waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

from tailrace.clock import Clock
from tailrace.core.plan import EdgePlan, Plan
from tailrace.core.router import NOTE, Note, Origin, TrackedBundle
from tailrace.errors import TailraceError, shorten
from tailrace.metrics.counters import TaskCounters
from tailrace.policy.feedback import BulkReceiver, Message, Receiver, Silent, has_feedback, hears_many

Run = tuple[Origin | None, Sequence[Any], Sequence[Message | None] | None, Sequence[int] | None]
"""Tuples that were run one after the other: whose, which, what is attached to them, and how long each took.
No durations: they were thrown away."""


class ReceivingHalves:
    """Of one task.

    Law: a half is told of each tuple that came under its membership, and of its execution after its arrival; of nothing
    that came under another one.
    """

    def __init__(
        self, plan: Plan, number: int, edges: Sequence[EdgePlan], counters: TaskCounters, clock: Clock, rng: Random
    ) -> None:
        self.arrivals: deque[Any] = deque()  # bundles and notes nobody was told of
        self.notes: dict[int, list[Note]] = {}  # to senders, by task number; whoever sends them empties it
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
        self._clock = clock
        self._rng = rng
        self._halves: dict[int, Receiver] = {}  # by edge index
        self._first = {edge.index: plan.operators[edge.upstream].first_task for edge in edges}  # sender of each
        self.patient = False  # whether what arrives may be told after the next call
        self._deaf = False  # whether nobody wants to hear what arrives
        self._many: dict[int, BulkReceiver] = {}  # those of them that hear of many at once
        self._done: deque[Run] = deque()
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
            if hears_many(half):
                self._many[edge.index] = half
        patient = all(getattr(half, "patient", False) for half in self._halves.values())
        self.patient = patient and self.hears_one
        self._deaf = all(isinstance(half, Silent) and not half.hears_arrivals for half in self._halves.values())
        self._post()

    # -- what happens

    def executed(self, origin: Origin | None, value: Any, message: Message | None, duration_ns: int) -> None:
        """A tuple has been run. The halves hear of it when the task looks up."""
        self._done.append((origin, (value,), None if message is None else (message,), (duration_ns,)))

    def executed_all(self, bundle: Sequence[Any], durations: Sequence[int], whole_ns: int) -> None:
        """A bundle has been run; what took longer than the calls themselves is shared out evenly."""
        values = bundle[5]
        origin, said = (bundle[6], bundle[7]) if len(bundle) > 6 else (None, None)
        if len(values) == 1:
            self._done.append((origin, values, said, (whole_ns,)))
            return
        rest_ns = max(0, whole_ns - sum(durations)) // len(values)
        self._done.append((origin, values, said, [duration_ns + rest_ns for duration_ns in durations]))

    def dropped_all(self, bundle: Sequence[Any]) -> None:
        """A bundle has been thrown away."""
        origin, said = (bundle[6], bundle[7]) if len(bundle) > 6 else (None, None)
        self._done.append((origin, bundle[5], said, None))

    @property
    def hears_one(self) -> bool:
        """Whether nothing that others have sent meanwhile can matter to what is said of a call that has ended."""
        return len(self.senders) == 1

    @property
    def pending(self) -> bool:
        """Whether there is something to tell."""
        return bool(self.arrivals or self._done)

    def look_up(self) -> None:
        """Tell the halves what has arrived, then what has been run."""
        now_ns = self._clock()
        arrivals, ended = self.arrivals, self._done
        known = len(ended)  # what ends from here on, in another thread, may not be among the arrivals below
        while arrivals:
            item = arrivals.popleft()
            if len(item) == NOTE or not self._deaf:
                self._arrived(item, now_ns)
            else:
                self._queued += len(item[5])
        if known == 1:
            self._ended(ended.popleft(), now_ns)
        elif known:
            for run in joined([ended.popleft() for _ in range(known)]):
                self._ended(run, now_ns)
        self._post()
        self._counters.feedback_ns += self._clock() - now_ns

    def _ended(self, run: Run, now_ns: int) -> None:
        self._queued -= len(run[1])
        if run[0] is not None:
            self._tell(run[0][2], self._executed, (*run, self._queued), now_ns)

    def _arrived(self, item: Any, now_ns: int) -> None:
        if len(item) == NOTE:
            self._tell(item[2], self._heard, item, now_ns)
            return
        self._queued += len(item[5])
        if len(item) > 6:
            self._tell(item[6][2], self._received, item, now_ns)

    def _tell(self, version: int, tell: Callable[[Any, int], None], what: Any, now_ns: int) -> None:
        if version == self.version:
            tell(what, now_ns)
        elif version > self.version:
            self._early.append((version, tell, what))

    # -- telling a half

    def _received(self, bundle: TrackedBundle, now_ns: int) -> None:
        edge, sender, _ = bundle[6]
        half, said = self._halves[edge], bundle[7]
        for position in range(len(bundle[5])):
            half.received(sender, None if said is None else said[position], now_ns)

    def _executed(self, run: tuple[Origin, Any, Any, Sequence[int] | None, int], now_ns: int) -> None:
        (edge, sender, _), values, said, durations_ns, queued = run
        if durations_ns is not None and len(values) > 1 and said is None and edge in self._many:
            try:
                self._many[edge].executed_many(sender, values, durations_ns, queued, now_ns)
            except Exception as error:
                raise self._unreadable(edge, values, error) from error
            return
        half = self._halves[edge]
        for position, value in enumerate(values, 1):
            message = None if said is None else said[position - 1]
            left = queued + len(values) - position
            if durations_ns is None:
                half.dropped(sender, message, left, now_ns)
                continue
            try:
                half.executed(sender, value, message, durations_ns[position - 1], left, now_ns)
            except Exception as error:
                raise self._unreadable(edge, value, error) from error

    def _unreadable(self, edge: int, value: Any, error: Exception) -> TailraceError:
        upstream, downstream = (self._plan.operators[end].name for end in self._plan.edges[edge].ends)
        return TailraceError(
            f"a tuple that has been run can no longer be read: from={upstream} to={downstream} "
            f"grouping={self._plan.edges[edge].grouping.name} tuple={shorten(value)} "
            f"cause={type(error).__name__}: {error}; does {downstream} change its input?"
        )

    def _heard(self, note: Note, now_ns: int) -> None:
        edge, sender, _, message = note
        self._halves[edge].hear(sender, message, now_ns)

    def _post(self) -> None:
        for edge, half in self._halves.items():
            outbox = half.outbox
            if outbox:
                first = self._first[edge]
                for sender, message in outbox:
                    self.notes.setdefault(first + sender, []).append((edge, self._task, self.version, message))
                self._counters.feedback_messages += len(outbox)
                outbox.clear()


def joined(runs: Iterable[Run]) -> list[Run]:
    """The same in fewer: what was run for one sender without a break is one, where nothing is attached."""
    found: list[Run] = []
    last: Origin | None = None  # of the last one, if it may go on
    values: list[Any] = []
    durations_ns: list[int] = []
    for run in runs:
        origin, some, said, took_ns = run
        if origin is None or said is not None or took_ns is None:
            last = None
            found.append(run)
        elif origin is last or origin == last:
            values += some
            durations_ns += took_ns
        else:
            last, values, durations_ns = origin, [*some], [*took_ns]
            found.append((origin, values, None, durations_ns))
    return found
