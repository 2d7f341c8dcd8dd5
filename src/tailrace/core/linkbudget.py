"""What a link may carry: a token bucket, kept as the moment from which it is free again."""

from __future__ import annotations

from tailrace.clock import MILLISECOND_NS, SECOND_NS

DEPTH_NS = 10 * MILLISECOND_NS
"""What an idle link may make up for: about what a busy machine keeps a thread waiting."""


class LinkBudget:
    """Law: in any time t no more leaves than the rate times t, what the bucket holds, and one parcel."""

    def __init__(self, bytes_per_s: int, depth_ns: int = DEPTH_NS) -> None:
        self.bytes_per_s = bytes_per_s
        self._depth_ns = depth_ns
        self.free_ns = 0  # from then on something may leave

    def spend(self, size: int, now_ns: int) -> None:
        """So many bytes leave now."""
        self.free_ns = max(self.free_ns, now_ns - self._depth_ns) + size * SECOND_NS // self.bytes_per_s
