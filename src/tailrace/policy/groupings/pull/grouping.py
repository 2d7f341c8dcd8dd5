"""Pull, or late binding: a tuple stays with its sender until some task has room for it.

Nobody estimates anything. A task that is free takes the oldest tuple it knows of, so that together the senders' lines
behave as one queue in front of all tasks, which is what exact knowledge of all costs would achieve.

- A task that is idle while nobody waits leaves a *token* with every sender. A sender with a token sends at once; the
  task then takes its other tokens back. If two senders use tokens of one task at the same moment, one tuple queues.
- A sender without tokens holds the tuple and, if it is the first in line, tells all tasks. What it sends carries how
  many are in line behind it and how long the oldest has waited; it tells the tasks that do not get the tuple as well,
  though not more than once in four milliseconds.
- A task with room *grants* it to the sender whose oldest tuple has waited longest, for as many tuples as there is room.
  Of what a sender has nothing in line for by then it keeps a token if the task is idle, and hands back the rest.
- Room is one tuple, the one being run, and, while plenty wait, as many more as are executed in the time between a grant
  and its tuple, and before that until the task has been told what it has run. A tuple that waits at a busy task may
  miss another that gets free, and a task that waits for its grant to come back as a tuple is idle: the longer the trip
  beside an execution, the fewer are plenty.

Where calls are much shorter than trips, or tasks are told late what they have run, nothing is gained by holding tuples,
and much is lost by waiting for grants. There a task *stands open*: it leaves every sender as many tokens as it has room
for, and hands out new ones for what it has run. It need not know who waits, and senders use tokens in turn: what they
know of queues is too old to go by. When calls get longer a task takes its tokens back, and grants nothing to a sender
before that has answered.

Grants take several times as many messages as tokens that are good for long, and more messages may be what made a task
hear so late. So one that is told later than a call takes stands open for a second, and for longer whenever it had to
open again soon.

A sender that is alone knows all this without being told: see ``lone_sender``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tailrace.clock import MICROSECOND_NS, MILLISECOND_NS
from tailrace.policy.groupings.api import HELD
from tailrace.policy.groupings.feedback import FeedbackChooser, Message
from tailrace.policy.groupings.pull.lone_sender import LoneReceiver, LoneSender, Ran
from tailrace.policy.groupings.pull.receiver import Credit, InLine, PullReceiver, Revoke

TOGETHER_NS = 100 * MICROSECOND_NS
"""Tuples that are held within this time have waited for as long as each other."""

TELL_EVERY_NS = 4 * MILLISECOND_NS
"""How often a sender tells tasks of its line that do not hear of it otherwise: bounds what that costs."""


class _PullChooser(FeedbackChooser):
    def __init__(self, tasks: int, rng: Random) -> None:
        super().__init__()
        self._tasks = tasks
        self._random = rng.random
        self._tokens: dict[int, int] = {}  # of each task that has left any
        self._open: set[int] = set()  # tasks
        self._alone: LoneSender | None = None  # once it is known that nobody else sends
        self._line: deque[tuple[int, int]] = deque()  # when tuples were held, and how many of them
        self._held = 0  # in all
        self._now_ns = 0
        self._told_ns = 0  # when all tasks heard of the line

    @property
    def credits(self) -> int:
        """Tuples that it may send at once."""
        return sum(self._tokens.values())

    def tick(self, now_ns: int) -> None:
        self._now_ns = now_ns

    def choose_many(self, values: Sequence[Any]) -> Sequence[int]:
        if self._alone is not None:
            return self._alone.choose_many(len(values), self._now_ns)
        choices = [self._spend_token(position) for position in range(min(len(values), self.credits))]
        held = len(values) - len(choices)
        if held:
            self._hold(held)
        return choices + [HELD] * held

    def _hold(self, tuples: int) -> None:
        line = self._line
        if line and self._now_ns - line[-1][0] < TOGETHER_NS:
            since_ns, others = line.pop()
            line.append((since_ns, others + tuples))
        else:
            line.append((self._now_ns, tuples))
        self._held += tuples
        if self._held == tuples:
            self._tell(None)

    def _spend_token(self, position: int) -> int:
        """In turn of tasks that stand open; else of a random one: others have tokens of the same tasks."""
        tokens = self._tokens
        task = next(iter(tokens))
        if task not in self._open:
            task = list(tokens)[int(self._random() * len(tokens))]
        left = tokens.pop(task) - 1
        if left:
            tokens[task] = left  # behind the others
        if task not in self._open:
            self.attached.append((position, InLine(0, 0, token=True)))
        return task

    def hear(self, task: int, message: Message, now_ns: int) -> Iterable[int]:
        self._now_ns = now_ns
        if isinstance(message, Ran):
            return self._hear_alone(task, message)
        if isinstance(message, Revoke):
            self._tokens.pop(task, None)
            if message.answer:
                self._open.discard(task)
                self.outbox.append((task, self._in_line(token=False)._replace(revoked=True)))
            return ()
        assert isinstance(message, Credit), message
        if message.open:
            self._open.add(task)
        return (task,) * self._use(task, message)

    def _use(self, task: int, credit: Credit) -> int:
        """How many tuples leave by it. What is left of a grant goes back; one is kept as a token of an idle task."""
        leaving = min(credit.tuples, self._held)
        if leaving:
            self._take(leaving)
            if not credit.open:
                self.attached.append((leaving - 1, self._in_line(credit.token)))
            if self._now_ns - self._told_ns >= TELL_EVERY_NS:
                self._tell(task)
        left = credit.tuples - leaving
        if not left:
            return leaving
        kept = left if credit.token else int(not (leaving or credit.ahead))
        if kept:
            self._tokens[task] = self._tokens.get(task, 0) + kept
        if not credit.token:
            self.outbox.append((task, InLine(0, 0, token=kept > 0, returned=left)))
        return leaving

    def _take(self, tuples: int) -> None:
        """The first in line leave it."""
        line = self._line
        self._held -= tuples
        while tuples:
            since_ns, held = line.popleft()
            if held > tuples:
                line.appendleft((since_ns, held - tuples))
                break
            tuples -= held

    def _hear_alone(self, task: int, ran: Ran) -> Iterable[int]:
        if self._alone is None:
            self._alone = LoneSender(self._tasks)
            self._alone.hold(self._held)
        return self._alone.hear(task, ran, self._now_ns)

    def _tell(self, but: int | None) -> None:
        """Tasks that stand open do not ask who waits."""
        self._told_ns = self._now_ns
        news = self._in_line(token=False)
        self.outbox.extend((task, news) for task in range(self._tasks) if task != but and task not in self._open)

    def _in_line(self, token: bool) -> InLine:
        return InLine(self._held, self._now_ns - self._line[0][0] if self._held else 0, token)


@dataclass(frozen=True)
class Pull:
    """Each tuple stays with its sender until a task has room. ``pull()`` makes one."""

    name = "pull"
    keyed = False

    def bind(self, tasks: int, rng: Random) -> _PullChooser:
        return _PullChooser(tasks, rng)

    def bind_receiver(self, task: int, tasks: int, senders: int, rng: Random) -> PullReceiver | LoneReceiver:
        return PullReceiver(tasks, senders) if senders > 1 else LoneReceiver()


def pull() -> Pull:
    """Hold each tuple at its sender until a task is free, which then gets the one that has waited longest.

    Example:
        >>> requests = tr.Topology("requests").source("requests", tr.from_iterable(range(10)))
        >>> requests.map("answer", str, tasks=4, grouping=tr.pull(), kind="blocking")
        Stream(answer.main)
    """
    return Pull()
