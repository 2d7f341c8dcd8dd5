"""Coarse histograms for people: few buckets, with round bounds.

Bounds follow a series within each decade, the finest that needs no more buckets than allowed: 1, 1.5, 2, 3, 5, 7; or
1, 2, 5; or 1.
"""

from __future__ import annotations

from bisect import bisect_left

from tailrace.metrics.histogram import Histogram

MOST_BUCKETS = 24  # fits on one screen below a summary; one per decade always fits, as 2^64 has 20 digits

_SERIES = ((10, 15, 20, 30, 50, 70), (10, 20, 50), (10,))  # in tenths
_DECADES = 21


def coarse_buckets(histogram: Histogram, most: int = MOST_BUCKETS) -> list[tuple[int, int]]:
    """``(upper bound, count)`` ascending without gaps, from the first bucket in use to the last.

    A value is at or below the bound that it is counted under. It may also be below the previous bound, by up to 1/32.
    """
    fine = list(histogram.buckets())
    if not fine:
        return []
    for series in _SERIES:
        bounds = _bounds(series, fine[0][0], fine[-1][0])
        if len(bounds) <= most:
            return _fill(bounds, fine)
    raise ValueError(f"too few buckets: most={most} needed={len(bounds)}; one a decade is the coarsest there is")


def _bounds(series: tuple[int, ...], smallest: int, largest: int) -> list[int]:
    """The bounds of a series from the first at or above ``smallest`` to the first at or above ``largest``."""
    # Below ten nanoseconds 1.5 rounds down to 1, which is already a bound.
    everything = sorted({step * 10**decade // 10 for decade in range(_DECADES) for step in series})
    return everything[bisect_left(everything, smallest) : bisect_left(everything, largest) + 1]


def _fill(bounds: list[int], fine: list[tuple[int, int]]) -> list[tuple[int, int]]:
    counts = [0] * len(bounds)
    for upper, count in fine:
        counts[bisect_left(bounds, upper)] += count
    return list(zip(bounds, counts, strict=True))
