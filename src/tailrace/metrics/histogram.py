"""A histogram that merges without loss: merging two equals recording all their values into one.

Buckets are log-linear. A value below 64 has a bucket of its own; above, every power of two is cut into 32 equal
parts, so that a bucket is never wider than 1/32 of the values in it. Count, sum, smallest and largest are exact.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

SUB_BUCKETS_LOG2 = 5
SUB_BUCKETS = 1 << SUB_BUCKETS_LOG2
_SIGNIFICANT_BITS = SUB_BUCKETS_LOG2 + 1

LARGEST_VALUE = (1 << 64) - 1
"""As nanoseconds this is 584 years: anything above is a bug in the caller."""

HistogramSnapshot = tuple[int, int, int, int, tuple[tuple[int, int], ...]]
"""``(count, sum, smallest, largest, ((bucket, count), ...))``, buckets ascending and never empty."""

EMPTY_SNAPSHOT: HistogramSnapshot = (0, 0, 0, 0, ())


def bucket_of(value: int) -> int:
    """The bucket that holds ``value``."""
    shift = value.bit_length() - _SIGNIFICANT_BITS
    return (shift << SUB_BUCKETS_LOG2) + (value >> shift) if shift > 0 else value


def bucket_lower(bucket: int) -> int:
    """The smallest value that ``bucket`` holds."""
    shift = max(0, (bucket >> SUB_BUCKETS_LOG2) - 1)
    return (bucket - (shift << SUB_BUCKETS_LOG2)) << shift


def bucket_upper(bucket: int) -> int:
    """The largest value that ``bucket`` holds."""
    return bucket_lower(bucket + 1) - 1


_BUCKETS = bucket_of(LARGEST_VALUE) + 1


class Histogram:
    """Counts non-negative ints, usually nanoseconds. One thread records; others may read through ``snapshot``."""

    __slots__ = ("_counts", "_largest", "_smallest", "count", "sum")

    def __init__(self) -> None:
        self._counts = [0] * _BUCKETS
        self._smallest = LARGEST_VALUE
        self._largest = -1
        self.count = 0
        self.sum = 0

    @classmethod
    def of(cls, values: Iterable[int]) -> Histogram:
        """A histogram of ``values``."""
        histogram = cls()
        histogram.record_many(tuple(values))
        return histogram

    @classmethod
    def from_snapshot(cls, snapshot: HistogramSnapshot) -> Histogram:
        """The histogram that ``snapshot`` was taken of."""
        return cls.merged((snapshot,))

    @classmethod
    def merged(cls, snapshots: Iterable[HistogramSnapshot]) -> Histogram:
        """One histogram of everything in ``snapshots``."""
        histogram = cls()
        for snapshot in snapshots:
            histogram.merge_snapshot(snapshot)
        return histogram

    def record(self, value: int) -> None:
        """Count one value."""
        if not 0 <= value <= LARGEST_VALUE:
            raise _outside(value)
        # The bounds are updated before the buckets, so that a concurrent snapshot has bounds that cover its counts.
        if value < self._smallest:
            self._smallest = value
        if value > self._largest:
            self._largest = value
        shift = value.bit_length() - 6
        self._counts[(shift << 5) + (value >> shift) if shift > 0 else value] += 1
        self.count += 1
        self.sum += value

    def record_many(self, values: Sequence[int]) -> None:
        """Count every value: all of them, or none if one is out of range. About 0.15 us a value."""
        if not values:
            return
        smallest, largest = min(values), max(values)
        if smallest < 0 or largest > LARGEST_VALUE:
            raise _outside(smallest if smallest < 0 else largest)
        if smallest < self._smallest:
            self._smallest = smallest
        if largest > self._largest:
            self._largest = largest
        counts = self._counts
        for value in values:  # bucket_of, inlined: a call would cost as much as the rest of the loop
            shift = value.bit_length() - 6
            if shift > 0:
                counts[(shift << 5) + (value >> shift)] += 1
            else:
                counts[value] += 1
        self.count += len(values)
        self.sum += sum(values)

    def merge(self, other: Histogram) -> None:
        """Add everything that ``other`` has counted."""
        self.merge_snapshot(other.snapshot())

    def merge_snapshot(self, snapshot: HistogramSnapshot) -> None:
        """Add everything that was counted in ``snapshot``."""
        count, total, smallest, largest, buckets = snapshot
        if not count:
            return
        self._smallest = min(self._smallest, smallest)
        self._largest = max(self._largest, largest)
        counts = self._counts
        for bucket, n in buckets:
            counts[bucket] += n
        self.count += count
        self.sum += total

    def subtract(self, earlier: Histogram) -> Histogram:
        """A histogram of what was counted since ``earlier``, which is a copy of this histogram at an earlier time.

        Count and sum are exact. The largest is exact if it is a new record, otherwise the bound of its bucket, and
        likewise the smallest.
        """
        pairs = _differences(self._counts, earlier._counts)
        if not pairs:
            return Histogram()
        first, last = pairs[0][0], pairs[-1][0]
        smallest = self.min if self._smallest < earlier._smallest else max(self.min, bucket_lower(first))
        largest = self.max if self._largest > earlier._largest else min(self.max, bucket_upper(last))
        count = sum(n for _, n in pairs)
        return Histogram.from_snapshot((count, self.sum - earlier.sum, smallest, largest, tuple(pairs)))

    @property
    def min(self) -> int:
        """The smallest value; 0 if there is none."""
        return self._smallest if self._largest >= 0 else 0

    @property
    def max(self) -> int:
        """The largest value; 0 if there is none."""
        return max(0, self._largest)

    @property
    def mean(self) -> float:
        """The exact mean; 0 if there are no values."""
        return self.sum / self.count if self.count else 0.0

    def percentile(self, q: float) -> int:
        """A value that at least the fraction ``q`` of all values do not exceed; 0 if there are no values.

        It is at most 1/32 above the exact percentile, never below it, and never above ``max``.
        """
        return self.percentiles(q)[0]

    def percentiles(self, *qs: float) -> list[int]:
        """``percentile`` of each of ``qs``, in one pass."""
        for q in qs:
            if not 0 <= q <= 1:
                raise ValueError(f"percentile outside 0..1: q={q}; was it meant in percent?")
        if not self.count:
            return [0] * len(qs)
        first = bucket_of(self.min)
        cumulative = list(accumulate(self._counts[first : bucket_of(self.max) + 1]))
        return [min(self.max, bucket_upper(first + bisect_left(cumulative, _rank(q, cumulative[-1])))) for q in qs]

    def buckets(self) -> Iterator[tuple[int, int]]:
        """``(largest value it can hold, count)`` of every bucket in use, ascending; the last is clipped to ``max``."""
        for bucket, n in self.snapshot()[4]:
            yield min(self.max, bucket_upper(bucket)), n

    def copy(self) -> Histogram:
        """An independent copy."""
        return Histogram.from_snapshot(self.snapshot())

    def snapshot(self) -> HistogramSnapshot:
        """The content, sparse and picklable. Safe while another thread records: its count matches its own buckets."""
        smallest, largest = self._smallest, self._largest
        if largest < smallest:
            return EMPTY_SNAPSHOT
        first = bucket_of(smallest)
        window = self._counts[first : bucket_of(largest) + 1]
        pairs = tuple([(bucket, n) for bucket, n in enumerate(window, first) if n])
        return (sum(window), self.sum, smallest, largest, pairs)

    def validate(self) -> None:
        """Raise AssertionError unless bounds, count and sum agree with the buckets."""
        used = [bucket for bucket, n in enumerate(self._counts) if n]
        assert self.count == sum(self._counts), (self.count, sum(self._counts))
        assert min(self._counts) >= 0, "a bucket counts less than nothing"
        assert self.count * self.min <= self.sum <= self.count * self.max, (self.count, self.min, self.sum, self.max)
        if used:
            assert (used[0], used[-1]) == (bucket_of(self.min), bucket_of(self.max)), (used, self.min, self.max)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Histogram) and self.snapshot() == other.snapshot()

    __hash__ = None  # type: ignore[assignment]  # it is mutable

    def __reduce__(self) -> tuple[object, ...]:
        return Histogram.from_snapshot, (self.snapshot(),)

    def __repr__(self) -> str:
        p50, p99 = self.percentiles(0.5, 0.99)
        return f"Histogram(count={self.count}, min={self.min}, p50={p50}, p99={p99}, max={self.max})"


def _differences(now: list[int], earlier: list[int]) -> list[tuple[int, int]]:
    """``(bucket, growth)`` of every bucket that has grown."""
    pairs = [(bucket, a - b) for bucket, (a, b) in enumerate(zip(now, earlier, strict=True)) if a != b]
    for bucket, growth in pairs:
        if growth < 0:
            values = f"{bucket_lower(bucket)}..{bucket_upper(bucket)}"
            raise ValueError(
                f"histogram subtracted is not an earlier one: values={values} excess={-growth}; "
                "were the two swapped, or taken of different tasks?"
            )
    return pairs


def _rank(q: float, count: int) -> int:
    """How many values must be at or below the percentile. Rounded first, as 0.07 * 100 is 7.000000000000001."""
    return max(1, min(count, math.ceil(round(q * count, 6))))


def _outside(value: int) -> ValueError:
    return ValueError(
        f"value outside 0..2^64-1: value={value}; was it the difference of clocks on two machines?",
    )
