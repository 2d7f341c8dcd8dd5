"""Emission numbers: originals, the hedges that race them, and the tasks that they take turns over."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.core.bundles import FEEDBACK
from tailrace.core.emissions import (
    first_emission,
    hedge_index,
    hedge_of,
    is_hedge,
    next_emission,
    original,
    race_until,
    turn_of,
)

LAST = hedge_of(0) - 1
ORIGINALS = st.integers(0, LAST)


@given(ORIGINALS)
def test_a_hedge_knows_its_original_and_its_index(first: int) -> None:
    one = hedge_of(first)
    two = hedge_of(one)
    assert [hedge_index(emission) for emission in (first, one, two)] == [0, 1, 2]
    assert {original(emission) for emission in (first, one, two)} == {first}
    assert [is_hedge(emission) for emission in (first, one, two)] == [False, True, True]
    assert [list(race_until(emission)) for emission in (first, one, two)] == [[first], [first, one], [first, one, two]]


@given(ORIGINALS)
def test_the_number_after_an_original_is_an_original(first: int) -> None:
    following = next_emission(first)
    assert not is_hedge(following) and following != first


def test_numbers_begin_again_after_the_last() -> None:
    assert next_emission(LAST) == 0
    assert not is_hedge(first_emission(Random(1))) and first_emission(Random(1)) != first_emission(Random(2))


def test_all_numbers_fit_into_64_bits_and_none_is_taken_for_feedback() -> None:
    assert hedge_of(hedge_of(LAST)) < 1 << 64
    assert FEEDBACK < 0


@given(ORIGINALS, st.integers(2, 9))
def test_a_hedge_goes_to_another_task_than_what_it_races(first: int, tasks: int) -> None:
    turns = [turn_of(emission, tasks) for emission in race_until(hedge_of(first))]
    assert turns[0] == first % tasks != turns[1]


@pytest.mark.parametrize("tasks", [1, 3])
def test_originals_take_turns(tasks: int) -> None:
    assert [turn_of(emission, tasks) for emission in range(2 * tasks)] == [*range(tasks), *range(tasks)]
