"""Time is integer monotonic nanoseconds. Code that makes decisions gets it as an argument."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Returns monotonic nanoseconds. Only differences mean anything, and only on one machine."""

system_clock: Clock = time.monotonic_ns

MICROSECOND_NS = 1_000
MILLISECOND_NS = 1_000_000
SECOND_NS = 1_000_000_000
