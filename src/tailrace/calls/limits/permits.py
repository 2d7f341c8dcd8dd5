"""The permits of a limit on calls that are under way at once, and which clients have them."""

from __future__ import annotations

from math import ceil

from tailrace.calls.limits.bucket import TINY
from tailrace.calls.limits.fair_queue import Client
from tailrace.calls.limits.messages import UNSHARED
from tailrace.clock import MILLISECOND_NS

SCARCE_NS = 100 * MILLISECOND_NS
"""How long permits count as scarce after a client has waited for one. Clients are told of each change."""


class Permits:
    """Law: clients hold at most ``total`` permits, besides those that they had in use when they joined."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._held: dict[Client, int] = {}
        self._wanted: dict[Client, int] = {}  # in the order in which they began to wait
        self._scarce_until_ns = 0

    def join(self, client: Client, in_use: int) -> None:
        self._held[client] = in_use

    def leave(self, client: Client) -> None:
        self._held.pop(client, None)
        self._wanted.pop(client, None)

    def want(self, client: Client, count: int) -> None:
        if count:
            self._wanted[client] = self._wanted.get(client, 0) + count

    def give_back(self, client: Client, count: int) -> None:
        self._held[client] = max(0, self._held[client] - count)

    def grant(self, factor: float, now_ns: int) -> dict[Client, int]:
        """Grant what is free, to the clients that hold the least. ``factor``: the part of the permits to be used."""
        granted: dict[Client, int] = {}
        free = self._usable(factor) - sum(self._held.values())
        while free > 0 and self._wanted:
            client = min(self._wanted, key=self._held.__getitem__)
            count = self._wanted.pop(client) - 1
            if count:
                self._wanted[client] = count  # at the end: it begins to wait for the next one
            self._held[client] += 1
            granted[client] = granted.get(client, 0) + 1
            free -= 1
        if self._wanted:
            self._scarce_until_ns = now_ns + SCARCE_NS
        return granted

    def share(self, factor: float, now_ns: int) -> int:
        """How many permits each client may keep when its calls end."""
        usable = self._usable(factor)
        if now_ns >= self._scarce_until_ns and sum(self._held.values()) <= usable:
            return UNSHARED
        users = {client for client, held in self._held.items() if held} | set(self._wanted)
        return usable // max(1, len(users))

    def next_ns(self, now_ns: int) -> int | None:
        """When ``share`` may change by itself."""
        return self._scarce_until_ns if now_ns < self._scarce_until_ns else None

    def _usable(self, factor: float) -> int:
        return 0 if factor <= 0 else max(1, ceil(self._total * factor - TINY))
