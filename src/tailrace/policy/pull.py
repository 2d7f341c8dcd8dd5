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
  and its tuple. A tuple that waits at a busy task may miss another that gets free, and a task that waits for its grant
  to come back as a tuple is idle: the longer the trip beside an execution, the fewer are plenty.

A sender that is alone knows all this without being told: see ``pull_alone``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from tailrace.clock import MILLISECOND_NS
from tailrace.policy.feedback import Message
from tailrace.policy.grouping import HELD
from tailrace.policy.pull_alone import MAX_AHEAD, SMOOTHING, LoneReceiver, LoneSender, Ran

TRIPS = 80
MAX_PLENTY = 2
"""Plenty is, for each task, an execution over so many round trips, and at most 2 tuples. Found by simulation: with
executions of 32 ms, fewer than 2 hurt the tail at trips of 0.2 ms, and more than 1/2 the mean at trips of 2 ms; with
8 ms the mean is least at 1/2 for trips of 0.2 ms, and with 3 ms at none at all."""

TELL_EVERY_NS = 4 * MILLISECOND_NS
"""How often a sender tells tasks of its line that do not hear of it otherwise: bounds what that costs."""


class Credit(NamedTuple):
    """From a task to a sender: send so many tuples now if they are granted, or one when there is one by a token."""

    token: bool
    ahead: bool = False  # of what the task still has to run
    tuples: int = 1

    @property
    def wants_answer(self) -> bool:
        """Whoever has nothing to send must say so: others may have."""
        return not self.token


class Revoke(NamedTuple):
    """From a task to a sender: the token is no longer good."""


class InLine(NamedTuple):
    """From a sender to a task, alone or on a tuple (the last of those that were granted at once): who is waiting."""

    tuples: int
    oldest_ns: int  # how long it has waited
    token: bool = False  # the tuple that carries this was sent by a token; of a grant: one was kept as a token
    returned: int = 0  # tuples that were granted and for which nothing was in line


class _PullChooser:
    def __init__(self, tasks: int, rng: Random) -> None:
        self.attached: list[tuple[int, Message]] = []
        self.outbox: list[tuple[int, Message]] = []
        self._tasks = tasks
        self._random = rng.random
        self._tokens: list[int] = []
        self._alone: LoneSender | None = None  # once it is known that nobody else sends
        self._since: deque[int] = deque()  # when each held tuple was held
        self._now_ns = 0
        self._told_ns = 0  # when all tasks heard of the line

    @property
    def credits(self) -> int:
        """Tuples that it may send at once."""
        return len(self._tokens)

    def tick(self, now_ns: int) -> None:
        self._now_ns = now_ns

    def choose_many(self, values: Sequence[Any]) -> Sequence[int]:
        if self._alone is not None:
            return self._alone.choose_many(len(values), self._now_ns)
        return [self._choose(position) for position in range(len(values))]

    def _choose(self, position: int) -> int:
        if self._tokens:
            # A random one: senders that took them in order would collide at the same tasks.
            task = self._tokens.pop(int(self._random() * len(self._tokens)))
            self.attached.append((position, InLine(0, 0, token=True)))
            return task
        self._since.append(self._now_ns)
        if len(self._since) == 1:
            self._tell(None)
        return HELD

    def hear(self, task: int, message: Message, now_ns: int) -> Iterable[int]:
        self._now_ns = now_ns
        if isinstance(message, Ran):
            return self._hear_alone(task, message)
        if isinstance(message, Revoke):
            if task in self._tokens:
                self._tokens.remove(task)
            return ()
        assert isinstance(message, Credit), message
        return (task,) * self._use(task, message)

    def _use(self, task: int, credit: Credit) -> int:
        """How many tuples leave by it. What is left of it goes back; one stays here as a token if the task is idle."""
        leaving = min(credit.tuples, len(self._since))
        if leaving:
            for _ in range(leaving):
                self._since.popleft()
            self.attached.append((leaving - 1, self._in_line(credit.token)))
            if self._now_ns - self._told_ns >= TELL_EVERY_NS:
                self._tell(task)
        left = credit.tuples - leaving
        if left:
            kept = not (leaving or credit.ahead)
            if kept:
                self._tokens.append(task)
            if not credit.token:
                self.outbox.append((task, InLine(0, 0, token=kept, returned=left)))
        return leaving

    def _hear_alone(self, task: int, ran: Ran) -> Iterable[int]:
        if self._alone is None:
            self._alone = LoneSender(self._tasks)
            self._alone.hold(len(self._since))
        return self._alone.hear(task, ran, self._now_ns)

    def _tell(self, but: int | None) -> None:
        self._told_ns = self._now_ns
        news = self._in_line(token=False)
        self.outbox.extend((task, news) for task in range(self._tasks) if task != but)

    def _in_line(self, token: bool) -> InLine:
        since = self._since
        return InLine(len(since), self._now_ns - since[0] if since else 0, token)


