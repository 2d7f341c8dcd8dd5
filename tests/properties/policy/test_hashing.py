"""Equal keys hash equal, in every process; the values are pinned, because a checkpoint outlives a release."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from fractions import Fraction
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tailrace.policy.hashing import stable_hash


class Colour(Enum):
    RED = 1
    GREEN = 2
    CRIMSON = 1  # noqa: PIE796 - an alias on purpose


class Level(IntEnum):
    LOW = 1


class Word(StrEnum):
    CAT = "cat"


class Access(Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: int
    y: int


offsets = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
numbers = st.one_of(
    st.booleans(),
    st.integers(),
    st.floats(),
    st.decimals(allow_nan=False),
    st.fractions(),
    st.complex_numbers(),
)
atoms = st.one_of(
    st.none(),
    numbers,
    st.text(),
    st.text("a\ud800\udfff"),  # lone surrogates, as os.fsdecode makes them
    st.binary(),
    st.datetimes(),
    st.datetimes(timezones=offsets),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.uuids(),
    st.sampled_from([*Colour, *Level, *Word, Access.READ | Access.WRITE]),
)
groups = st.lists(atoms, max_size=4).map(tuple) | st.frozensets(atoms, max_size=4)
keys = st.one_of(atoms, groups, st.lists(atoms | groups, max_size=4).map(tuple))
small = st.integers(-3, 3)
small_numbers = st.one_of(
    st.booleans(),
    small,
    small.map(float),
    small.map(Decimal),
    small.map(Fraction),
    small.map(complex),
    st.just(Level.LOW),
)


@given(keys)
def test_a_hash_is_64_bits_and_repeatable(key: Any) -> None:
    first = stable_hash(key)
    assert 0 <= first < 2**64
    assert stable_hash(key) == first


@given(small_numbers, small_numbers)
def test_numbers_hash_equal_exactly_when_they_are_equal(a: Any, b: Any) -> None:
    assume({a, b} != {-1, -2})  # Python itself gives these two one hash
    assert (stable_hash(a) == stable_hash(b)) == (a == b)


@given(st.floats(allow_nan=False))
def test_a_float_hashes_as_the_fraction_and_decimal_it_equals(number: float) -> None:
    if number in (float("inf"), float("-inf")):
        assert stable_hash(number) == stable_hash(Decimal(number))
    else:
        assert stable_hash(number) == stable_hash(Fraction(number)) == stable_hash(Decimal(number))


@given(st.tuples(small_numbers, small_numbers), st.tuples(small_numbers, small_numbers))
def test_tuples_hash_equal_when_they_are_equal(a: tuple[Any, ...], b: tuple[Any, ...]) -> None:
    if a == b:
        assert stable_hash(a) == stable_hash(b)


@given(st.lists(atoms, max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_a_set_does_not_matter(items: list[Any], random: Any) -> None:
    shuffled = list(items)
    random.shuffle(shuffled)
    assert stable_hash(frozenset(items)) == stable_hash(frozenset(shuffled))


@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1)), offsets, offsets)
def test_one_instant_hashes_equal_in_all_time_zones(moment: datetime, here: tzinfo, there: tzinfo) -> None:
    a = moment.replace(tzinfo=here)
    b = a.astimezone(there)
    assert a == b
    assert stable_hash(a) == stable_hash(b)


@given(st.times(), st.integers(-600, 600), st.integers(-600, 600))
@example(time(12, 0), 0, 60)
def test_equal_times_of_day_hash_equal(moment: time, here: int, there: int) -> None:
    shifted = datetime(2000, 1, 2, moment.hour, moment.minute, moment.second, moment.microsecond) + timedelta(
        minutes=there - here
    )
    assume(shifted.date() == date(2000, 1, 2))
    a = moment.replace(tzinfo=timezone(timedelta(minutes=here)))
    b = shifted.time().replace(tzinfo=timezone(timedelta(minutes=there)))
    assert a == b
    assert stable_hash(a) == stable_hash(b)


def test_the_fold_is_ignored_as_comparison_ignores_it() -> None:
    first = datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    second = first.replace(fold=1)
    assert first == second
    assert first.utcoffset() != second.utcoffset()
    assert stable_hash(first) == stable_hash(second)


def test_the_earliest_and_latest_moments_can_be_hashed() -> None:
    east, west = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))
    assert stable_hash(datetime.min.replace(tzinfo=east)) != stable_hash(datetime.max.replace(tzinfo=west))


@pytest.mark.parametrize("nan", [float("nan"), Decimal("nan"), Decimal("snan"), complex("nan")])
def test_every_nan_has_the_same_hash(nan: Any) -> None:
    assert stable_hash(nan) == stable_hash(float("nan"))


class NotATime(datetime):
    """Like pandas.NaT: a datetime that does not equal itself."""

    __hash__ = datetime.__hash__

    def __eq__(self, other: object) -> bool:
        return False

    def __ne__(self, other: object) -> bool:
        return True


def test_a_moment_that_is_none_hashes_like_nan() -> None:
    assert stable_hash(NotATime(2024, 1, 1)) == stable_hash(float("nan"))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (Level.LOW, 1),
        (Word.CAT, "cat"),
        (Colour.CRIMSON, Colour.RED),
        (Point(1, 2), (1.0, True + 1)),
        (Access.WRITE | Access.READ, Access.READ | Access.WRITE),
        (0.0, -0.0),
        ((1, ("a", None)), (True, ("a", None))),
    ],
)
def test_these_compare_equal_and_hash_equal(a: Any, b: Any) -> None:
    assert a == b
    assert stable_hash(a) == stable_hash(b)


def test_things_that_differ_hash_apart() -> None:
    moment = datetime(2024, 1, 1)
    different: list[Any] = [
        None, 0, 1, -1, 2, 1.5, "", "1", b"", b"1", (), (1,), (1, 2), (2, 1), ((1,), 2), frozenset(), frozenset({1}),
        ("ab",), ("a", "b"), moment, moment.replace(tzinfo=UTC), moment.date(), moment.time(),
        moment.time().replace(tzinfo=UTC), timedelta(), UUID(int=0), UUID(int=1), Colour.RED, Colour.GREEN,
        Access.READ, Access.WRITE, Access.READ | Access.WRITE, float("nan"), float("inf"),
    ]  # fmt: skip
    assert len({stable_hash(key) for key in different}) == len(different)


def test_neighbouring_integers_spread_evenly() -> None:
    counts = [0] * 8
    for number in range(8000):
        counts[stable_hash(number) % 8] += 1
    assert min(counts) > 850
    assert max(counts) < 1150


def test_hashes_never_change() -> None:
    assert stable_hash("tailrace") == 0xADE227F8FDF0F48A
    assert stable_hash(42) == 0xBDD732262FEB6E95
    assert stable_hash(("user", 7, None)) == 0xFCBD7D5D13EED82E


_SAMPLE = """
from datetime import *; from enum import *; from tailrace.policy.hashing import stable_hash
class Colour(Enum): RED = 1
keys = ["a", b"a", ("a", 1, None), frozenset("abc"), Colour.RED, 1.5, float("nan"), datetime(2024, 1, 1), time(1)]
print([stable_hash(key) for key in keys])
"""


def test_another_process_with_another_hash_seed_agrees() -> None:
    def run(hash_seed: str) -> str:
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        return subprocess.run(
            [sys.executable, "-c", _SAMPLE], env=env, check=True, capture_output=True, text=True
        ).stdout

    assert run("1") == run("2") == run("random") != ""


class Unknown:
    def __repr__(self) -> str:
        return "Unknown()"


@pytest.mark.parametrize(("key", "kind"), [([1, 2], "list"), ({"a": 1}, "dict"), (Unknown(), "Unknown"), ({1}, "set")])
def test_other_types_are_refused(key: Any, kind: str) -> None:
    with pytest.raises(TypeError) as caught:
        stable_hash(key)
    assert str(caught.value) == (
        f"a key of this type cannot be routed: type={kind} key={key!r}: "
        "could the key function return a str, a number, bytes or a tuple of these?"
    )


def test_a_tuple_is_refused_for_what_is_in_it() -> None:
    with pytest.raises(TypeError, match=r"type=list key=\[1\]: could"):
        stable_hash(("a", [1]))
