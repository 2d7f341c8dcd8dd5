"""The requests of clients, in an order that is fair among them."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable

Client = int


class FairQueue:
    """Costs by client. The next client is the one that was given the least, not the one that asked first.

    Law: two clients that wait all the time are given the same, up to one cost.
    """

    def __init__(self) -> None:
        self._costs: dict[Client, deque[float]] = {}
        self._given: dict[Client, float] = {}
        self._order: list[tuple[float, int, Client]] = []  # a heap with one entry for each client that waits
        self._level = 0.0  # what the client that was next last had been given
        self._sequence = 0

    def add(self, client: Client, costs: Iterable[float]) -> None:
        queue = self._costs.setdefault(client, deque())
        idle = not queue
        queue.extend(costs)
        if idle and queue:
            self._given[client] = max(self._level, self._given.get(client, 0.0))
            self._line_up(client)

    def leave(self, client: Client) -> None:
        self._given.pop(client, None)
        if self._costs.pop(client, None):
            self._order = [entry for entry in self._order if entry[2] != client]
            heapq.heapify(self._order)

    def next(self) -> tuple[Client, float] | None:
        """The client that is next, and the cost that it waits for."""
        if not self._order:
            return None
        client = self._order[0][2]
        return client, self._costs[client][0]

    def pop(self) -> None:
        """Remove what ``next`` returns."""
        self._level, _, client = heapq.heappop(self._order)
        self._given[client] += self._costs[client].popleft()
        if self._costs[client]:
            self._line_up(client)

    def waiting(self, client: Client) -> int:
        return len(self._costs.get(client, ()))

    def __bool__(self) -> bool:
        return bool(self._order)

    def _line_up(self, client: Client) -> None:
        self._sequence += 1
        heapq.heappush(self._order, (self._given[client], self._sequence, client))