class _PullReceiver:
    """What it gives out is worked out when its outbox is read: once for all that it has been told of until then."""

    awaited = True

    def __init__(self, tasks: int, senders: int) -> None:
        self._outbox: list[tuple[int, Message]] = [(sender, Credit(True)) for sender in range(senders)]
        self._told = False  # of something since then
        self._now_ns = 0  # when that was
        self._tasks = tasks
        self._waiting = [0] * senders  # tuples in line at each sender, as far as known, less those granted since
        self._since_ns = [0] * senders  # the oldest of them
        self._token_out = [True] * senders
        self._granted: list[deque[tuple[int, int]]] = [deque() for _ in range(senders)]  # when, and tuples yet to come
        self._coming = [0] * senders  # all of them
        self._taken = 0  # granted, queued or running
        self._round_trip_ns = 0.0
        self._duration_ns = 0.0

    @property
    def outbox(self) -> list[tuple[int, Message]]:
        if self._told:
            self._told = False
            self._grant(self._now_ns)
        return self._outbox

    def received(self, sender: int, attached: Message | None, now_ns: int) -> None:
        if attached is None:
            self._come(sender, 1)
            return
        assert isinstance(attached, InLine), attached
        if attached.token:
            self._token_out[sender] = False
            self._taken += 1
        else:
            self._measure_trip(now_ns - self._come(sender, 1))
        self._note(sender, attached, now_ns)

    def received_many(self, sender: int, tuples: int, now_ns: int) -> None:
        self._come(sender, tuples)

    def _come(self, sender: int, tuples: int) -> int:
        """What was granted has come, or will not. When the last of it was granted."""
        self._coming[sender] -= tuples
        granted = self._granted[sender]
        while True:
            granted_ns, coming = granted.popleft()
            if coming >= tuples:
                break
            tuples -= coming
        if coming > tuples:
            granted.appendleft((granted_ns, coming - tuples))
        return granted_ns

    def executed(
        self, sender: int, value: Any, attached: Message | None, duration_ns: int, queued: int, now_ns: int
    ) -> None:
        self._ran(1, duration_ns, now_ns)

    def executed_many(
        self, sender: int, values: Sequence[Any], durations_ns: Sequence[int], queued: int, now_ns: int
    ) -> None:
        self._ran(len(values), sum(durations_ns), now_ns)

    def _ran(self, tuples: int, busy_ns: int, now_ns: int) -> None:
        self._taken -= tuples
        weight = min(1.0, SMOOTHING * tuples) if self._duration_ns else 1
        self._duration_ns += (busy_ns / tuples - self._duration_ns) * weight
        self._told, self._now_ns = True, now_ns

    def dropped(self, sender: int, attached: Message | None, queued: int, now_ns: int) -> None:
        self._taken -= 1
        self._told, self._now_ns = True, now_ns

    def hear(self, sender: int, message: Message, now_ns: int) -> None:
        assert isinstance(message, InLine), message
        if message.returned:
            self._come(sender, message.returned)
            self._taken -= message.returned
            self._token_out[sender] = message.token
        self._note(sender, message, now_ns)

    def _note(self, sender: int, news: InLine, now_ns: int) -> None:
        """What was granted since the news left its sender is no longer waiting."""
        self._waiting[sender] = max(0, news.tuples - self._coming[sender])
        self._since_ns[sender] = now_ns - news.oldest_ns
        self._told, self._now_ns = True, now_ns

    def _measure_trip(self, trip_ns: int) -> None:
        """Only where nothing else is here: a task that is busy looks up when its call ends, not when a tuple comes."""
        if self._taken - 1 == sum(self._coming):
            self._round_trip_ns += (trip_ns - self._round_trip_ns) * (SMOOTHING if self._round_trip_ns else 1)

    def _grant(self, now_ns: int) -> None:
        waiting = self._waiting
        while any(waiting):
            sender = min((since, sender) for sender, since in enumerate(self._since_ns) if waiting[sender])[1]
            tuples = self._room_for(waiting[sender])
            if not tuples:
                break
            waiting[sender] -= tuples
            self._granted[sender].append((now_ns, tuples))
            self._coming[sender] += tuples
            self._outbox.append((sender, Credit(False, self._taken > 0, tuples)))
            self._taken += tuples
        idle = not self._taken
        for sender, out in enumerate(self._token_out):
            if out != idle:
                self._token_out[sender] = idle
                self._outbox.append((sender, Credit(True) if idle else Revoke()))

    def _room_for(self, tuples: int) -> int:
        """How many of them: one if nothing is here, and more while plenty wait."""
        room = 1 - self._taken
        if self._round_trip_ns:
            plenty = min(MAX_PLENTY, self._duration_ns / (TRIPS * self._round_trip_ns))
            beyond = sum(self._waiting) - plenty * self._tasks  # every one of these may go ahead, and one more
            if beyond >= 0:
                most = 1 + min(MAX_AHEAD, 1 + int(self._round_trip_ns / max(1.0, self._duration_ns)))
                room = max(room, min(most - self._taken, 1 + int(beyond)))
        return max(0, min(tuples, room))


@dataclass(frozen=True)
class Pull:
    """Hold each tuple until a task has room; the longest waiting first."""

    @property
    def name(self) -> str:
        return "pull"

    @property
    def keyed(self) -> bool:
        return False

    def bind(self, tasks: int, rng: Random) -> _PullChooser:
        return _PullChooser(tasks, rng)

    def bind_receiver(self, task: int, tasks: int, senders: int, rng: Random) -> _PullReceiver | LoneReceiver:
        return _PullReceiver(tasks, senders) if senders > 1 else LoneReceiver()


def pull() -> Pull:
    """Late binding: tasks that are free ask for tuples, and get the oldest they know of."""
    return Pull()
