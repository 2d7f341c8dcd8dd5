"""The bandwidth budget of an uplink."""

from __future__ import annotations

from tailrace.clock import MILLISECOND_NS
from tailrace.core.token_bucket import TokenBucket

DEPTH_NS = 10 * MILLISECOND_NS
"""An idle uplink saves up this much of its rate: about as long as a busy machine keeps a thread waiting."""


class UplinkBudget(TokenBucket):
    """A token bucket of bytes. A sender spends them as they leave."""

    def __init__(self, bytes_per_s: int, depth_ns: int = DEPTH_NS) -> None:
        super().__init__(bytes_per_s, depth_ns)
        self.bytes_per_s = bytes_per_s
