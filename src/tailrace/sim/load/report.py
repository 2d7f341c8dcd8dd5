"""The results of a simulation."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tailrace.clock import MILLISECOND_NS, SECOND_NS
from tailrace.metrics.histogram import Histogram

PERCENTILES = (0.5, 0.9, 0.99, 0.999)
BACKLOG_POINTS = 200


@dataclass(frozen=True)
class StageReport:
    """The outcome of one stage of a simulation. ``simulate()`` makes one.

    Args:
        name: the stage's name.
        executed: how many tuples each task ran.
        busy_ns: how long each task was at work.
        waits_ns: how long each tuple that found its task busy waited there.
    """

    name: str
    executed: tuple[int, ...]
    busy_ns: tuple[int, ...]
    waits_ns: Sequence[int] = field(repr=False)

    @property
    def mean_wait_ns(self) -> float:
        return sum(self.waits_ns) / max(1, sum(self.executed))

    def wait_percentile_ns(self, q: float) -> int:
        """A percentile over all executed tuples; those that did not wait count as 0."""
        rank = -int(-q * sum(self.executed) // 1) - (sum(self.executed) - len(self.waits_ns))
        return sorted(self.waits_ns)[rank - 1] if rank > 0 else 0

    def to_json(self, end_ns: int) -> dict[str, Any]:
        p99_ns = self.wait_percentile_ns(0.99)
        return {
            "name": self.name,
            "executed": list(self.executed),
            "utilisation": [busy_ns / end_ns for busy_ns in self.busy_ns],
            "waitMs": {"mean": self.mean_wait_ns / MILLISECOND_NS, "p99": p99_ns / MILLISECOND_NS},
        }


@dataclass(frozen=True)
class Report:
    """The outcome of one simulation. ``simulate()`` makes one.

    Latencies are from the moment a root was due until the last tuple of its tree had been run.

    Args:
        policy: the grouping under study.
        seed: what decided all random choices.
        due_ns: when each root was due.
        done_ns: when each root was done, in the order in which they were due.
        latencies_ns: the latency of each root, in the order in which they were done.
        executed: how many tuples each task ran, stage by stage.
        busy_ns: how long each task was at work.
        messages: how many messages groupings sent besides those on tuples.
        stages: the outcome of each stage.
        hedge: the rule that hedged.
        hedges: how many hedges were emitted.
        hedges_won: how many roots were complete first by a hedge.
        cancelled: how many tuples were thrown away before they were run, because their root was complete.
        extra_work: the work of hedges over that of first emissions.
    """

    policy: str
    seed: int
    due_ns: Sequence[int] = field(repr=False)
    done_ns: Sequence[int] = field(repr=False)
    latencies_ns: Sequence[int] = field(repr=False)
    executed: tuple[int, ...]
    busy_ns: tuple[int, ...]
    messages: int
    stages: tuple[StageReport, ...] = ()
    hedge: str | None = None
    hedges: int = 0
    hedges_won: int = 0
    cancelled: int = 0
    extra_work: float = 0.0

    @property
    def hedges_wasted(self) -> int:
        return self.hedges - self.hedges_won

    @cached_property
    def _sorted_ns(self) -> list[int]:
        return sorted(self.latencies_ns)

    @property
    def mean_ns(self) -> float:
        return sum(self.latencies_ns) / len(self.latencies_ns)

    def percentile_ns(self, q: float) -> int:
        """The exact percentile: the smallest latency that at least the fraction ``q`` of roots do not exceed."""
        rank = -int(-q * len(self._sorted_ns) // 1)
        return self._sorted_ns[max(0, min(len(self._sorted_ns), rank) - 1)]

    @property
    def max_ns(self) -> int:
        return self._sorted_ns[-1]

    @property
    def end_ns(self) -> int:
        """When the last root was done."""
        return max(self.done_ns)

    @property
    def throughput_per_s(self) -> float:
        return len(self.latencies_ns) * SECOND_NS / self.end_ns

    @property
    def histogram(self) -> Histogram:
        """The latencies as a histogram, which can be merged with those of other seeds."""
        return Histogram.of(self.latencies_ns)

    def backlog(self, points: int = BACKLOG_POINTS) -> list[tuple[int, int]]:
        """(time, roots due and not done) at evenly spaced times."""
        done_ns = sorted(self.done_ns)
        times = [self.end_ns * point // points for point in range(points + 1)]
        return [(at_ns, bisect_right(self.due_ns, at_ns) - bisect_right(done_ns, at_ns)) for at_ns in times]

    def to_json(self) -> dict[str, Any]:
        quantiles = {f"p{q * 100:g}".replace(".", ""): self.percentile_ns(q) / MILLISECOND_NS for q in PERCENTILES}
        backlog = self.backlog()
        hedging = {
            "replay": self.hedge,
            "hedges": {"issued": self.hedges, "won": self.hedges_won, "wasted": self.hedges_wasted},
            "cancelled": self.cancelled,
            "extraWork": self.extra_work,
        }
        return {
            "policy": self.policy,
            **(hedging if self.hedge else {}),
            "seed": self.seed,
            "tuples": len(self.done_ns),
            "latencyMs": {"mean": self.mean_ns / MILLISECOND_NS, **quantiles, "max": self.max_ns / MILLISECOND_NS},
            "throughputPerS": self.throughput_per_s,
            "maxBacklog": max(tuples for _, tuples in backlog),
            "executed": list(self.executed),
            "utilisation": [busy_ns / self.end_ns for busy_ns in self.busy_ns],
            "messages": self.messages,
            "stages": [stage.to_json(self.end_ns) for stage in self.stages],
            "backlog": [[at_ns / SECOND_NS, tuples] for at_ns, tuples in backlog],
        }
