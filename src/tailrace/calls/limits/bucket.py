"""The units that a limit may grant now: earned at a rate that may change, and saved up for a short time."""

from __future__ import annotations

from tailrace.clock import SECOND_NS

PACE = 0.97
"""The part of a limit that is granted. The rest is for the jitter between a grant and the service's own count."""

TINY = 1e-9
"""Units that are lost in rounding."""


class Bucket:
    """Units of one rate, such as calls a second.

    Law: in any time t, what is granted is at most the pace times the rate times t, and ``capacity``, and the part of
    one cost that exceeds ``capacity``.
    """

    def __init__(self, per_s: float, depth_s: float, now_ns: int) -> None:
        """``depth_s``: how long units are saved up. At least one is."""
        self._per_s = per_s
        self._depth_s = depth_s
        self._factor = 1.0
        self._level = 1.0  # units that may be granted; below zero they are owed
        self._at_ns = now_ns

    @property
    def capacity(self) -> float:
        return max(1.0, self._per_s * self._depth_s * self._factor)

    def refill(self, now_ns: int, factor: float) -> None:
        """Earn what is due. ``factor``: the part of the rate that has held since the last time; 0 is a pause."""
        self._factor = factor
        earned = max(0, now_ns - self._at_ns) / SECOND_NS * self._per_s * PACE * factor
        self._level = min(self.capacity, self._level + earned)
        self._at_ns = max(self._at_ns, now_ns)

    def wait_ns(self, cost: float) -> int:
        """How long until a call of this cost may be granted: 0 is now. Only for a factor above zero."""
        short = min(cost, self.capacity) - self._level - TINY
        return 0 if short <= 0 else int(short / (self._per_s * PACE * self._factor) * SECOND_NS) + 1

    def spend(self, units: float) -> None:
        """Less than zero gives units back."""
        self._level = min(self.capacity, self._level - units)
