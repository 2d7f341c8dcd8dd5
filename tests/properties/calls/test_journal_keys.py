"""Equal values have one key, in every process; values that differ have two."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.calls.journal_keys import KEY_BYTES, Place, journal_key, place_of, tuple_key

NUMBERS = (
    st.integers() | st.booleans() | st.floats(allow_nan=False) | st.decimals(allow_nan=False) | st.fractions(-3, 3)
)
MOMENTS = st.dates() | st.datetimes() | st.datetimes(timezones=st.timezones()) | st.times() | st.timedeltas()
ATOMS = st.none() | NUMBERS | st.text() | st.binary() | MOMENTS | st.uuids()
HASHABLE = st.recursive(ATOMS, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=4)
VALUES = st.recursive(
    HASHABLE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(HASHABLE, inner, max_size=3) | st.tuples(inner, inner),
    max_leaves=6,
)


@given(VALUES, VALUES)
def test_keys_are_equal_exactly_if_values_are(one: Any, other: Any) -> None:
    assert (journal_key(one) == journal_key(other)) is (one == other)


@given(VALUES)
def test_a_value_that_was_sent_has_the_same_key(value: Any) -> None:
    assert journal_key(pickle.loads(pickle.dumps(value))) == journal_key(value)


@given(st.integers(-5, 5), st.integers(-5, 5))
def test_numbers_of_all_types_agree(one: int, other: int) -> None:
    for convert in (float, Decimal, Fraction, lambda n: Decimal(f"{n}.00"), lambda n: pd.Series([n])[0]):
        assert (journal_key(one) == journal_key(convert(other))) is (one == other)


@given(st.dictionaries(st.text(), st.integers(), max_size=5))
def test_a_dict_has_no_order(value: dict[str, int]) -> None:
    assert journal_key(value) == journal_key(dict(reversed(value.items())))


@given(st.lists(st.text(max_size=2), max_size=3), st.lists(st.text(max_size=2), max_size=3))
def test_parts_do_not_run_into_each_other(one: list[str], other: list[str]) -> None:
    assert (journal_key(*one) == journal_key(*other)) is (one == other)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**62), VALUES)
def test_a_key_of_a_tuple_holds_its_place(split: int, offset: int, value: Any) -> None:
    key = tuple_key("score", Place(split, offset), 7, value)
    assert place_of(key) == (split, offset)
    assert place_of(key[:KEY_BYTES]) is None
    for other in (
        tuple_key("rank", Place(split, offset), 7, value),
        tuple_key("score", Place(split ^ 1, offset), 7, value),
        tuple_key("score", Place(split, offset + 1), 7, value),
        tuple_key("score", Place(split, offset), 8, value),
        tuple_key("score", Place(split, offset), 7, [value]),
    ):
        assert other[:KEY_BYTES] != key[:KEY_BYTES]


class Colour(Enum):
    RED = 1
    BLUE = 2


class Level(IntEnum):
    LOW = 1


@dataclass
class Point:
    x: int
    tags: set[str]


class Pair(NamedTuple):
    a: int
    b: int


def test_objects_count_by_class_and_content() -> None:
    assert journal_key(Point(1, {"a", "b"})) == journal_key(Point(1, {"b", "a"})) != journal_key(Point(2, {"a", "b"}))
    assert journal_key(Colour.RED) != journal_key(Colour.BLUE)
    assert journal_key(Level.LOW) == journal_key(1)
    assert journal_key(Pair(1, 2)) == journal_key((1, 2)) != journal_key([1, 2])
    assert journal_key(pd.DataFrame({"a": [1]})) == journal_key(pd.DataFrame({"a": [1]}))
    assert journal_key(pd.Timestamp(1)) != journal_key(pd.Timestamp(2))  # nanoseconds
    assert journal_key(pd.NaT) == journal_key(pd.NaT)
    assert journal_key(float("nan")) == journal_key(Decimal("nan"))
    assert journal_key(int) != journal_key(str)


def test_numbers_of_any_size_have_keys() -> None:
    huge = [10**5000, 10**5000 + 1, Decimal("1e100000000"), Decimal("2e100000000"), Decimal("1e-100000000")]
    assert len({journal_key(number) for number in huge}) == len(huge)
    assert journal_key(Decimal("10e500")) == journal_key(Decimal("1e501"))


def test_an_instant_is_the_same_in_every_zone() -> None:
    noon = datetime(2026, 5, 1, 12, tzinfo=UTC)
    assert journal_key(noon) == journal_key(noon.astimezone(timezone(timedelta(hours=5))))
    assert journal_key(noon) != journal_key(noon.replace(tzinfo=None))


SAMPLE: list[Any] = [
    *(None, True, -7, 2.5, Decimal("1.10"), "Zürich", b"\x00\xff"),
    *(date(2026, 5, 1), datetime(2026, 5, 1, 12, 30), datetime(2026, 5, 1, 12, 30, tzinfo=UTC), timedelta(1, 2, 3)),
    *((1, "a"), [1, ["b"]], {"b": 1, "a": {"c": None}}, {"x", "y", "z"}, UUID(int=5)),
]


def test_keys_are_those_of_every_other_process_and_of_every_version() -> None:
    """If this fails, journals of earlier versions are worth nothing: calls are paid for again."""
    expected = "c205b6c6f23469f38d29b47a26fba21e"
    assert journal_key(*SAMPLE).hex() == expected
    code = (
        "import sys; sys.path[:0] = eval(sys.argv[1])\n"
        "from test_journal_keys import SAMPLE, journal_key\n"
        "print(journal_key(*SAMPLE).hex())"
    )
    for seed in ("1", "2"):
        out = subprocess.run(
            [sys.executable, "-c", code, repr([str(Path(__file__).parent), *sys.path])],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert out.stdout.strip() == expected


def test_what_cannot_be_taken_apart_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(TypeError, match=r"^a value cannot identify a call: value=.*: is it nested too deeply, or"):
        journal_key(loop)
    with pytest.raises(TypeError, match=r"^a value cannot identify a call: type=generator value=<generator .* cause="):
        journal_key(n for n in ())
