"""Confidence intervals: Student's t, and the SQL that puts intervals around means."""

from __future__ import annotations

from collections.abc import Sequence
from math import pi, sqrt, tan
from statistics import NormalDist, fmean, median, stdev

CONFIDENCE = 0.95
MOST = 1_000
"""Samples up to which t differs from the normal distribution's quantile in the third digit."""


def student_t(samples: int) -> float:
    """How many standard errors on either side of the mean of so many samples hold the true one with ``CONFIDENCE``.

    Exact for two and three samples; above, the expansion around the normal quantile, right to three digits.
    """
    freedom = samples - 1
    if freedom == 1:
        return tan(pi * CONFIDENCE / 2)
    if freedom == 2:
        return CONFIDENCE * sqrt(2 / (1 - CONFIDENCE**2))
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return sum(term / float(freedom) ** power for power, term in enumerate(terms))


def median_interval(samples: Sequence[float]) -> tuple[float, float | None, float | None]:
    """The median of a few measurements, and the interval of their mean. A single one has none.

    A busy moment spoils a mean more than a median. No two differ by more than a standard deviation, so up to six
    samples the median is within the interval.
    """
    if len(samples) < 2:
        return median(samples), None, None
    mean, reach = fmean(samples), student_t(len(samples)) * stdev(samples) / sqrt(len(samples))
    return median(samples), mean - reach, mean + reach


def student_t_table() -> list[tuple[int, float]]:
    """The view ``student_t`` of an aggregation; ``interval_sql`` takes the last entry for larger samples."""
    return [(samples, student_t(samples)) for samples in range(2, MOST + 1)]


def statistics_sql(column: str) -> str:
    """The mean of a column and its standard error, as ``column`` and ``column_error``, inside a GROUP BY."""
    return f"avg({column}) AS {column}, stddev_samp({column}) / sqrt(count({column})) AS {column}_error"


def interval_sql(column: str) -> str:
    """``column``, ``column_low`` and ``column_high`` from what ``statistics_sql`` made, with ``t`` joined in."""
    return f"{column}, {column} - t * {column}_error AS {column}_low, {column} + t * {column}_error AS {column}_high"


JOIN_T = f"LEFT JOIN student_t ON student_t.n = least(runs, {MOST})"
"""Where the number of samples is the column ``runs``. A single one has no interval: it is null."""
