"""A limit begins slowly, slows down in proportion to refusals, recovers step by step, and pauses when told to."""

from __future__ import annotations

import pytest

from tailrace.calls.limits.pace import LEAST, Pace
from tailrace.clock import SECOND_NS

START_NS = 5 * SECOND_NS


def after(s: float) -> int:
    return START_NS + int(s * SECOND_NS)


def test_a_limit_begins_with_a_quarter_and_has_all_after_two_seconds() -> None:
    pace = Pace(START_NS)
    assert [pace.factor(after(s)) for s in (0, 1, 2, 10)] == [0.25, 0.625, 1.0, 1.0]


def test_refusals_slow_it_down_in_proportion_and_it_recovers_by_a_tenth_a_second() -> None:
    pace = Pace(START_NS)
    pace.factor(after(10))
    pace.attempted(100)
    pace.refused(40, 0.0, after(10.5))
    assert pace.factor(after(10.9)) == 1.0
    assert pace.factor(after(11)) == pytest.approx(0.8)
    assert pace.factor(after(12)) == pytest.approx(0.9)
    assert pace.factor(after(60)) == 1.0


def test_it_pauses_for_the_time_asked_for_if_most_attempts_are_refused() -> None:
    pace = Pace(START_NS)
    pace.factor(after(10))
    pace.attempted(10)
    pace.refused(5, 3.0, after(10.2))
    assert pace.factor(after(10.3)) == 1.0
    pace.refused(1, 3.0, after(10.3))
    assert pace.factor(after(10.4)) == 0.0
    assert pace.factor(after(13.2)) == 0.0
    assert pace.factor(after(13.3)) == pytest.approx(0.7)
    assert pace.factor(after(14.3)) == pytest.approx(0.8)


def test_a_few_refusals_by_chance_do_not_bring_it_down() -> None:
    pace = Pace(START_NS)
    for second in range(10, 100):
        pace.factor(after(second))
        pace.attempted(100)
        pace.refused(3, 0.0, after(second + 0.5))
        assert pace.factor(after(second + 1)) > 0.98


def test_refusals_of_attempts_before_the_pause_only_lengthen_it() -> None:
    pace = Pace(START_NS)
    pace.factor(after(10))
    pace.attempted(2)
    pace.refused(2, 1.0, after(10))
    for _ in range(50):
        pace.refused(1, 2.0, after(10.5))
    assert pace.factor(after(12.4)) == 0.0
    assert pace.factor(after(12.5)) == pytest.approx(0.5)


def test_it_never_stops_for_good() -> None:
    pace = Pace(START_NS)
    for second in range(10, 60):
        pace.attempted(2)
        pace.refused(1, 0.0, after(second))
        pace.refused(1, 0.0, after(second + 0.5))
    assert LEAST <= pace.factor(after(60)) < 3 * LEAST
