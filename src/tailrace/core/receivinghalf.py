"""The receiving halves of a task: one for each load-aware edge into it, told what arrives and what has been run.

Whoever brings bundles and notes, from whatever thread, only appends them, and so does whoever has run a tuple, which
is another task's thread where several draw from one queue. The thread that runs the task tells the halves about them
between calls, and of calls that have ended only after that: a half that gives out credits when a tuple is done should
know by then who waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from tailrace.clock import Clock
from tailrace.core.plan import EdgePlan, Plan
from tailrace.core.router import NOTE, Note, Origin, TrackedBundle
from tailrace.errors import TailraceError, shorten
from tailrace.metrics.counters import TaskCounters
from tailrace.policy.feedback import Message, Receiver, Silent, has_feedback

DROPPED = -1
"""The duration of what was not run."""


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
        self._done: deque[tuple[Origin | None, Any, Message | None, int]] = deque()
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
        patient = all(getattr(half, "patient", False) for half in self._halves.values())
        self.patient = patient and self.hears_one
        self._deaf = all(isinstance(half, Silent) and not half.hears_arrivals for half in self._halves.values())
        self._post()

    # -- what happens

    def executed(self, origin: Origin | None, value: Any, message: Message | None, duration_ns: int) -> None:
        """A tuple has been run. The halves hear of it when the task looks up."""
        self._done.append((origin, value, message, duration_ns))

    def executed_all(self, bundle: Sequence[Any], durations: Sequence[int], whole_ns: int) -> None:
        """A bundle has been run; what took longer than the calls themselves is shared out evenly."""
        values = bundle[5]
        origin, said = (bundle[6], bundle[7]) if len(bundle) > 6 else (None, None)
        if len(values) == 1:
            self._done.append((origin, values[0], None if said is None else said[0], whole_ns))
            return
        rest_ns = max(0, whole_ns - sum(durations)) // len(values)
        for position, value in enumerate(values):
            message = None if said is None else said[position]
            self._done.append((origin, value, message, durations[position] + rest_ns))

    def dropped_all(self, bundle: Sequence[Any]) -> None:
        """A bundle has been thrown away."""
        origin, said = (bundle[6], bundle[7]) if len(bundle) > 6 else (None, None)
        for position, value in enumerate(bundle[5]):
            self._done.append((origin, value, None if said is None else said[position], DROPPED))

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
        for _ in range(known):
            done = ended.popleft()
            self._queued -= 1
            if done[0] is not None:
                self._tell(done[0][2], self._executed, (*done, self._queued), now_ns)
        self._post()
        self._counters.feedback_ns += self._clock() - now_ns

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

    def _executed(self, done: tuple[Origin, Any, Message | None, int, int], now_ns: int) -> None:
        (edge, sender, _), value, message, duration_ns, queued = done
        half = self._halves[edge]
        if duration_ns == DROPPED:
            half.dropped(sender, message, queued, now_ns)
            return
        try:
            half.executed(sender, value, message, duration_ns, queued, now_ns)
        except Exception as error:
            upstream, downstream = (self._plan.operators[end].name for end in self._plan.edges[edge].ends)
            raise TailraceError(
                f"a tuple that has been run can no longer be read: from={upstream} to={downstream} "
                f"grouping={self._plan.edges[edge].grouping.name} tuple={shorten(value)} "
                f"cause={type(error).__name__}: {error}; does {downstream} change its input?"
            ) from error

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
