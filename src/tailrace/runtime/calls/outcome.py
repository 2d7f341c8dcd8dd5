"""The outcome of one call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Outcome:
    """The answer to a call, or the error that it failed with for good, and what it took."""

    value: Any = None
    error: BaseException | None = None
    attempts: int = 0  # made, without hedges; 0 if the result was found in the journal
    hedges: int = 0
    hedge_won: bool = False
    latency_ns: int = 0  # from the first attempt to the answer, without waits for the limit
    limit_wait_ns: int = 0
    found: bool = False  # in the journal
