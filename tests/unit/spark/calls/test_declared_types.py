"""Types that are declared for results: which are refused, when and in which words, without a Spark that runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import ParseException
from pyspark.sql.types import (
    ArrayType,
    CharType,
    DataType,
    LongType,
    StructField,
    StructType,
    VarcharType,
    YearMonthIntervalType,
)

import tailrace as tr
from tailrace.errors import OptionError
from tailrace.spark.calls import declared
from tailrace.spark.calls.declared import parse

WRITTEN = "is it a string such as 'label string, score double', or a type of pyspark.sql.types?"
DOUBLED = StructType([StructField("x", LongType()), StructField("x", LongType())])
SAID = """
[UNSUPPORTED_DATATYPE] Unsupported data type "LNG". SQLSTATE: 0A000 (line 1, pos 3)

== SQL ==
id lng
---^^^
"""


def score(row: Any) -> Any:
    return row


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (
            YearMonthIntervalType(),
            "year-month intervals do not exist in Python: schema=interval year to month: "
            "could it be an int, a number of months?",
        ),
        (VarcharType(3), "Python has strings of any length only: schema=varchar(3): did you mean string?"),
        (
            StructType([StructField("a", ArrayType(CharType(3)))]),
            "Python has strings of any length only: schema=char(3) column=a: did you mean string?",
        ),
        (
            5,
            "not a type: schema=5: " + WRITTEN,
        ),
        (
            StructType([StructField("id", LongType()), StructField("ID", LongType())]),
            "names differ in case only, or not at all: schema=struct<id:bigint,ID:bigint> columns=id,ID: "
            "could one of them have another name?",
        ),
        (
            StructType([StructField("a", ArrayType(DOUBLED))]),
            "names differ in case only, or not at all: schema=struct<x:bigint,x:bigint> column=a[] columns=x,x: "
            "could one of them have another name?",
        ),
        (StructType([]), "a schema of nothing: schema=StructType([]): " + WRITTEN),
        (" ", "a schema of nothing: schema=' ': " + WRITTEN),
    ],
    ids=str,
)
def test_types_that_results_cannot_have_are_refused(kind: Any, text: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse(kind, "schema")
    assert str(caught.value) == text


@pytest.fixture
def parser(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands for a session that can parse one of two schemas."""

    def parsed(ddl: str) -> DataType:
        if ddl == "x long, x long":
            return DOUBLED
        raise ParseException(SAID)

    monkeypatch.setattr(declared, "active_session", object)
    monkeypatch.setattr(DataType, "fromDDL", parsed)


MAKES: list[Callable[[str], Any]] = [lambda schema: tr.map_rows(score, schema), lambda schema: tr.udf(schema)(score)]


MAKES_OF: list[Callable[[Any], Any]] = [lambda function: tr.map_rows(function, "id long"), tr.udf("long")]


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(("make", "place"), [*zip(MAKES, ["map_rows=score schema", "udf=score schema"], strict=True)])
def test_a_schema_that_makes_no_sense_is_refused_when_the_step_is_made(make: Any, place: str) -> None:
    with pytest.raises(OptionError) as caught:
        make("id lng")
    cause = """cause='[UNSUPPORTED_DATATYPE] Unsupported data type "LNG"'"""
    assert str(caught.value) == f"not a type: {place}='id lng' {cause}: {WRITTEN}"
    with pytest.raises(OptionError, match=f"not at all: {place}=struct<x:bigint,x:bigint> columns=x,x: could one of"):
        make("x long, x long")


@pytest.mark.parametrize(("make", "place"), [*zip(MAKES, ["map_rows=score schema", "udf schema"], strict=True)])
def test_without_a_session_only_a_schema_of_nothing_is_refused(make: Any, place: str) -> None:
    make("id lng")
    with pytest.raises(OptionError) as caught:
        make("")
    assert str(caught.value) == f"a schema of nothing: {place}='': {WRITTEN}"


def test_a_function_of_nothing_is_refused_by_both() -> None:
    for make in MAKES_OF:
        with pytest.raises(OptionError) as caught:
            make(lambda: 1)
        assert str(caught.value) == (
            "a function does not take what it will be given: function=lambda arguments=1 signature=(): "
            "did you mean def f(value)?"
        )
    assert tr.udf("long")(lambda a, b: a + b)(1, 2) == 3
    assert tr.udf("long")(max)(1, 2) == 2


def test_one_value_is_no_row() -> None:
    with pytest.raises(OptionError) as caught:
        tr.map_rows(score, LongType())  # type: ignore[arg-type]
    assert str(caught.value) == (
        "not columns: map_rows=score schema=bigint: did you mean names and types, such as 'id long, name string'?"
    )
