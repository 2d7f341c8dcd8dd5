"""One limit on the driver: takes the requests of clients and grants units and permits, fairly and at the limit's rate.

A grant holds for ``VALID_NS``. A client that is killed or held up loses what it was granted, and nothing must be taken
back. Clients may use a few units before they ask for them (``advance``), so that a call does not wait for a round trip
while the limit is not the bottleneck.
"""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.calls.limit import Limit
from tailrace.calls.limits.bucket import Bucket
from tailrace.calls.limits.fair_queue import Client, FairQueue
from tailrace.calls.limits.messages import UNSHARED, Reply, Request
from tailrace.calls.limits.pace import Pace
from tailrace.calls.limits.permits import Permits
from tailrace.clock import MILLISECOND_NS, SECOND_NS

VALID_NS = 40 * MILLISECOND_NS
"""How long a grant holds. Grants of more than a second could otherwise be used within one."""

DEPTH_S = 0.025
"""How long units of ``per_s`` are saved up: long enough for a driver that is held up by its other threads."""

DEPTH_OF_MINUTE_S = 1.0
"""How long units of ``per_minute`` are saved up."""

ADVANCE = 0.015
"""The part of a second's, or a minute's, units that all clients together may use before they ask."""

TICK_NS = 3 * MILLISECOND_NS
"""While calls wait, grants are made at most this often, several at once, so that messages stay few."""

BUSY_NS = 100 * MILLISECOND_NS
"""How long a limit counts as busy after a call has waited."""

RAISE_NS = 500 * MILLISECOND_NS
"""How long a larger ``advance`` is put off after a client has joined or left: the others use what they were told."""


@dataclass(slots=True)
class _Told:
    """The last news that a client had of the state of the limit."""

    share: int = -1  # nothing yet
    advance: float = 0.0
    busy: bool = False


