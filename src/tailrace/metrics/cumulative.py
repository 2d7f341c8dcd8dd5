"""Cumulative histograms for Prometheus: the bounds never change, and each count only grows.

Law: the count of a bound includes no value above it, and every value that is more than 1/32 below it. A value once
counted under a bound stays counted under it, whatever is recorded later.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from tailrace.clock import MILLISECOND_NS
from tailrace.metrics.histogram import Histogram, bucket_of, bucket_upper

LATENCY_BOUNDS_NS = tuple(step * 10**decade * MILLISECOND_NS // 10 for decade in range(7) for step in (1, 2, 5))
"""Three per decade, from 0.1 ms to 500 s. Longer latencies are only counted in the total."""


def cumulative_counts(histogram: Histogram, bounds: Sequence[int] = LATENCY_BOUNDS_NS) -> list[int]:
    """How many values lie at or below each of ``bounds``, which ascend.

    A fine bucket that straddles a bound counts under the next bound. If it were split, or its upper end taken from the
    largest value, as a chart may do, a count could shrink when a larger value is recorded.
    """
    whole = [_last_whole(bound) for bound in bounds]
    counts = [0] * (len(bounds) + 1)  # the last one is for values beyond all bounds
    for bucket, count in histogram.snapshot()[4]:
        counts[bisect_left(whole, bucket)] += count
    return list(accumulate(counts[:-1]))


def _last_whole(bound: int) -> int:
    """The last fine bucket that lies wholly at or below ``bound``."""
    bucket = bucket_of(bound)
    return bucket if bucket_upper(bucket) <= bound else bucket - 1
