"""Pull at a receiving task: which senders get credits, and for how many tuples. ``grouping`` has the whole protocol."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from tailrace.clock import SECOND_NS
from tailrace.policy.groupings.feedback import Message, Receiver
from tailrace.policy.groupings.pull.lone_sender import MAX_AHEAD, SMOOTHING

TRIPS = 80
MAX_PLENTY = 2
"""Plenty of tuples wait if there are, for each task, the duration of an execution over ``TRIPS`` round trips, but at
most ``MAX_PLENTY``. Found by simulation. With executions of 32 ms, fewer than 2 hurt the tail at trips of 0.2 ms, and
more than 1/2 hurt the mean at trips of 2 ms. With 8 ms and trips of 0.2 ms the mean is best at 1/2, with 3 ms at 0."""

STAY_NS = SECOND_NS
LONGEST_STAY_NS = 8 * SECOND_NS
"""How long a task that learns late gives standing credits, and how long at most if it has to return to them again and
again. To find out that grants are still too slow takes some hundredths of a second in which tuples wait."""


class Credit(NamedTuple):
    """From a task to a sender: tokens, to send tuples whenever there are any, or a grant, to send held tuples now."""

    token: bool
    ahead: bool = False  # a grant by a task that still has tuples to run
    tuples: int = 1
    standing: bool = False  # standing credits: tuples sent by them carry no message

    @property
    def wants_answer(self) -> bool:
        """A sender that holds nothing must return a grant, because other senders may have tuples."""
        return not self.token


class Revoke(NamedTuple):
    """From a task to a sender: its tokens are no longer valid."""

    answer: bool = False  # the sender must confirm, because it may have had several

    @property
    def wants_answer(self) -> bool:
        return self.answer


class Held(NamedTuple):
    """From a sender to a task, alone or on a tuple (the last one of a grant): how many tuples it holds."""

    tuples: int
    oldest_ns: int  # how long the oldest has waited
    token: bool = False  # the tuple was sent by a token; or, of a returned grant, one was kept as a token
    returned: int = 0  # tuples of a grant that the sender did not have
    revoked: bool = False  # confirms a Revoke: tokens that were not used by now are gone


class PullReceiver(Receiver):
    """Works out credits when its outbox is read, once for everything that was reported until then."""

    senders_wait = True

    def __init__(self, tasks: int, senders: int) -> None:
        super().__init__()
        self._outbox += [(sender, Credit(True)) for sender in range(senders)]
        self._stale = False  # whether something was reported since the outbox was read
        self._now_ns = 0  # time of the last report
        self._tasks = tasks
        self._senders = range(senders)
        self._waiting = [0] * senders  # tuples held by each sender, as far as known, less those granted since
        self._since_ns = [0] * senders  # arrival of the oldest of them at its sender
        self._tokens_out = [1] * senders
        self._revoking = [False] * senders  # a Revoke was sent and is not confirmed
        self._standing = False  # whether it gives standing credits
        self._stay_ns = 0  # for how long it was to do so, the last time that it learnt late
        self._until_ns = 0  # the end of that time
        self._ended_ns = 0  # when it last ceased to do so
        self._granted: list[deque[tuple[int, int]]] = [
            deque() for _ in range(senders)
        ]  # by sender: when, and how many tuples are yet to come
        self._coming = [0] * senders  # the sum of those tuples
        self._here = [0] * senders  # tuples of each sender that are queued or running
        self._taken = 0  # tuples that are granted, queued or running
        self._lateness_ns = 0.0  # these three are means
        self._round_trip_ns = 0.0
        self._duration_ns = 0.0

    @property
    def outbox(self) -> list[tuple[int, Message]]:
        if self._stale:
            self._stale = False
            self._give_out(self._now_ns)
        return self._outbox

    # -- what the driver reports

    def received(self, sender: int, attached: Message | None, now_ns: int) -> None:
        if attached is None:
            self.received_many(sender, 1, now_ns)
            return
        assert isinstance(attached, Held), attached
        self._here[sender] += 1
        if attached.token:
            self._come_by_token(sender, 1)
        else:
            self._measure_trip(now_ns - self._come_by_grant(sender, 1))
        self._learn(sender, attached, now_ns)

    def received_many(self, sender: int, tuples: int, now_ns: int) -> None:
        self._here[sender] += tuples
        if self._coming[sender]:
            self._come_by_grant(sender, tuples)
        else:
            self._come_by_token(sender, tuples)

    def _come_by_token(self, sender: int, tuples: int) -> None:
        """Tokens that were revoked meanwhile do not count."""
        self._tokens_out[sender] = max(0, self._tokens_out[sender] - tuples)
        self._taken += tuples

    def _come_by_grant(self, sender: int, tuples: int) -> int:
        """Granted tuples have come, or will not come. Returns when the last of them was granted."""
        assert tuples <= self._coming[sender], f"tuples came that were not granted: sender={sender} tuples={tuples}"
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
        assert tuples <= self._here[sender], f"tuples were run that never came: sender={sender} tuples={tuples}"
        self._here[sender] -= tuples
        self._taken -= tuples
        weight = min(1.0, SMOOTHING * tuples) if self._duration_ns else 1
        self._duration_ns += (busy_ns / tuples - self._duration_ns) * weight
        self._lateness_ns += (self.late_ns - self._lateness_ns) * SMOOTHING
        self._stale, self._now_ns = True, now_ns

    def dropped(self, sender: int, attached: Message | None, queued: int, now_ns: int) -> None:
        self._here[sender] -= 1
        self._taken -= 1
        self._stale, self._now_ns = True, now_ns

    def hear(self, sender: int, message: Message, now_ns: int) -> None:
        assert isinstance(message, Held), message
        if message.returned:
            self._come_by_grant(sender, message.returned)
            self._taken -= message.returned
            self._tokens_out[sender] = int(message.token)
        if message.revoked:
            self._revoking[sender] = False
            self._tokens_out[sender] = 0
        self._learn(sender, message, now_ns)

    def _learn(self, sender: int, held: Held, now_ns: int) -> None:
        """Tuples that were granted since the message left its sender are no longer waiting."""
        self._waiting[sender] = max(0, held.tuples - self._coming[sender])
        self._since_ns[sender] = now_ns - held.oldest_ns
        self._stale, self._now_ns = True, now_ns

    def _measure_trip(self, trip_ns: int) -> None:
        """Only if nothing else is here: a busy task reports an arrival when its call ends, not when the tuple comes."""
        if self._taken - 1 == sum(self._coming):
            self._round_trip_ns += (trip_ns - self._round_trip_ns) * (SMOOTHING if self._round_trip_ns else 1)

    # -- credits

    def _give_out(self, now_ns: int) -> None:
        most, senders = self._most(), len(self._senders)
        if self._standing:
            if most < max(3, senders) and now_ns >= self._until_ns:
                self._end_standing(now_ns)
        elif most >= 2 * senders:
            self._standing = True
        elif self._lateness_ns >= self._duration_ns > 0:
            self._standing = True
            again = now_ns - self._ended_ns < self._stay_ns
            self._stay_ns = min(LONGEST_STAY_NS, 2 * self._stay_ns) if again else STAY_NS
            self._until_ns = now_ns + self._stay_ns
        if self._standing:
            self._give_standing(-(-most // senders))
        else:
            self._grant(most, now_ns)

    def _most(self) -> int:
        """Most tuples that may be here while plenty wait. One, if the task is never idle or nothing takes time."""
        trip_ns, call_ns = self._round_trip_ns, self._duration_ns
        idle_ns = trip_ns + self._lateness_ns
        if not (idle_ns and (trip_ns or call_ns)):
            return 1
        return 1 + min(MAX_AHEAD, 1 + int(idle_ns / max(1.0, call_ns)))

    def _give_standing(self, room: int) -> None:
        """Give each sender standing credits for ``room`` tuples, in batches unless the sender has none."""
        for sender in self._senders:
            if self._coming[sender] or self._revoking[sender]:
                continue
            out = self._tokens_out[sender]
            tuples = room - out - self._here[sender]
            if tuples > 0 and (not out or 2 * tuples >= room):
                self._tokens_out[sender] = out + tuples
                self._outbox.append((sender, Credit(True, False, tuples, standing=True)))

    def _end_standing(self, now_ns: int) -> None:
        """Revoke all tokens. Senders must confirm, since they may have one more than is known here."""
        self._standing, self._ended_ns = False, now_ns
        for sender in self._senders:
            self._revoking[sender] = True
            self._outbox.append((sender, Revoke(answer=True)))

    def _grant(self, most: int, now_ns: int) -> None:
        waiting = [0 if out else tuples for tuples, out in zip(self._waiting, self._revoking, strict=True)]
        held = sum(waiting)
        while held:
            sender = min((since, sender) for sender, since in enumerate(self._since_ns) if waiting[sender])[1]
            tuples = min(waiting[sender], self._room(most, held))
            if tuples <= 0:
                break
            held -= tuples
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

    def _room(self, most: int, held: int) -> int:
        """Room for one tuple if nothing is here; while plenty wait, for all beyond plenty and one more."""
        room = 1 - self._taken
        if most > 1:
            plenty = min(MAX_PLENTY, self._duration_ns / (TRIPS * max(1.0, self._round_trip_ns)))
            beyond = held - plenty * self._tasks
            if beyond >= 0:
                room = max(room, min(most - self._taken, 1 + int(beyond)))
        return room
