"""A histogram against the sorted list of its values."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from tailrace.metrics.coarse import MOST_BUCKETS, coarse_buckets
from tailrace.metrics.cumulative import cumulative_counts
from tailrace.metrics.histogram import (
    LARGEST_VALUE,
    SUB_BUCKETS,
    Histogram,
    bucket_lower,
    bucket_of,
    bucket_upper,
)

# Sizes are drawn first, so that small values, latencies and the far end all appear.
VALUE = st.integers(0, 64).flatmap(lambda bits: st.integers(0, (1 << bits) - 1))
VALUES = st.lists(VALUE, max_size=60)


@given(VALUE)
def test_a_bucket_holds_its_value_and_is_narrow(value: int) -> None:
    bucket = bucket_of(value)
    lower, upper = bucket_lower(bucket), bucket_upper(bucket)
    assert lower <= value <= upper
    assert (upper - lower) * SUB_BUCKETS <= lower
    assert bucket_of(lower) == bucket_of(upper) == bucket


@given(st.integers(0, LARGEST_VALUE - 1))
def test_buckets_touch(value: int) -> None:
    upper = bucket_upper(bucket_of(value))
    assert upper == LARGEST_VALUE or bucket_of(upper + 1) == bucket_of(value) + 1


@given(VALUES.filter(bool), st.integers(0, 1000))
def test_percentile_is_the_exact_one_or_slightly_above(values: list[int], permille: int) -> None:
    rank = max(1, -(-permille * len(values) // 1000))
    exact = sorted(values)[rank - 1]
    found = Histogram.of(values).percentile(permille / 1000)
    assert exact <= found <= min(max(values), exact + exact // SUB_BUCKETS)


@given(VALUES)
def test_count_sum_and_bounds_are_exact(values: list[int]) -> None:
    histogram = Histogram.of(values)
    histogram.validate()
    found = (histogram.count, histogram.sum, histogram.min, histogram.max)
    assert found == (len(values), sum(values), min(values, default=0), max(values, default=0))
    assert histogram.mean == (sum(values) / len(values) if values else 0)


@given(VALUES)
def test_recording_one_by_one_equals_recording_many(values: list[int]) -> None:
    one_by_one = Histogram()
    for value in values:
        one_by_one.record(value)
    one_by_one.validate()
    assert one_by_one == Histogram.of(values)


@given(VALUES, VALUES)
def test_merging_equals_recording_all(first: list[int], second: list[int]) -> None:
    merged = Histogram.of(first)
    merged.merge(Histogram.of(second))
    merged.validate()
    assert merged == Histogram.of(first + second)


@given(VALUES, VALUES, VALUES)
def test_merge_is_commutative_and_associative(first: list[int], second: list[int], third: list[int]) -> None:
    a, b, c = (Histogram.of(values).snapshot() for values in (first, second, third))
    left = Histogram.merged((Histogram.merged((a, b)).snapshot(), c))
    right = Histogram.merged((a, Histogram.merged((c, b)).snapshot()))
    assert left == right


@given(VALUES)
def test_snapshot_copy_and_pickle_keep_everything(values: list[int]) -> None:
    histogram = Histogram.of(values)
    assert Histogram.from_snapshot(pickle.loads(pickle.dumps(histogram.snapshot()))) == histogram
    assert pickle.loads(pickle.dumps(histogram)) == histogram
    copy = histogram.copy()
    copy.record(7)
    assert histogram == Histogram.of(values) != copy


@given(VALUES, VALUES)
def test_subtract_leaves_what_came_later(before: list[int], since: list[int]) -> None:
    earlier = Histogram.of(before)
    now = Histogram.of(before + since)
    interval = now.subtract(earlier)
    interval.validate()
    exact = Histogram.of(since)
    assert (interval.count, interval.sum) == (exact.count, exact.sum)
    assert interval.snapshot()[4] == exact.snapshot()[4]
    assert interval.min <= exact.min
    assert interval.max >= exact.max
    assert (now, earlier) == (Histogram.of(before + since), Histogram.of(before))


@given(VALUES)
def test_coarse_buckets_count_every_value_at_or_below_their_bound(values: list[int]) -> None:
    buckets = coarse_buckets(Histogram.of(values))
    assert len(buckets) <= MOST_BUCKETS
    assert sum(count for _, count in buckets) == len(values)
    below = 0
    for upper, count in buckets:
        below += count
        assert below <= sum(value <= upper for value in values)
        assert below >= sum(value + value // SUB_BUCKETS <= upper for value in values)


BOUNDS = st.lists(VALUE, max_size=10).map(sorted)


@given(VALUES, BOUNDS)
def test_cumulative_counts_are_exact_to_a_32nd_of_the_bound(values: list[int], bounds: list[int]) -> None:
    for bound, count in zip(bounds, cumulative_counts(Histogram.of(values), bounds), strict=True):
        surely = sum(value + value // SUB_BUCKETS < bound for value in values)
        assert surely <= count <= sum(value <= bound for value in values)


@given(VALUES, VALUES, BOUNDS)
def test_cumulative_counts_only_grow_and_add_up(first: list[int], second: list[int], bounds: list[int]) -> None:
    """Adding up is more than growing: what a value counts under does not depend on the others."""
    apart = zip(*(cumulative_counts(Histogram.of(values), bounds) for values in (first, second)), strict=True)
    together = cumulative_counts(Histogram.of(first + second), bounds)
    assert together == [sum(pair) for pair in apart]
    assert together == sorted(together)
