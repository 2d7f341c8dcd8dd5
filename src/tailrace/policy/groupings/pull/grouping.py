"""Pull, or late binding: a tuple stays with its sender until some task has room for it.

Decides when a tuple leaves its sender, and for which task, from what tasks say about their room. Nothing is estimated.
A free task takes the oldest tuple that it knows of, so the held queues of all senders together behave like one queue in
front of all tasks, as exact knowledge of all costs would. The idea is late binding as in Sparrow (Ousterhout et al.,
2013); the protocol below is our own. Law: those of ``FeedbackChooser`` and ``Receiver``.

- An idle task, while nothing waits, leaves a *token* with every sender. A sender with a token sends at once, and the
  task then revokes its other tokens. If two senders use tokens of one task at the same moment, one tuple queues.
- A sender without tokens holds the tuple. If it is the first held, the sender tells all tasks. Each tuple that it sends
  carries how many tuples are still held and how long the oldest has waited. The tasks that do not get the tuple are
  told as well, though at most once in four milliseconds.
- A task with room *grants* it to the sender whose oldest tuple has waited longest, for as many tuples as there is room.
  If the sender no longer holds that many, it keeps a token if the task is idle, and returns the rest of the grant.
- Room is one tuple, the one being run. While plenty of tuples wait, there is room for as many more as the task runs
  between a grant and the arrival of its tuple, and before that until it learns what it has run. A tuple that waits at a
  busy task may miss another task that becomes free; a task that waits for the tuple of a grant is idle. The longer the
  trip compared with an execution, the fewer tuples are plenty.

Where calls are much shorter than trips, or tasks learn late what they have run, holding tuples gains nothing and
waiting for grants loses much. There a task gives *standing credits*: it leaves every sender as many tokens as it has
room for, and hands out new ones for what it has run. It need not know who waits, and senders use these tokens in turn,
because what they know of queues is too old to go by. When calls become longer, the task revokes its tokens, and grants
nothing to a sender before the sender has answered.

Grants take several times as many messages as standing credits, and messages may be the reason why a task learns so
late. A task that learns later than a call takes therefore gives standing credits for a second, and for longer each time
it has to return to them soon.

A lone sender knows all this without being told: see ``lone_sender``.
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
from tailrace.policy.groupings.pull.receiver import Credit, Held, PullReceiver, Revoke

TOGETHER_NS = 100 * MICROSECOND_NS
"""Tuples that are held within this time count as having waited equally long."""

TELL_EVERY_NS = 4 * MILLISECOND_NS
"""A sender tells tasks about its held queue at most once in this time, unless they hear of it otherwise."""


class _PullChooser(FeedbackChooser):
    def __init__(self, tasks: int, rng: Random) -> None:
        super().__init__()
        self._tasks = tasks
        self._random = rng.random
        self._tokens: dict[int, int] = {}  # by task, without tasks that have left none
        self._standing: set[int] = set()  # tasks whose tokens are standing credits
        self._alone: LoneSender | None = None  # set when it is known that no other task sends
        self._since_ns: deque[tuple[int, int]] = deque()  # since when tuples are held, and how many
        self._held = 0  # all of them
        self._now_ns = 0
        self._told_ns = 0  # when tasks were last told about the held queue

    @property
    def credits(self) -> int:
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
        held = self._since_ns
        if held and self._now_ns - held[-1][0] < TOGETHER_NS:
            since_ns, others = held.pop()
            held.append((since_ns, others + tuples))
        else:
            held.append((self._now_ns, tuples))
        self._held += tuples
        if self._held == tuples:
            self._tell_all(None)

    def _spend_token(self, position: int) -> int:
        """Standing credits are used in turn, other tokens at random: other senders have tokens of the same tasks."""
        tokens = self._tokens
        task = next(iter(tokens))
        if task not in self._standing:
            task = list(tokens)[int(self._random() * len(tokens))]
        left = tokens.pop(task) - 1
        if left:
            tokens[task] = left  # now the last in turn
        if task not in self._standing:
            self.attached.append((position, Held(0, 0, token=True)))
        return task

    def hear(self, task: int, message: Message, now_ns: int) -> Iterable[int]:
        self._now_ns = now_ns
        if isinstance(message, Ran):
            return self._hear_alone(task, message)
        if isinstance(message, Revoke):
            self._tokens.pop(task, None)
            if message.answer:
                self._standing.discard(task)
                self.outbox.append((task, self._held_now(token=False)._replace(revoked=True)))
            return ()
        assert isinstance(message, Credit), message
        if message.standing:
            self._standing.add(task)
        return (task,) * self._use(task, message)

    def _use(self, task: int, credit: Credit) -> int:
        """Returns how many tuples leave. Unused grants are returned, except for a token if the task is idle."""
        leaving = min(credit.tuples, self._held)
        if leaving:
            self._take(leaving)
            if not credit.standing:
                self.attached.append((leaving - 1, self._held_now(credit.token)))
            if self._now_ns - self._told_ns >= TELL_EVERY_NS:
                self._tell_all(task)
        left = credit.tuples - leaving
        if not left:
            return leaving
        kept = left if credit.token else int(not (leaving or credit.ahead))
        if kept:
            self._tokens[task] = self._tokens.get(task, 0) + kept
        if not credit.token:
            self.outbox.append((task, Held(0, 0, token=kept > 0, returned=left)))
        return leaving

    def _take(self, tuples: int) -> None:
        """The oldest held tuples leave."""
        self._held -= tuples
        while tuples:
            since_ns, held = self._since_ns.popleft()
            if held > tuples:
                self._since_ns.appendleft((since_ns, held - tuples))
                break
            tuples -= held

    def _hear_alone(self, task: int, ran: Ran) -> Iterable[int]:
        if self._alone is None:
            self._alone = LoneSender(self._tasks)
            self._alone.hold(self._held)
        return self._alone.hear(task, ran, self._now_ns)

    def _tell_all(self, but: int | None) -> None:
        """Tell all tasks but one about the held queue, except those that gave standing credits."""
        self._told_ns = self._now_ns
        message = self._held_now(token=False)
        self.outbox.extend((task, message) for task in range(self._tasks) if task != but and task not in self._standing)

    def _held_now(self, token: bool) -> Held:
        return Held(self._held, self._now_ns - self._since_ns[0][0] if self._held else 0, token)


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
