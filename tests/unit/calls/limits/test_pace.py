"""A limit begins slowly, slows down in proportion to refusals, recovers step by step, and pauses when told to."""

from __future__ import annotations

import pytest

from tailrace.calls.limits.pace import LEAST, Pace
from tailrace.clock import SECOND_NS

START_NS = 5 * SECOND_NS


def after(s: float) -> int:
    return START_NS + int(s * SECOND_NS)


def pace_of(*refused: int) -> tuple[Pace, float]:
    """A pace after half seconds of 100 attempts each, of which so many were refused, and when the last one ends."""
    pace = Pace(START_NS)
    s = 10.0
    for count in refused:
        pace.factor(after(s))
        pace.attempted(100)
        pace.refused(count, 0.0, after(s + 0.25))
        s += 0.5
    return pace, s


def test_a_limit_begins_with_a_quarter_and_has_all_after_a_second() -> None:
    pace = Pace(START_NS)
    assert [pace.factor(after(s)) for s in (0, 0.5, 1, 10)] == [0.25, 0.625, 1.0, 1.0]


def test_refusals_slow_it_down_in_proportion() -> None:
    pace = Pace(START_NS)
    pace.factor(after(10))
    pace.attempted(100)
    pace.refused(40, 0.0, after(10.2))
    assert pace.factor(after(10.4)) == 1.0
    assert pace.factor(after(10.5)) == pytest.approx(0.88)


def test_it_recovers_slowly_at_first_and_faster_while_nothing_is_refused() -> None:
    parts = []
    for clean in range(4):
        pace, now_s = pace_of(40, 40, 40, 40, *[0] * clean)
        parts.append(pace.factor(after(now_s)))
    assert parts == pytest.approx([0.6, 0.65, 0.85, 1.0], abs=0.005)


def test_a_refusal_makes_its_recovery_slow_again() -> None:
    pace, now_s = pace_of(40, 40, 40, 40, 40, 40, 0, 20, 0)
    assert pace.factor(after(now_s)) == pytest.approx((0.88**6 + 0.05) * 0.94 + 0.05)


def test_it_pauses_for_the_time_asked_for_if_most_attempts_are_refused() -> None:
    pace = Pace(START_NS)
    pace.factor(after(10))
    pace.attempted(10)
    pace.refused(5, 3.0, after(10.2))
    assert pace.factor(after(10.3)) == 1.0
    pace.refused(1, 3.0, after(10.3))
    assert pace.factor(after(10.4)) == 0.0
    assert pace.factor(after(13.2)) == 0.0
    assert pace.factor(after(13.3)) == pytest.approx(0.82)
    assert pace.factor(after(13.8)) == pytest.approx(0.87)


def test_a_few_refusals_by_chance_do_not_bring_it_down() -> None:
    pace = Pace(START_NS)
    for half in range(20, 200):
        pace.factor(after(half / 2))
        pace.attempted(100)
        pace.refused(3, 0.0, after(half / 2 + 0.25))
        assert pace.factor(after(half / 2 + 0.5)) > 0.98


def test_refusals_without_attempts_are_of_those_before() -> None:
    pace = Pace(START_NS)
    pace.factor(after(10))
    pace.attempted(100)
    pace.factor(after(10.5))
    pace.refused(40, 0.0, after(10.6))
    assert pace.factor(after(11)) == pytest.approx(0.88)


def test_refusals_of_attempts_before_the_pause_only_lengthen_it() -> None:
    pace = Pace(START_NS)
    pace.factor(after(10))
    pace.attempted(2)
    pace.refused(2, 1.0, after(10))
    for _ in range(50):
        pace.refused(1, 2.0, after(10.5))
    assert pace.factor(after(12.4)) == 0.0
    assert pace.factor(after(12.5)) == pytest.approx(0.7)


def test_it_never_stops_for_good() -> None:
    pace = Pace(START_NS)
    for half in range(20, 120):
        pace.factor(after(half / 2))
        pace.attempted(2)
        pace.refused(2, 0.0, after(half / 2 + 0.2))
    assert LEAST <= pace.factor(after(60)) < 0.2
