"""Pull, or late binding: a tuple stays with its sender until some task has room for it.

Nobody estimates anything. A task that is free takes the oldest tuple it knows of, so that together the senders' lines
behave as one queue in front of all tasks, which is what exact knowledge of all costs would achieve.

- A task that is idle while nobody waits leaves a *token* with every sender. A sender with a token sends at once; the
  task then takes its other tokens back. If two senders use tokens of one task at the same moment, one tuple queues.
- A sender without tokens holds the tuple and, if it is the first in line, tells all tasks. Every tuple it sends carries
  how many are in line behind it and how long the oldest has waited.
- A task with room *grants* it to the sender whose oldest tuple has waited longest. A sender that has nothing in line by
  then hands it back.
- Room is one tuple, the one being run, and, while more wait than all tasks could take at once, as many as are executed
  in the time between a grant and its tuple: what waits here instead of there loses nothing, and the task never starves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from tailrace.policy.feedback import Message
from tailrace.policy.grouping import HELD

MAX_AHEAD = 64
"""Tuples that a task has asked for beyond the one it runs: a bundle's worth."""

PLENTY = 2
"""Times as many tuples as tasks must be waiting before a task asks for one ahead."""

SMOOTHING = 0.1  # of the round trip and the mean duration


class Credit(NamedTuple):
    """From a task to a sender: send one tuple, now if granted, or when there is one if it is a token."""

    token: bool


class Revoke(NamedTuple):
    """From a task to a sender: the token is no longer good."""


class InLine(NamedTuple):
    """From a sender to a task, alone or on a tuple: who is waiting."""

    tuples: int
    oldest_ns: int  # how long it has waited
    token: bool = False  # the tuple that carries this was sent by a token
    returned: bool = False  # nothing was in line for a grant


class _PullChooser:
    def __init__(self, tasks: int, rng: Random) -> None:
        self.attached: list[tuple[int, Message]] = []
        self.outbox: list[tuple[int, Message]] = []
        self._tasks = tasks
        self._random = rng.random
        self._tokens: list[int] = []
        self._since: deque[int] = deque()  # when each held tuple was held
        self._now_ns = 0

    def tick(self, now_ns: int) -> None:
        self._now_ns = now_ns

    def choose_many(self, values: Sequence[Any]) -> Sequence[int]:
        return [self._choose(position) for position in range(len(values))]

    def _choose(self, position: int) -> int:
        if self._tokens:
            # A random one: senders that took them in order would collide at the same tasks.
            task = self._tokens.pop(int(self._random() * len(self._tokens)))
            self.attached.append((position, InLine(0, 0, token=True)))
            return task
        self._since.append(self._now_ns)
        if len(self._since) == 1:
            self.outbox.extend((task, InLine(1, 0)) for task in range(self._tasks))
        return HELD

    def hear(self, task: int, message: Message, now_ns: int) -> Sequence[int]:
        self._now_ns = now_ns
        if isinstance(message, Revoke):
            if task in self._tokens:
                self._tokens.remove(task)
            return ()
        assert isinstance(message, Credit), message
        if self._since:
            self._since.popleft()
            self.attached.append((0, self._in_line(message.token)))
            return (task,)
        if message.token:
            self._tokens.append(task)
        else:
            self.outbox.append((task, InLine(0, 0, returned=True)))
        return ()

    def _in_line(self, token: bool) -> InLine:
        since = self._since
        return InLine(len(since), self._now_ns - since[0] if since else 0, token)


class _PullReceiver:
    def __init__(self, tasks: int, senders: int) -> None:
        self.outbox: list[tuple[int, Message]] = [(sender, Credit(token=True)) for sender in range(senders)]
        self._plenty = PLENTY * tasks
        self._waiting = [0] * senders  # tuples in line at each sender, as far as known, less those granted since
        self._since_ns = [0] * senders  # the oldest of them
        self._token_out = [True] * senders
        self._granted: list[deque[int]] = [deque() for _ in range(senders)]  # when
        self._taken = 0  # granted, queued or running
        self._round_trip_ns = 0.0
        self._duration_ns = 0.0

    def received(self, sender: int, attached: Message | None, now_ns: int) -> None:
        assert isinstance(attached, InLine), attached
        if attached.token:
            self._token_out[sender] = False
            self._taken += 1
            self._revoke_tokens()
        else:
            self._measure_trip(now_ns - self._granted[sender].popleft())
        self._note(sender, attached, now_ns)

    def executed(
        self, sender: int, value: Any, attached: Message | None, duration_ns: int, queued: int, now_ns: int
    ) -> None:
        self._taken -= 1
        self._duration_ns += (duration_ns - self._duration_ns) * (SMOOTHING if self._duration_ns else 1)
        self._grant(now_ns)

    def hear(self, sender: int, message: Message, now_ns: int) -> None:
        assert isinstance(message, InLine), message
        if message.returned:
            self._granted[sender].popleft()
            self._taken -= 1
        self._note(sender, message, now_ns)

    def _note(self, sender: int, news: InLine, now_ns: int) -> None:
        """What was granted since the news left its sender is no longer waiting."""
        self._waiting[sender] = max(0, news.tuples - len(self._granted[sender]))
        self._since_ns[sender] = now_ns - news.oldest_ns
        self._grant(now_ns)

    def _measure_trip(self, trip_ns: int) -> None:
        self._round_trip_ns += (trip_ns - self._round_trip_ns) * SMOOTHING

    def _revoke_tokens(self) -> None:
        for sender, out in enumerate(self._token_out):
            if out:
                self._token_out[sender] = False
                self.outbox.append((sender, Revoke()))

    def _grant(self, now_ns: int) -> None:
        while any(self._waiting) and self._taken < self._room():
            sender = min((since, sender) for sender, since in enumerate(self._since_ns) if self._waiting[sender])[1]
            self._waiting[sender] -= 1
            self._granted[sender].append(now_ns)
            self._taken += 1
            self.outbox.append((sender, Credit(token=False)))
        if self._taken:
            self._revoke_tokens()
        else:
            for sender, out in enumerate(self._token_out):
                if not out:
                    self._token_out[sender] = True
                    self.outbox.append((sender, Credit(token=True)))

    def _room(self) -> int:
        if not self._round_trip_ns or sum(self._waiting) < self._plenty:
            return 1
        return 1 + min(MAX_AHEAD, 1 + int(self._round_trip_ns / max(1.0, self._duration_ns)))


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

    def bind_receiver(self, task: int, tasks: int, senders: int, rng: Random) -> _PullReceiver:
        return _PullReceiver(tasks, senders)


def pull() -> Pull:
    """Late binding: tasks that are free ask for tuples, and get the oldest they know of."""
    return Pull()
