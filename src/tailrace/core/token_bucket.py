"""A token bucket, kept as the moment from which it is free again."""

from __future__ import annotations

from tailrace.clock import SECOND_NS


class TokenBucket:
    """Law: in any time t those that wait spend no more than the rate times t, what the bucket holds, and one parcel.

    Where not all wait, no more is owed than is earned in ``most_ns``.
    """

    def __init__(self, per_s: int, depth_ns: int, most_ns: int | None = None) -> None:
        self._per_s = per_s
        self._depth_ns = depth_ns
        self._most_ns = most_ns
        self.free_ns = 0  # from then on something may be spent

    def spend(self, amount: int, now_ns: int) -> None:
        free_ns = max(self.free_ns, now_ns - self._depth_ns) + amount * SECOND_NS // self._per_s
        self.free_ns = free_ns if self._most_ns is None else min(free_ns, now_ns + self._most_ns)
