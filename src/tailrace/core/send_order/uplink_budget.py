"""What a link may carry."""

from __future__ import annotations

from tailrace.clock import MILLISECOND_NS
from tailrace.core.token_bucket import TokenBucket

DEPTH_NS = 10 * MILLISECOND_NS
"""What an idle link may make up for: about what a busy machine keeps a thread waiting."""


class UplinkBudget(TokenBucket):
    """Bytes are spent as they leave."""

    def __init__(self, bytes_per_s: int, depth_ns: int = DEPTH_NS) -> None:
        super().__init__(bytes_per_s, depth_ns)
        self.bytes_per_s = bytes_per_s
