"""One client of a limit: the calls that wait, the units and permits that it has, and what it asks the driver for."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import islice

from tailrace.calls.limit import Limit
from tailrace.calls.limits.bucket import TINY
from tailrace.calls.limits.messages import UNSHARED, Reply, Request
from tailrace.calls.limits.shared import VALID_NS
from tailrace.clock import SECOND_NS

ATTEMPTS_NS = SECOND_NS
"""Attempts that are older than this are not counted when the driver asks itself how many the service has refused."""

CLOCK_DRIFT = 1e-4
"""How fast two machines' clocks may drift apart."""


class Lateness:
    """How late a message is, compared with the fastest one: clocks of two machines have no common zero."""

    def __init__(self) -> None:
        self._ahead_ns: float | None = None  # of the driver's clock, at least
        self._at_ns = 0

    def heard(self, sent_ns: int, now_ns: int) -> None:
        """A message arrives now that was sent at a time of the driver's clock."""
        ahead_ns = sent_ns - now_ns
        if self._ahead_ns is None:
            self._ahead_ns = ahead_ns
        else:
            self._ahead_ns = max(ahead_ns, self._ahead_ns - (now_ns - self._at_ns) * CLOCK_DRIFT)
        self._at_ns = now_ns

    def ns(self, sent_ns: int, now_ns: int) -> float:
        return now_ns + (self._ahead_ns or 0) - sent_ns


@dataclass(slots=True, eq=False)
class Waiting:
    """A call that waits for the limit."""

    cost: float


