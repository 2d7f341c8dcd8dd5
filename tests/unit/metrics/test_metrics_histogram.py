from __future__ import annotations

import pytest

from tailrace.metrics.coarse import coarse_buckets
from tailrace.metrics.histogram import EMPTY_SNAPSHOT, LARGEST_VALUE, Histogram


def test_percentiles_of_known_values() -> None:
    histogram = Histogram.of(range(1, 101))
    # 63 is the last value with a bucket of its own; 90 shares one with 91 and 99 one with 98.
    assert histogram.percentiles(0.0, 0.07, 0.5, 0.9, 0.99, 1.0) == [1, 7, 50, 91, 99, 100]


def test_percentile_is_clipped_to_the_largest_value() -> None:
    assert Histogram.of([1_000_001]).percentile(0.5) == 1_000_001


def test_a_rank_does_not_suffer_from_binary_fractions() -> None:
    # 0.07 * 100 is slightly above 7 in binary and would take the eighth value.
    assert Histogram.of([*[1] * 7, *[50] * 93]).percentile(0.07) == 1


def test_nothing_recorded_reads_as_zero() -> None:
    empty = Histogram()
    empty.record_many([])
    empty.validate()
    assert (empty.count, empty.sum, empty.min, empty.max, empty.mean, empty.percentile(0.99)) == (0, 0, 0, 0, 0.0, 0)
    assert empty.snapshot() == EMPTY_SNAPSHOT


def test_extremes_are_counted() -> None:
    histogram = Histogram.of([0, LARGEST_VALUE])
    assert (histogram.percentile(0.5), histogram.percentile(1.0)) == (0, LARGEST_VALUE)


@pytest.mark.parametrize("value", [-1, -100, LARGEST_VALUE + 1])
def test_a_value_out_of_range_is_refused_and_leaves_no_trace(value: int) -> None:
    histogram = Histogram.of([5])
    text = f"value outside 0\\.\\.2\\^64-1: value={value}; was it the difference of clocks on two machines\\?"
    with pytest.raises(ValueError, match=text):
        histogram.record(value)
    with pytest.raises(ValueError, match=text):
        histogram.record_many([7, value])
    assert histogram == Histogram.of([5])


def test_percentile_outside_its_range_is_refused() -> None:
    with pytest.raises(ValueError, match=r"percentile outside 0\.\.1: q=99; was it meant in percent\?"):
        Histogram.of([1]).percentile(99)


def test_subtracting_what_is_not_earlier_is_refused() -> None:
    with pytest.raises(ValueError, match=r"not an earlier one: values=96\.\.97 excess=2; were the two swapped"):
        Histogram.of([3]).subtract(Histogram.of([96, 97]))


def test_an_interval_has_an_exact_maximum_only_if_it_is_a_new_one() -> None:
    earlier = Histogram.of([1_000, 5_000])
    record = earlier.copy()
    record.record(9_001)
    assert record.subtract(earlier).max == 9_001
    below = earlier.copy()
    below.record(2_000)
    assert (below.subtract(earlier).min, below.subtract(earlier).max) == (1_984, 2_015)


def test_repr_says_what_matters() -> None:
    assert repr(Histogram.of([1, 2, 3])) == "Histogram(count=3, min=1, p50=2, p99=3, max=3)"


def test_validate_notices_a_lost_count() -> None:
    histogram = Histogram.of([1, 2])
    histogram.count = 1
    with pytest.raises(AssertionError):
        histogram.validate()


def test_coarse_buckets_are_fine_where_the_range_is_narrow() -> None:
    buckets = coarse_buckets(Histogram.of([1_000_000, 1_200_000, 4_000_000]))
    assert buckets == [(1_500_000, 2), (2_000_000, 0), (3_000_000, 0), (5_000_000, 1)]


def test_coarse_buckets_follow_1_2_5_over_a_wide_range() -> None:
    bounds = [upper for upper, _ in coarse_buckets(Histogram.of([1_000, 10_000_000_000]))]
    assert len(bounds) == 21
    assert bounds[:5] == [2_000, 5_000, 10_000, 20_000, 50_000]
    assert bounds[-1] == 10_000_000_000


def test_coarse_buckets_fall_back_to_decades() -> None:
    buckets = coarse_buckets(Histogram.of([0, LARGEST_VALUE]))
    assert len(buckets) == 21
    assert (buckets[0], buckets[-1]) == ((1, 1), (10**20, 1))


def test_coarse_buckets_say_when_they_do_not_fit() -> None:
    with pytest.raises(ValueError, match="too few buckets: most=2 needed=4"):
        coarse_buckets(Histogram.of([1, 1_000]), most=2)
