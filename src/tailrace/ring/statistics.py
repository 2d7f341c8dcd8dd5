"""What a ring has seen since it was made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RingStatistics:
    records: int
    bytes: int
    producer_waits: int
    consumer_sleeps: int
    given_up: int  # records whose process died over them
    high_water: int  # the most bytes that were ever held, heads included
    held: int  # bytes held now