class SharedLimit:
    """Law: with all clients together, uses in any second are at most 1.05 times ``per_s``, and one cost, whatever
    clients do, join, leave or die; and while calls wait, nothing that may be granted is held back longer than a tick.
    """

    def __init__(self, limit: Limit, now_ns: int) -> None:
        self.limit = limit
        self._buckets: list[Bucket] = []
        if limit.per_s is not None:
            self._buckets.append(Bucket(limit.per_s, DEPTH_S, now_ns))
        if limit.per_minute is not None:
            self._buckets.append(Bucket(limit.per_minute / 60, DEPTH_OF_MINUTE_S, now_ns))
        self._advance = ADVANCE * min(
            rate for rate in (limit.per_s, limit.per_minute, float("inf")) if rate is not None
        )
        self._permits = None if limit.concurrency is None else Permits(limit.concurrency)
        self._pace = Pace(now_ns)
        self._queue = FairQueue()
        self._told: dict[Client, _Told] = {}
        self._granted: dict[Client, int] = {}  # since the last step
        self._spare: dict[Client, float] = {}
        self._new_permits: dict[Client, int] = {}
        self._busy_until_ns = now_ns
        self._raise_ns = now_ns
        self.next_ns: int | None = None  # when ``step`` should be called, if nothing happens before

    @property
    def clients(self) -> int:
        return len(self._told)

    @property
    def paused_until_ns(self) -> int:
        return self._pace.paused_until_ns

    def join(self, client: Client, in_use: int, now_ns: int) -> None:
        """``in_use``: calls of the client that are under way, with permits of an earlier connection."""
        self._told[client] = _Told()
        if self._permits is not None:
            self._permits.join(client, in_use)
        self._raise_ns = now_ns + RAISE_NS

    def leave(self, client: Client, now_ns: int) -> None:
        del self._told[client]
        for news in (self._granted, self._spare, self._new_permits):
            news.pop(client, None)
        self._queue.leave(client)
        if self._permits is not None:
            self._permits.leave(client)
        self._raise_ns = now_ns + RAISE_NS

    def waiting(self, client: Client) -> int:
        """How many grants the client waits for."""
        return self._queue.waiting(client)

    def handle(self, client: Client, request: Request, now_ns: int) -> None:
        """Take a request. ``step`` must follow."""
        self._refill(now_ns)
        self._pace.attempted(request.attempts)
        if request.throttled:
            self._pace.refused(request.throttled, request.retry_after_s, now_ns)
            self._refill(now_ns)
        for bucket in self._buckets:
            bucket.spend(request.settled)
        if self._permits is not None:
            self._permits.give_back(client, request.returned)
            self._permits.want(client, request.permits)
        if self._buckets:
            self._queue.add(client, request.wants)
        if request.spare and not self._queue and self._may_grant(request.spare, now_ns):
            self._spend(request.spare)
            self._spare[client] = self._spare.get(client, 0.0) + request.spare

    def step(self, now_ns: int, all_clients: bool = False) -> list[tuple[Client, Reply]]:
        """Grant what can be granted now. Returns the replies to be sent: to clients with news, or to all."""
        factor = self._refill(now_ns)
        if self._permits is not None:
            part = 1.0 if self._buckets and factor else factor  # a rate adapts by itself
            for client, count in self._permits.grant(part, now_ns).items():
                self._new_permits[client] = self._new_permits.get(client, 0) + count
        while (head := self._queue.next()) is not None and self._may_grant(head[1], now_ns):
            self._queue.pop()
            self._spend(head[1])
            self._granted[head[0]] = self._granted.get(head[0], 0) + 1
        if self._queue:
            self._busy_until_ns = now_ns + BUSY_NS
        replies = self._replies(factor, now_ns, all_clients)
        self._plan_next(factor, now_ns)
        return replies

    def _refill(self, now_ns: int) -> float:
        factor = self._pace.factor(now_ns)
        for bucket in self._buckets:
            bucket.refill(now_ns, factor)
        return factor

    def _may_grant(self, cost: float, now_ns: int) -> bool:
        return now_ns >= self._pace.paused_until_ns and not any(bucket.wait_ns(cost) for bucket in self._buckets)

    def _spend(self, cost: float) -> None:
        for bucket in self._buckets:
            bucket.spend(cost)

    def _replies(self, factor: float, now_ns: int, all_clients: bool) -> list[tuple[Client, Reply]]:
        busy = now_ns < self._busy_until_ns
        share = UNSHARED
        if self._permits is not None:
            share = self._permits.share(1.0 if self._buckets and factor else factor, now_ns)
        advance = self._advance / max(1, self.clients) if self._buckets and factor == 1 else 0.0
        replies = []
        for client, told in self._told.items():
            own = min(advance, told.advance) if now_ns < self._raise_ns else advance
            changed = all_clients or (told.share, told.advance, told.busy) != (share, own, busy)
            if not (changed or client in self._granted or client in self._spare or client in self._new_permits):
                continue
            told.share, told.advance, told.busy = share, own, busy
            granted, spare = self._granted.pop(client, 0), self._spare.pop(client, 0.0)
            permits = self._new_permits.pop(client, 0)
            replies.append((client, Reply(now_ns, granted, spare, permits, share, own, busy, self.clients)))
        return replies

    def _plan_next(self, factor: float, now_ns: int) -> None:
        times = [time_ns for time_ns in (self._busy_until_ns, self._raise_ns) if time_ns > now_ns]
        if self._permits is not None and (scarce_ns := self._permits.next_ns(now_ns)) is not None:
            times.append(scarce_ns)
        if factor == 0:
            times.append(self._pace.paused_until_ns)
        elif (head := self._queue.next()) is not None:
            wait_ns = max(bucket.wait_ns(head[1]) for bucket in self._buckets)
            times.append(now_ns + max(TICK_NS, min(wait_ns, SECOND_NS)))  # the pace may change meanwhile
        elif factor < 1 and self._told:
            times.append(now_ns + SECOND_NS)
        self.next_ns = min(times, default=None) if self._told else None
