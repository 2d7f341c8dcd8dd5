"""Spread: a worker goes to the host with the fewest workers of its run, among those that have a slot left for it.

Law: two hosts are never more than one worker apart, unless the one with fewer is full. With fewer workers the loss of
a host costs less, and no host's network carries more than its share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping


def next_host(slots: Mapping[str, int], homes: Iterable[str]) -> str | None:
    """The host for one more worker; None if no host has a slot left.

    Args:
        slots: how many workers of this run each host has room for, those included that it has already.
        homes: the host of each worker that there is.

    Example:
        >>> from tailrace.policy.placement.spread import next_host
        >>> next_host({"a": 2, "b": 2}, ["a"])
        'b'
    """
    there = Counter(homes)
    room = [host for host, number in slots.items() if there[host] < number]
    return min(room, key=lambda host: (there[host], there[host] - slots[host], host), default=None)


def spread(workers: int, slots: Mapping[str, int]) -> list[str]:
    """The host of each worker, in order; fewer than asked for if there are no more slots."""
    homes: list[str] = []
    while len(homes) < workers and (host := next_host(slots, homes)) is not None:
        homes.append(host)
    return homes
