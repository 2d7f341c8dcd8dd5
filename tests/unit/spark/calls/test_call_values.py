"""Values of results that fit and that do not, without a Spark that runs."""

from __future__ import annotations

from array import array
from datetime import date, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    Row,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from tailrace.spark.calls.fitting import NOT_AWAITED
from tailrace.spark.calls.rows import RowWriter, in_rows, row_maker
from tailrace.spark.calls.values import Reader, Writer

POINT = StructType([StructField("x", DoubleType()), StructField("tags", ArrayType(LongType()))])
ID_NAME = StructType([StructField("id", LongType()), StructField("name", StringType())])
PLACE = StructType([StructField("lat", DoubleType()), StructField("lon", DoubleType())])
ARRAY_OF_ID_NAME = ArrayType(ID_NAME)
STRUCT = "column=score type=struct<id:bigint,name:string> "

MISFITS: list[tuple[DataType, Any, str]] = [
    (DoubleType(), "high", "column=score type=double value='high': "),
    (LongType(), "1.5", "column=score type=bigint value='1.5': "),
    (LongType(), 1.5, "column=score type=bigint value=1.5: "),
    (IntegerType(), 1 << 40, "column=score type=int value=1099511627776: "),
    (LongType(), Decimal("1.5"), "column=score type=bigint value=Decimal('1.5'): not an integer"),
    (LongType(), np.float32(1.5), "column=score type=bigint value=np.float32(1.5): not an integer"),
    (LongType(), float("nan"), "column=score type=bigint value=nan: "),
    (ArrayType(LongType()), [1, 2.0, 1.5], "column=score[2] type=bigint value=1.5: not an integer: 1.5"),
    (MapType(LongType(), LongType()), {1.5: 1}, "column=score key type=bigint value=1.5: not an integer: 1.5"),
    (MapType(StringType(), LongType()), {"a": 1.5}, "column=score['a'] type=bigint value=1.5: not an integer: 1.5"),
    (POINT, {"x": 1, "tags": [1.5]}, "column=score.tags[0] type=bigint value=1.5: not an integer: 1.5"),
    (ARRAY_OF_ID_NAME, [(1, "x"), (1.5, "y")], "column=score[1].id type=bigint value=1.5: not an integer: 1.5"),
    (ID_NAME, SimpleNamespace(id=1.5), "column=score.id type=bigint value=1.5: not an integer: 1.5"),
    (
        ID_NAME,
        {"id": 1, "nmae": "x"},
        STRUCT + "value={'id': 1, 'nmae': 'x'}: no such field: 'nmae': did you mean name?",
    ),
    (
        ARRAY_OF_ID_NAME,
        [{"idd": 1}],
        "column=score[0] type=struct<id:bigint,name:string> value={'idd': 1}: no such field",
    ),
    (
        PLACE,
        Row(lon=1.0, lat=2.0),
        "column=score type=struct<lat:double,lon:double> value=Row(lon=1.0, lat=2.0): fields in ",
    ),
    (DecimalType(4, 2), Decimal("NaN"), "column=score type=decimal(4,2) value=Decimal('NaN'): not a number"),
    (ArrayType(DecimalType(4, 2)), [Decimal("NaN")], "column=score[0] type=decimal(4,2) value=Decimal('NaN'): not a"),
    (DateType(), 1.5, "column=score type=date value=1.5: a number: 1.5"),
    (DayTimeIntervalType(), 60, "column=score type=interval day to second value=60: a number: 60"),
    (DecimalType(4, 2), Decimal("123.45"), "column=score type=decimal(4,2) value=Decimal('123.45'): "),
    (DateType(), "today", "column=score type=date value='today': "),
    (TimestampNTZType(), "now", "column=score type=timestamp_ntz value='now': AssertionError"),
    (BinaryType(), "text", "column=score type=binary value='text': AssertionError"),
    (StringType(), "\ud800", "column=score type=string value='\\ud800': "),
    (ArrayType(LongType()), [1, "two"], "column=score[1] type=bigint value='two': "),
    (ArrayType(LongType()), 5, "column=score type=array<bigint> value=5: "),
    (MapType(StringType(), LongType()), {"a": "b"}, "column=score['a'] type=bigint value='b': "),
    (MapType(LongType(), LongType()), {"a": 1}, "column=score key type=bigint value='a': "),
    (POINT, {"x": 1.0, "tags": [1, None, "no"]}, "column=score.tags[2] type=bigint value='no': "),
    (POINT, (1.0, "no"), "column=score.tags type=array<bigint> value='no': "),
    (POINT, (1.0,), "column=score type=struct<x:double,tags:array<bigint>> value=(1.0,): "),
]


