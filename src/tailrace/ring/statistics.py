"""Counters of a ring since its creation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RingStatistics:
    """Counts of a ring since it was made."""

    records: int
    bytes: int
    producer_waits: int
    consumer_sleeps: int
    given_up: int  # records whose process died while writing or reading them
    high_water: int  # the most bytes ever held at once, heads included
    held: int  # bytes held now