class Holder:
    """The client's side of ``SharedLimit``. Calls start in the order in which they came.

    Law: what its calls use in any time is at most what it was granted in that time and ``VALID_NS`` before, and
    ``advance``; and if calls wait, it has asked for what they need.
    """

    def __init__(self, limit: Limit) -> None:
        self._rated = limit.per_s is not None or limit.per_minute is not None
        self._permitted = limit.concurrency is not None
        self._waiting: deque[Waiting] = deque()
        self._waiting_sum = 0.0  # of their costs
        self._late = Lateness()
        self._units: deque[list[float]] = deque()  # [units, when they were granted by the driver's clock]
        self._debt = 0.0  # units used in advance, for which no grant has come yet
        self._asked: deque[float] = deque()  # costs that were asked for, and not granted yet
        self._asked_sum = 0.0
        self._connected = True
        self._free = 0  # permits without a call
        self._excess = 0  # permits to be given back
        self._old = 0  # calls that were under way when the driver was reached, and that it counts
        self._uncounted = 0  # and that it does not count
        self.in_use = 0
        self._pending = 0  # permits that were asked for
        self._share = UNSHARED
        self._advance = 0.0
        self._busy = False
        self.clients = 1
        self._settled = 0.0
        self._attempts = 0
        self._attempts_ns = 0
        self._throttled = 0
        self._retry_after_s = 0.0
        self._spare = 0.0  # units to ask for, for a hedge
        self._for_hedges = 0  # permits to ask for, for hedges

    # -- calls

    @property
    def waits(self) -> bool:
        return bool(self._waiting)

    def wait(self, cost: float) -> Waiting:
        """A call wants to start. ``startable`` returns it when it may."""
        waiting = Waiting(cost)
        self._waiting.append(waiting)
        self._waiting_sum += cost
        return waiting

    def give_up(self, waiting: Waiting) -> None:
        """A call that waits is not to be made after all."""
        if waiting in self._waiting:
            self._waiting.remove(waiting)
            self._left(waiting)

    def startable(self, now_ns: int) -> list[Waiting]:
        """The calls that start now. Each must be ``ended`` later."""
        self._drop_lapsed(now_ns)
        started = []
        while self._waiting and self._can_start(self._waiting[0].cost):
            waiting = self._waiting.popleft()
            self._left(waiting)
            self._start(waiting.cost, now_ns)
            started.append(waiting)
        return started

    def _left(self, waiting: Waiting) -> None:
        self._waiting_sum = self._waiting_sum - waiting.cost if self._waiting else 0.0

    def start_hedge(self, cost: float, now_ns: int) -> bool:
        """Start a hedge if the limit has slack. If no units are at hand, ask for some: they may be here next time."""
        self._drop_lapsed(now_ns)
        if self._waiting or self._busy or self._share != UNSHARED:
            return False
        if self._can_start(cost):
            self._start(cost, now_ns)
            return True
        if self._rated and not self._asked:
            self._spare = cost
        if self._permitted and not self._free:
            self._for_hedges = 1
        return False

    def ended(self, cost: float, used: float | None) -> None:
        """A call has ended. ``used``: the units that it has really used, if they are known."""
        if self._permitted:
            if not self._connected:
                pass  # the driver grants its permit to others
            elif self._uncounted:
                self._uncounted -= 1
            elif self._old:  # the driver may have granted its permit to others, and counts it besides
                self._old -= 1
                self._excess += 1
            elif self.in_use + self._free > self._share:
                self._excess += 1
            else:
                self._free += 1
            self.in_use -= 1
        if self._rated and used is not None:
            self._settled += used - cost

    def throttled(self, retry_after_s: float) -> None:
        self._throttled += 1
        self._retry_after_s = max(self._retry_after_s, retry_after_s)

    # -- the driver

    def replied(self, reply: Reply, now_ns: int) -> None:
        """Take a reply. ``startable`` and ``request`` must follow."""
        self._late.heard(reply.now_ns, now_ns)
        lapsed = self._late.ns(reply.now_ns, now_ns) > VALID_NS
        for _ in range(min(reply.granted, len(self._asked))):
            cost = self._asked.popleft()
            self._asked_sum -= cost
            if not lapsed:
                self._take(cost, reply.now_ns)
        if not self._asked:
            self._asked_sum = 0.0
        if reply.spare and not lapsed:
            self._take(reply.spare, reply.now_ns)
        if self._permitted:
            self._free += reply.permits
            self._pending = max(0, self._pending - reply.permits)
        self._share, self._advance, self._busy, self.clients = reply.share, reply.advance, reply.busy, reply.clients

    def disconnected(self) -> None:
        """The connection is gone, and with it what was granted and asked for. Calls that are under way go on.

        Their permits are not used again: the driver grants them to others.
        """
        self._connected = False
        self._units.clear()
        self._asked.clear()
        self._asked_sum = 0.0
        self._late = Lateness()
        self._free = self._pending = self._excess = self._old = self._uncounted = 0
        self._share, self._advance, self._busy = UNSHARED, 0.0, False

    def connected(self, said: int, sent_ns: int, now_ns: int) -> None:
        """There is a new connection, on which a message has come. ``startable`` and ``request`` must follow.

        Args:
            said: the calls under way that the driver was told of, and counts. Their permits are given back when they
                end, or now if they have ended. Further calls under way leave no permit: it was of another limit.
            sent_ns: when the message was sent, by the driver's clock: the first grant may be late already.
            now_ns: when it came.
        """
        self._connected = True
        self._late.heard(sent_ns, now_ns)
        self._old = min(said, self.in_use)
        self._excess = max(0, said - self.in_use)
        self._uncounted = max(0, self.in_use - said)

    @property
    def in_a_hurry(self) -> bool:
        """Whether ``request`` should be sent at once: calls wait, here or elsewhere, and nothing is on its way."""
        waits = self._waiting and not self._asked and not self._pending
        return bool(waits or self._excess or self._throttled or self._spare)

    def request(self, now_ns: int) -> Request | None:
        """The request to send to the driver now, or None."""
        self._drop_lapsed(now_ns)
        unneeded, permits = self._permits_to_move()
        returned = unneeded + self._excess
        wants = self._missing()
        request = Request(
            *(wants, self._spare, permits, returned, self._settled),
            *(self._attempts if now_ns - self._attempts_ns < ATTEMPTS_NS else 0, self._throttled, self._retry_after_s),
        )
        if not (wants or permits or returned or self._settled or self._throttled or self._spare):
            return None
        self._asked.extend(wants)
        self._asked_sum += sum(wants)
        self._free -= unneeded
        self._pending += permits
        self._settled = self._retry_after_s = self._spare = 0.0
        self._attempts = self._throttled = self._excess = self._for_hedges = 0
        return request

    # -- units and permits

    def _can_start(self, cost: float) -> bool:
        if self._permitted and not self._free:
            return False
        return not self._rated or self._debt + cost - self._held() <= max(self._advance, self._debt) + TINY

    def _start(self, cost: float, now_ns: int) -> None:
        if self._permitted:
            self._free -= 1
            self.in_use += 1
        if now_ns - self._attempts_ns >= ATTEMPTS_NS:
            self._attempts, self._attempts_ns = 0, now_ns
        self._attempts += 1
        if not self._rated:
            return
        while self._units and cost > TINY:
            part = min(cost, self._units[0][0])
            self._units[0][0] -= part
            cost -= part
            if self._units[0][0] <= TINY:
                self._units.popleft()
        if cost > TINY:
            self._debt += cost

    def _take(self, units: float, granted_ns: int) -> None:
        """Use what is granted for what was used in advance, and keep the rest."""
        repaid = min(units, self._debt)
        self._debt -= repaid
        if units - repaid > TINY:
            self._units.append([units - repaid, granted_ns])

    def _held(self) -> float:
        return sum(units for units, _ in self._units)

    def _drop_lapsed(self, now_ns: int) -> None:
        while self._units and self._late.ns(int(self._units[0][1]), now_ns) > VALID_NS:
            self._units.popleft()

    def _missing(self) -> tuple[float, ...]:
        """The costs to ask for: what was used in advance, and the calls that wait and have a permit, or soon will."""
        if not self._rated:
            return ()
        count = len(self._waiting)
        needed = self._waiting_sum
        if self._permitted:
            count = min(count, self._free + (self._pending if self._share == UNSHARED else 0))
            needed = sum(waiting.cost for waiting in islice(self._waiting, count))
        short = self._debt + needed - self._held() - self._asked_sum
        wants: list[float] = []
        while short > TINY:
            count -= 1
            wants.append(min(short, self._waiting[count].cost or short) if count >= 0 else short)
            short -= wants[-1]
        return tuple(reversed(wants))

    def _permits_to_move(self) -> tuple[int, int]:
        """How many permits to give back, and how many to ask for."""
        if not self._permitted:
            return 0, 0
        unneeded = 0 if self._share == UNSHARED else max(0, self._free - len(self._waiting))
        permits = max(0, len(self._waiting) + self._for_hedges - self._free + unneeded - self._pending)
        return unneeded, permits
