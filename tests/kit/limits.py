"""A limit and its clients on virtual time: messages that take time, clients that are held up and die, and a service."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random

from tailrace.calls.limit import Limit
from tailrace.calls.limits.holder import Holder, Waiting
from tailrace.calls.limits.messages import Reply, Request
from tailrace.calls.limits.shared import SharedLimit
from tailrace.clock import MILLISECOND_NS, SECOND_NS

Service = Callable[[int], float | None]
"""Called with the time of a call; returns the seconds after which to retry, or None if it answers."""


def _answers(_: int) -> float | None:
    return None


@dataclass
class SimulatedClient:
    """Calls arrive at it, wait for the limit, and take ``call_ns`` each."""

    number: int
    holder: Holder
    ahead_ns: int  # of its clock
    alive: bool = True
    held_up_until_ns: int = 0
    starts: dict[Waiting, int] = field(default_factory=dict)  # when each waiting call came
    used: int = 0
    waits_ns: list[int] = field(default_factory=list)
    to_driver_ns: int = 0  # when the last message arrives: none overtakes another
    to_client_ns: int = 0
    connection: int = 0  # messages of an earlier one are lost
    connected: bool = False  # from the first message on
    said: int = 0  # calls under way when it asked for the connection
    running: int = 0  # calls that began on this connection


class LimitSimulation:
    """Everything that happens is an event (time, sequence, action)."""

    def __init__(
        self,
        limit: Limit,
        clients: int,
        seed: int,
        *,
        latency_ns: int = MILLISECOND_NS,
        jitter_ns: int = MILLISECOND_NS,
        call_ns: int = 20 * MILLISECOND_NS,
        service: Service = _answers,
        settle: Callable[[float, Random], float] | None = None,
    ) -> None:
        self.limit = limit
        self.rng = Random(seed)
        self.now_ns = self.rng.randrange(10 * SECOND_NS)
        self.begun_ns = self.now_ns
        self.shared = SharedLimit(limit, self.now_ns)
        self.uses: list[tuple[int, float]] = []  # time and cost of each call that was started
        self.hedges = 0
        self.under_way = 0
        self.most_under_way = 0
        self.messages = 0
        self._latency_ns, self._jitter_ns, self._call_ns = latency_ns, jitter_ns, call_ns
        self._service, self._settle = service, settle
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._planned_ns: int | None = None
        self._then: dict[Waiting, Callable[[], None] | None] = {}
        self.clients: list[SimulatedClient] = []
        for number in range(clients):
            ahead_ns = self.rng.randrange(-SECOND_NS, SECOND_NS)
            self.clients.append(SimulatedClient(number, Holder(limit), ahead_ns))
            self.clients[-1].holder.disconnected()
            self.shared.join(number, 0, self.now_ns)
        self._step()

    # -- what a test plans

    def at(self, s: float, action: Callable[[], None]) -> None:
        self._post(self.begun_ns + int(s * SECOND_NS), action)

    def arrive(self, s: float, client: int, cost: float = 1.0) -> None:
        self.at(s, lambda: self._arrive(self.clients[client], cost))

    def hedge(self, s: float, client: int, cost: float = 1.0) -> None:
        self.at(s, lambda: self._hedge(self.clients[client], cost))

    def keep_busy(self, client: int, concurrency: int, from_s: float = 0.0, until_s: float = 1e9) -> None:
        """As many calls as ``concurrency`` are under way, or wait, all the time."""
        until_ns = self.begun_ns + int(until_s * SECOND_NS)

        def one() -> None:
            if self.now_ns < until_ns:
                self._arrive(self.clients[client], 1.0, one)

        for _ in range(concurrency):
            self.at(from_s, one)

    def kill(self, s: float, client: int) -> None:
        def die() -> None:
            self.clients[client].alive = False
            self._post(self.now_ns + self._delay_ns(), lambda: self._leave(client))

        self.at(s, die)

    def hold_up(self, s: float, client: int, for_s: float) -> None:
        """The client's loop does nothing for a while."""

        def hold() -> None:
            self.clients[client].held_up_until_ns = self.now_ns + int(for_s * SECOND_NS)

        self.at(s, hold)

    def cut(self, s: float, client: int, for_s: float, joins_s: float = 0.0) -> None:
        """The connection of a client is lost. After ``for_s`` it asks for another, which takes ``joins_s``."""
        one = self.clients[client]

        def lose() -> None:
            if one.alive and one.connected:
                one.connected = False
                one.connection += 1
                one.holder.disconnected()
                self.under_way -= one.running  # the driver grants their permits to others
                one.running = 0
                self._leave(client)
                self._post(self.now_ns + int(for_s * SECOND_NS), ask)

        def ask() -> None:
            said = one.holder.in_use
            self._post(self.now_ns + int(joins_s * SECOND_NS), lambda: join(said))

        def join(said: int) -> None:
            if one.alive:
                one.said = said
                self.shared.join(client, said, self.now_ns)
                self._step()

        self.at(s, lose)

    def run(self, until_s: float) -> None:
        until_ns = self.begun_ns + int(until_s * SECOND_NS)
        while self._events and self._events[0][0] <= until_ns:
            self.now_ns, _, action = heapq.heappop(self._events)
            action()
        self.now_ns = until_ns

    # -- what a test looks at

    def most_in(self, window_s: float = 1.0) -> float:
        """The most units that were used within any time of this length."""
        window_ns, most, total = int(window_s * SECOND_NS), 0.0, 0.0
        inside: deque[tuple[int, float]] = deque()
        for use in self.uses:
            inside.append(use)
            total += use[1]
            while inside[0][0] <= use[0] - window_ns:
                total -= inside.popleft()[1]
            most = max(most, total)
        return most

    def units(self, from_s: float, until_s: float) -> float:
        first, last = (self.begun_ns + int(s * SECOND_NS) for s in (from_s, until_s))
        return sum(cost for at_ns, cost in self.uses if first <= at_ns < last)

    # -- events

    def _post(self, at_ns: int, action: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (at_ns, self._sequence, action))

    def _delay_ns(self) -> int:
        return self._latency_ns + int(self.rng.expovariate(1) * self._jitter_ns)

    def _later(self, client: SimulatedClient, action: Callable[[], None]) -> bool:
        """Whether the client is held up, or dead; the action is then put off, or dropped."""
        if client.alive and self.now_ns < client.held_up_until_ns:
            self._post(client.held_up_until_ns, action)
            return True
        return not client.alive

    def _arrive(self, client: SimulatedClient, cost: float, then: Callable[[], None] | None = None) -> None:
        if self._later(client, lambda: self._arrive(client, cost, then)):
            return
        waiting = client.holder.wait(cost)
        client.starts[waiting] = self.now_ns
        self._then[waiting] = then
        self._turn(client)

    def _hedge(self, client: SimulatedClient, cost: float) -> None:
        if self._later(client, lambda: self._hedge(client, cost)):
            return
        if client.holder.start_hedge(cost, self.now_ns + client.ahead_ns):
            self.hedges += 1
            self._use(client, cost, None)
        self._turn(client)

    def _turn(self, client: SimulatedClient) -> None:
        now_ns = self.now_ns + client.ahead_ns
        for waiting in client.holder.startable(now_ns):
            client.waits_ns.append(self.now_ns - client.starts.pop(waiting))
            self._use(client, waiting.cost, self._then.pop(waiting))
        request = client.holder.request(now_ns) if client.connected else None
        if request is not None:
            connection = client.connection
            client.to_driver_ns = max(client.to_driver_ns, self.now_ns + self._delay_ns())
            self._post(client.to_driver_ns, lambda: self._handle(client, connection, request))

    def _use(self, client: SimulatedClient, cost: float, then: Callable[[], None] | None) -> None:
        self.uses.append((self.now_ns, cost))
        client.used += 1
        client.running += 1
        connection = client.connection
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        retry_after_s = self._service(self.now_ns)

        def end() -> None:
            if connection == client.connection:
                client.running -= 1
                self.under_way -= 1
            finish()

        def finish() -> None:
            if self._later(client, finish):
                return
            if retry_after_s is not None:
                client.holder.throttled(retry_after_s)
            client.holder.ended(cost, None if self._settle is None else self._settle(cost, self.rng))
            self._turn(client)
            if then is not None:
                then()

        self._post(self.now_ns + int(self.rng.uniform(0.5, 1.5) * self._call_ns), end)

    def _handle(self, client: SimulatedClient, connection: int, request: Request) -> None:
        self.messages += 1
        if client.number in self.shared._told and connection == client.connection:
            self.shared.handle(client.number, request, self.now_ns)
            self._step()

    def _leave(self, client: int) -> None:
        if client in self.shared._told:
            self.shared.leave(client, self.now_ns)
            self._step()

    def _step(self) -> None:
        for number, reply in self.shared.step(self.now_ns):
            client = self.clients[number]
            client.to_client_ns = max(client.to_client_ns, self.now_ns + self._delay_ns())
            self._post(client.to_client_ns, partial(self._replied, client, client.connection, reply))
        next_ns = self.shared.next_ns
        if next_ns is not None and (self._planned_ns is None or next_ns < self._planned_ns):
            self._planned_ns = next_ns
            self._post(max(next_ns, self.now_ns), lambda: self._planned(next_ns))

    def _planned(self, planned_ns: int) -> None:
        if planned_ns == self._planned_ns:  # else an earlier time was planned afterwards
            self._planned_ns = None
            self._step()

    def _replied(self, client: SimulatedClient, connection: int, reply: Reply) -> None:
        self.messages += 1
        if connection != client.connection:
            return
        if self._later(client, lambda: self._replied(client, connection, reply)):
            return
        now_ns = self.now_ns + client.ahead_ns
        if client.connected:
            client.holder.replied(reply, now_ns)
        else:
            client.connected = True
            client.holder.connected(client.said, reply.now_ns, now_ns)
        self._turn(client)
