"""A token bucket, represented by the time from which something may be spent again."""

from __future__ import annotations

from tailrace.clock import SECOND_NS


class TokenBucket:
    """``per_s`` tokens are earned a second, and those of ``depth_ns`` saved.

    A caller that waits until ``free_ns`` keeps the rate. One that does not wait goes into debt, which is limited to
    what is earned in ``most_ns``.

    Law: in any time t, callers that wait spend no more than the rate times t, what the bucket holds, and one amount.
    """

    def __init__(self, per_s: int, depth_ns: int, most_ns: int | None = None) -> None:
        self._per_s = per_s
        self._depth_ns = depth_ns
        self._most_ns = most_ns
        self.free_ns = 0  # the time from which something may be spent

    def spend(self, amount: int, now_ns: int) -> None:
        free_ns = max(self.free_ns, now_ns - self._depth_ns) + amount * SECOND_NS // self._per_s
        self.free_ns = free_ns if self._most_ns is None else min(free_ns, now_ns + self._most_ns)
