"""Pull at a task: whom it gives credits, and for how many tuples. ``grouping`` says what they are for."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from tailrace.clock import SECOND_NS
from tailrace.policy.groupings.feedback import Message, Receiver
from tailrace.policy.groupings.pull.lone_sender import MAX_AHEAD, SMOOTHING

TRIPS = 80
MAX_PLENTY = 2
"""Plenty is, for each task, an execution over so many round trips, and at most 2 tuples. Found by simulation: with
executions of 32 ms, fewer than 2 hurt the tail at trips of 0.2 ms, and more than 1/2 the mean at trips of 2 ms; with
8 ms the mean is least at 1/2 for trips of 0.2 ms, and with 3 ms at none at all."""

STAY_NS = SECOND_NS
LONGEST_STAY_NS = 8 * SECOND_NS
"""How long a task that is told late stands open, and how long at most if it had to open again and again. To find out
that it is still too early takes some hundredths of a second in which tuples wait."""


class Credit(NamedTuple):
    """From a task to a sender: send so many tuples now if they are granted, or when there are any, each by a token."""

    token: bool
    ahead: bool = False  # of what the task still has to run
    tuples: int = 1
    open: bool = False  # the task stands open: what is sent by its tokens need not say so

    @property
    def wants_answer(self) -> bool:
        """Whoever has nothing to send must say so: others may have."""
        return not self.token


class Revoke(NamedTuple):
    """From a task to a sender: tokens are no longer good."""

    answer: bool = False  # there may have been several

    @property
    def wants_answer(self) -> bool:
        return self.answer


class InLine(NamedTuple):
    """From a sender to a task, alone or on a tuple (the last of those that were granted at once): who is waiting."""

    tuples: int
    oldest_ns: int  # how long it has waited
    token: bool = False  # the tuple that carries this was sent by a token; of a grant: one was kept as a token
    returned: int = 0  # tuples that were granted and for which nothing was in line
    revoked: bool = False  # tokens were taken back: those that have not been used by now are gone


class PullReceiver(Receiver):
    """What it gives out is worked out when its outbox is read: once for all that it has been told of until then."""

    senders_wait = True

    def __init__(self, tasks: int, senders: int) -> None:
        super().__init__()
        self._outbox += [(sender, Credit(True)) for sender in range(senders)]
        self._told = False  # of something since then
        self._now_ns = 0  # when that was
        self._tasks = tasks
        self._senders = range(senders)
        self._waiting = [0] * senders  # tuples in line at each sender, as far as known, less those granted since
        self._since_ns = [0] * senders  # the oldest of them
        self._tokens_out = [1] * senders
        self._revoking = [False] * senders  # several tokens, and it has not answered
        self._open = False
        self._stay_ns = 0  # for which it was to stand open, the last time that it was told late
        self._until_ns = 0  # that was
        self._closed_ns = 0  # when it no longer did
        self._granted: list[deque[tuple[int, int]]] = [deque() for _ in range(senders)]  # when, and tuples yet to come
        self._coming = [0] * senders  # all of them
        self._here = [0] * senders  # tuples of each that are queued or running
        self._taken = 0  # granted, queued or running
        self._lateness_ns = 0.0  # this and the next are means
        self._round_trip_ns = 0.0
        self._duration_ns = 0.0

    @property
    def outbox(self) -> list[tuple[int, Message]]:
        if self._told:
            self._told = False
            self._give_out(self._now_ns)
        return self._outbox

    # -- what it is told

    def received(self, sender: int, attached: Message | None, now_ns: int) -> None:
        if attached is None:
            self.received_many(sender, 1, now_ns)
            return
        assert isinstance(attached, InLine), attached
        self._here[sender] += 1
        if attached.token:
            self._come_by_token(sender, 1)
        else:
            self._measure_trip(now_ns - self._come_by_grant(sender, 1))
        self._note(sender, attached, now_ns)

    def received_many(self, sender: int, tuples: int, now_ns: int) -> None:
        self._here[sender] += tuples
        if self._coming[sender]:
            self._come_by_grant(sender, tuples)
        else:
            self._come_by_token(sender, tuples)

    def _come_by_token(self, sender: int, tuples: int) -> None:
        """Of tokens that were revoked meanwhile none count."""
        self._tokens_out[sender] = max(0, self._tokens_out[sender] - tuples)
        self._taken += tuples

    def _come_by_grant(self, sender: int, tuples: int) -> int:
        """What was granted has come, or will not. When the last of it was granted."""
        assert tuples <= self._coming[sender], f"what nobody granted: sender={sender} tuples={tuples}"
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
        self._ran(sender, 1, duration_ns, now_ns)

    def executed_many(
        self, sender: int, values: Sequence[Any], durations_ns: Sequence[int], queued: int, now_ns: int
    ) -> None:
        self._ran(sender, len(values), sum(durations_ns), now_ns)

    def _ran(self, sender: int, tuples: int, busy_ns: int, now_ns: int) -> None:
        assert tuples <= self._here[sender], f"what never came was run: sender={sender} tuples={tuples}"
        self._here[sender] -= tuples
        self._taken -= tuples
        weight = min(1.0, SMOOTHING * tuples) if self._duration_ns else 1
        self._duration_ns += (busy_ns / tuples - self._duration_ns) * weight
        self._lateness_ns += (self.late_ns - self._lateness_ns) * SMOOTHING
        self._told, self._now_ns = True, now_ns

    def dropped(self, sender: int, attached: Message | None, queued: int, now_ns: int) -> None:
        self._here[sender] -= 1
        self._taken -= 1
        self._told, self._now_ns = True, now_ns

    def hear(self, sender: int, message: Message, now_ns: int) -> None:
        assert isinstance(message, InLine), message
        if message.returned:
            self._come_by_grant(sender, message.returned)
            self._taken -= message.returned
            self._tokens_out[sender] = int(message.token)
        if message.revoked:
            self._revoking[sender] = False
            self._tokens_out[sender] = 0
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

    # -- what it gives out

    def _give_out(self, now_ns: int) -> None:
        most, senders = self._most(), len(self._senders)
        if self._open:
            if most < max(3, senders) and now_ns >= self._until_ns:
                self._close(now_ns)
        elif most >= 2 * senders:
            self._open = True
        elif self._lateness_ns >= self._duration_ns > 0:
            self._open = True
            again = now_ns - self._closed_ns < self._stay_ns
            self._stay_ns = min(LONGEST_STAY_NS, 2 * self._stay_ns) if again else STAY_NS
            self._until_ns = now_ns + self._stay_ns
        if self._open:
            self._stand_open(-(-most // senders))
        else:
            self._grant(most, now_ns)

    def _most(self) -> int:
        """Tuples that may be here while plenty wait. One, where nobody is idle meanwhile, or nothing takes any time."""
        trip_ns, call_ns = self._round_trip_ns, self._duration_ns
        idle_ns = trip_ns + self._lateness_ns
        if not (idle_ns and (trip_ns or call_ns)):
            return 1
        return 1 + min(MAX_AHEAD, 1 + int(idle_ns / max(1.0, call_ns)))

    def _stand_open(self, room: int) -> None:
        """For so many tuples of each sender. Tokens are handed out in handfuls, unless somebody has none."""
        for sender in self._senders:
            if self._coming[sender] or self._revoking[sender]:
                continue
            out = self._tokens_out[sender]
            tuples = room - out - self._here[sender]
            if tuples > 0 and (not out or 2 * tuples >= room):
                self._tokens_out[sender] = out + tuples
                self._outbox.append((sender, Credit(True, False, tuples, open=True)))

    def _close(self, now_ns: int) -> None:
        """Of all: a sender may have a token more than is known here, instead of one it used when that was revoked."""
        self._open, self._closed_ns = False, now_ns
        for sender in self._senders:
            self._revoking[sender] = True
            self._outbox.append((sender, Revoke(answer=True)))

    def _grant(self, most: int, now_ns: int) -> None:
        waiting = [0 if out else tuples for tuples, out in zip(self._waiting, self._revoking, strict=True)]
        in_line = sum(waiting)
        while in_line:
            sender = min((since, sender) for sender, since in enumerate(self._since_ns) if waiting[sender])[1]
            tuples = min(waiting[sender], self._room(most, in_line))
            if tuples <= 0:
                break
            in_line -= tuples
            waiting[sender] -= tuples
            self._waiting[sender] -= tuples
            self._granted[sender].append((now_ns, tuples))
            self._coming[sender] += tuples
            self._outbox.append((sender, Credit(False, self._taken > 0, tuples)))
            self._taken += tuples
        idle = not self._taken
        for sender, out in enumerate(self._tokens_out):
            if (out > 0) != idle and not self._revoking[sender]:
                self._tokens_out[sender] = int(idle)
                self._outbox.append((sender, Credit(True) if idle else Revoke()))

    def _room(self, most: int, in_line: int) -> int:
        """For one if nothing is here, and for more while plenty wait: every one beyond may go ahead, and one more."""
        room = 1 - self._taken
        if most > 1:
            plenty = min(MAX_PLENTY, self._duration_ns / (TRIPS * max(1.0, self._round_trip_ns)))
            beyond = in_line - plenty * self._tasks
            if beyond >= 0:
                room = max(room, min(most - self._taken, 1 + int(beyond)))
        return room
