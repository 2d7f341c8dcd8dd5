"""Figures of the calls of one task."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from tailrace.metrics.histogram import Histogram

HISTOGRAM = "latencies"


@dataclass(slots=True)
class Figures:
    """Counts of one task's calls. One thread writes them, and others may read."""

    calls: int = 0  # that have ended, with an answer, from the journal or with an error
    attempts: int = 0  # without hedges
    retries: int = 0  # attempts after an error
    timeouts: int = 0  # attempts, and hedges, that took longer than timeout_s
    throttled: int = 0  # attempts, and hedges, that the service refused with RetryAfter
    hedges: int = 0
    hedges_won: int = 0
    failed: int = 0  # calls that ended with an error
    found: int = 0  # calls whose result was in the journal
    limit_wait_ns: int = 0  # of all calls together
    given_up_threads: int = 0  # threads that run a function whose result is no longer wanted, now
    latencies: Histogram = field(default_factory=Histogram)  # of calls with an answer that was not found

    def counts(self) -> dict[str, int]:
        """All but the latencies, by name."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name != HISTOGRAM}

    def merge(self, other: Figures) -> None:
        """Add the figures of another task."""
        for name, count in other.counts().items():
            setattr(self, name, getattr(self, name) + count)
        self.latencies.merge(other.latencies)