@pytest.mark.parametrize(("kind", "value", "text"), MISFITS, ids=lambda one: str(one)[:30])
def test_a_value_that_does_not_fit_is_named_with_its_place(kind: DataType, value: Any, text: str) -> None:
    found = Writer("score", kind).why_not(value)
    assert found is not None
    assert found.startswith(text)
    assert "\n" not in found


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (DoubleType(), 1),
        (DoubleType(), None),
        (LongType(), 2.0),
        (LongType(), np.int64(2)),
        (LongType(), np.float64(2)),
        (LongType(), Decimal(2)),
        (ArrayType(LongType()), array("d", [2.0])),
        (MapType(LongType(), ID_NAME), {1: (2.0, None), 2: None, 3: {}}),
        (DecimalType(4, 2), 7),
        (DecimalType(4, 2), Decimal("1.239")),
        (DateType(), date(2026, 3, 1)),
        (DayTimeIntervalType(), timedelta(1)),
        (StringType(), True),
        (POINT, Row(x=1.0, tags=[1])),
        (POINT, {"x": 1.0}),
        (POINT, Row("y", "tags")(1.0, [1])),
        (ID_NAME, SimpleNamespace(id=1, other=2)),
    ],
    ids=str,
)
def test_what_a_plain_udf_takes_fits(kind: DataType, value: Any) -> None:
    assert Writer("score", kind).why_not(value) is None


def test_a_row_is_read_by_attribute_name_and_place() -> None:
    row = row_maker(["id", "class", "a b", "id", "count"])([1, "x", 2.5, 3, 9])
    assert (row.id, row.count, row["class"], row["a b"], row[0], row[-1]) == (1, 9, "x", 2.5, 1, 9)
    assert row[1:3] == ("x", 2.5)
    assert "a b" in row
    assert "b" not in row
    assert row.asDict() == {"id": 3, "class": "x", "a b": 2.5, "count": 9}
    assert repr(row) == "Row(id=1, class='x', a b=2.5, id=3, count=9)"
    with pytest.raises(KeyError, match="name"):
        row["name"]


def test_a_row_can_be_pickled() -> None:
    import pickle

    row = pickle.loads(pickle.dumps(row_maker(["id", "name"])([1, "x"])))
    assert (row.id, row["name"]) == (1, "x")


@pytest.mark.parametrize(
    ("result", "rows"),
    [
        (None, []),
        ({"id": 1}, [{"id": 1}]),
        ((1, "x"), [(1, "x")]),
        (Row(id=1, name="x"), [(1, "x")]),
        ([], []),
        ([(1, "x"), (2, "y")], [(1, "x"), (2, "y")]),
        (iter([(1, "x")]), [(1, "x")]),
    ],
    ids=["none", "dict", "tuple", "row", "empty", "list", "iterator"],
)
def test_a_call_may_return_any_number_of_rows(result: Any, rows: list[Any]) -> None:
    assert list(in_rows(result)) == rows


@pytest.mark.parametrize(
    "rows",
    [
        [(1, "x"), (2, None)],
        [{"id": 1, "name": "x"}, {"name": None, "id": 2}],
        [{"id": 1, "name": "x"}, {"id": 2}],
        [Row(name="x", id=1), Row(id=2, name=None)],
        [(1, "x"), {"id": 2}],
        [row_maker(["name", "id"])(["x", 1]), (2, None)],
    ],
    ids=str,
)
def test_rows_of_all_forms_are_written(rows: list[Any]) -> None:
    batch = RowWriter(ID_NAME).batch(rows)
    assert batch.to_pylist() == [{"id": 1, "name": "x"}, {"id": 2, "name": None}]


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ((1,), "row=(1,) has 1 values for 2 columns: columns=id,name"),
        ({"id": 1, "nmae": "x"}, "row={'id': 1, 'nmae': 'x'} has a column that was not declared: column=nmae"),
        (7, "row=7 is no row: is it a dict, a tuple, a Row, or a list of them?"),
        (("one", "x"), "column=id type=bigint value='one': "),
    ],
    ids=str,
)
def test_a_row_that_does_not_fit_is_named(row: Any, text: str) -> None:
    writer = RowWriter(ID_NAME)
    found = writer.why_not(row)
    assert found is not None
    assert found.startswith(text)
    with pytest.raises(Exception, match=r"."):
        writer.batch([(1, "x"), row])


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("kind", [StringType(), LongType(), ID_NAME, ArrayType(StringType())], ids=str)
def test_a_coroutine_is_no_value(kind: DataType) -> None:
    """PySpark makes text of anything: a column of names would hold the names of coroutines."""
    column = Writer("score", kind)
    assert str(column.why_not(ask())).endswith(NOT_AWAITED)
    assert str(RowWriter(ID_NAME).why_not(ask())).startswith("row=<coroutine object ask at ")
    assert str(RowWriter(ID_NAME).why_not(ask())).endswith(NOT_AWAITED)


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_a_coroutine_inside_a_result_is_found() -> None:
    found = Writer("score", ID_NAME).why_not({"id": 1, "name": ask()})
    assert str(found).startswith("column=score.name type=string value=<coroutine")
    assert str(RowWriter(ID_NAME).why_not((1, ask()))).startswith("column=name type=string value=<coroutine")


async def ask() -> str:
    return "answer"


def test_python_gets_what_a_plain_udf_gets() -> None:
    import pyarrow as pa

    now = datetime(2026, 3, 1, 12, 0, 0)
    columns = [
        pa.array(
            [{"x": 1.0, "tags": [1, None]}, None], pa.struct([("x", pa.float64()), ("tags", pa.list_(pa.int64()))])
        ),
        pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
        pa.array([now, None], pa.timestamp("us")),
        pa.array([b"\0", None]),
    ]
    assert Reader().lists(columns) == [
        [Row(x=1.0, tags=[1, None]), None],
        [{"a": 1}, None],
        [now, None],
        [b"\0", None],
    ]
