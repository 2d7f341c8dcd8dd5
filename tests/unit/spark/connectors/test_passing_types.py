"""Types of columns that pass between a DataFrame and Python, and those that are refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    UserDefinedType,
    VarcharType,
    VariantType,
    YearMonthIntervalType,
)

from tailrace.connector import SplitStart
from tailrace.errors import NotRepeatable, OptionError, TailraceError
from tailrace.spark.apply.result_schema import result_schema
from tailrace.spark.connectors.passing_types import described, row_reader, writable
from tailrace.spark.connectors.staged_source import DataFrameSource
from tailrace.testing.connectors import check_source

POINT = StructType([StructField("x", LongType())])


class Dotted(UserDefinedType):  # type: ignore[type-arg]
    @classmethod
    def sqlType(cls) -> DataType:
        return POINT

    @classmethod
    def module(cls) -> str:
        return __name__


def columns(*fields: tuple[str, DataType]) -> StructType:
    return StructType([StructField(*field) for field in fields])


REFUSED: list[tuple[DataType, str]] = [
    (
        VariantType(),
        "no Python value stands for this type: df=df column=c type=variant: could it be text, by to_json(…)?",
    ),
    (
        NullType(),
        "no Python value stands for this type: df=df column=c type=void: could it have a type, by cast('string')?",
    ),
    (
        YearMonthIntervalType(),
        "no Python value stands for this type: df=df column=c type=interval year to month: "
        "could it be text, by cast('string'), or a number of months?",
    ),
    (
        ArrayType(CalendarIntervalType()),
        "no Python value stands for this type: df=df column=c[] type=interval: could it be text, by cast('string')?",
    ),
    (
        MapType(POINT, LongType()),
        "keys of a dict cannot be dicts or lists: df=df column=c type=map<struct<x:bigint>,bigint>: "
        "could it be an array, by map_entries(…)?",
    ),
    (
        MapType(StringType(), columns(("v", VariantType()))),
        "no Python value stands for this type: df=df column=c{}.v type=variant: could it be text, by to_json(…)?",
    ),
    (
        columns(("a", LongType()), ("A", LongType())),
        "names differ in case only, or not at all: df=df column=c columns=a,A: could one of them have another name?",
    ),
    (StructType([]), "files need columns: df=df column=c columns=0: did you forget to select some?"),
]


@pytest.mark.parametrize(("kind", "text"), REFUSED, ids=[kind.simpleString() for kind, _ in REFUSED])
def test_what_cannot_pass_is_refused_by_name(kind: DataType, text: str) -> None:
    for check in (row_reader, writable):
        with pytest.raises(OptionError) as caught:
            check(columns(("id", LongType()), ("c", kind)), "df=df")
        assert str(caught.value) == text


def test_columns_as_a_whole_are_checked() -> None:
    with pytest.raises(OptionError) as caught:
        row_reader(columns(("id", LongType()), ("n", LongType()), ("ID", LongType())), "df=df")
    assert str(caught.value) == (
        "names differ in case only, or not at all: df=df columns=id,ID: could one of them have another name?"
    )
    with pytest.raises(OptionError, match="files need columns: df=df columns=0: did you forget to select some"):
        row_reader(StructType([]), "df=df")


@pytest.mark.parametrize("kind", [CharType(3), VarcharType(3), ArrayType(VarcharType(3))])
def test_limits_of_length_are_read_as_text_and_not_written(kind: DataType) -> None:
    schema = columns(("c", columns(("name", kind))))
    assert "string" in str(row_reader(schema, "df=df").schema)
    with pytest.raises(OptionError) as caught:
        writable(schema, "schema")
    shown = kind.elementType if isinstance(kind, ArrayType) else kind
    path = "c.name[]" if isinstance(kind, ArrayType) else "c.name"
    assert str(caught.value) == (
        f"files have strings of any length only: schema column={path} type={shown.simpleString()}: did you mean string?"
    )


def test_a_type_of_the_users_own_passes_as_what_it_is_stored_as() -> None:
    assert row_reader(columns(("at", Dotted())), "df=df").schema.field("at").type == pa.struct([("x", pa.int64())])


def test_described_columns_can_be_compared() -> None:
    schema = columns(("id", LongType()), ("tags", ArrayType(StringType())))
    assert described(schema) == {"id": "bigint", "tags": "array<string>"}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (["id"], "not a schema: schema=['id']: did you mean names and types, such as 'id long, name string'?"),
        (LongType(), "not a schema: schema=bigint: did you mean names and types, such as 'id long, name string'?"),
    ],
)
def test_a_schema_that_is_none(schema: Any, text: str) -> None:
    with pytest.raises(OptionError) as caught:
        result_schema(schema)
    assert str(caught.value) == text


# --- reading


def as_spark_writes(path: Path) -> tuple[StructType, list[dict[str, Any]]]:
    """A file in which instants have no time zone, and intervals are numbers: (its columns, its rows as dicts)."""
    at, length = datetime(2024, 2, 29, 23, 59, 59, 999999), timedelta(days=-1, microseconds=1)
    micros = length // timedelta(microseconds=1)
    nested = pa.struct([("at", pa.timestamp("us")), ("lengths", pa.list_(pa.int64()))])
    table = pa.table(
        {
            "at": pa.array([at, None], pa.timestamp("us")),
            "wall": pa.array([at, None], pa.timestamp("us")),
            "length": pa.array([micros, None], pa.int64()),
            "by_day": pa.array([[(date(2024, 1, 1), at)], None], pa.map_(pa.date32(), pa.timestamp("us"))),
            "nested": pa.array([{"at": at, "lengths": [micros, None]}, None], nested),
            "several": pa.array([[{"at": None, "lengths": None}, None], None], pa.list_(nested)),
            "plain": pa.array([[Decimal("1.50")], None], pa.list_(pa.decimal128(5, 2))),
        }
    )
    pq.write_table(table, path, row_group_size=1, use_deprecated_int96_timestamps=True)
    inner = columns(("at", TimestampType()), ("lengths", ArrayType(DayTimeIntervalType())))
    schema = columns(
        ("at", TimestampType()),
        ("wall", TimestampNTZType()),
        ("length", DayTimeIntervalType()),
        ("by_day", MapType(DateType(), TimestampType())),
        ("nested", inner),
        ("several", ArrayType(inner)),
        ("plain", ArrayType(DecimalType(5, 2))),
    )
    first = {
        "at": at.replace(tzinfo=UTC),
        "wall": at,
        "length": length,
        "by_day": {date(2024, 1, 1): at.replace(tzinfo=UTC)},
        "nested": {"at": at.replace(tzinfo=UTC), "lengths": [length, None]},
        "several": [{"at": None, "lengths": None}, None],
        "plain": [Decimal("1.50")],
    }
    return schema, [first, dict.fromkeys(first)]


def test_values_are_what_one_would_write_in_python(tmp_path: Path) -> None:
    schema, rows = as_spark_writes(tmp_path / "part-0.parquet")
    reader = row_reader(schema, "df=df")
    assert list(reader.rows(tmp_path / "part-0.parquet")) == rows
    assert list(reader.rows(tmp_path / "part-0.parquet", 1)) == rows[1:]
    assert list(reader.rows(tmp_path / "part-0.parquet", 2)) == []


@pytest.fixture
def numbers(tmp_path: Path) -> Iterator[Path]:
    """A folder of seven files, some without rows, that hold the numbers from 0 to 2499."""
    bounds = [0, 3, 3, 1000, 1001, 2499, 2500, 2500]
    for index, (low, high) in enumerate(pairwise(bounds)):
        table = pa.table({"n": pa.array(range(low, high), pa.int64())})
        pq.write_table(table, tmp_path / f"part-{index}.parquet", row_group_size=700)
    yield tmp_path


@pytest.mark.parametrize(("most", "splits"), [(None, 7), (7, 7), (3, 3), (1, 1)])
def test_many_files_are_few_splits(numbers: Path, most: int | None, splits: int) -> None:
    source = DataFrameSource(numbers, row_reader(columns(("n", LongType())), "df=df"), most)
    assert len(source.splits(2)) == splits
    found = [record.value["n"] for name in source.splits(2) for record in source.open(SplitStart(name)).poll(9999, 0)]
    assert sorted(found) == list(range(2500))


@pytest.mark.parametrize("offset", [1, 3, 999, 1000, 1001, 1500, 2499, 2500])
def test_reading_goes_on_at_any_row(numbers: Path, offset: int) -> None:
    source = DataFrameSource(numbers, row_reader(columns(("n", LongType())), "df=df"), 1)
    records = source.open(SplitStart("files-0", offset)).poll(9999, 0)
    assert [(record.offset, record.value["n"]) for record in records] == [(n, n) for n in range(offset, 2500)]


def test_the_law_of_readers(tmp_path: Path) -> None:
    for index in range(5):
        pq.write_table(pa.table({"n": pa.array(range(index), pa.int64())}), tmp_path / f"part-{index}.parquet")
    source = DataFrameSource(tmp_path, row_reader(columns(("n", LongType())), "df=df"), 2)
    assert len(check_source(source)) == 10


def test_rows_that_have_changed_are_noticed(numbers: Path) -> None:
    source = DataFrameSource(numbers, row_reader(columns(("n", LongType())), "df=df"), 1)
    with pytest.raises(NotRepeatable, match=r"file=.*files-0 row=2500 before=a row now=the end, was it written again"):
        source.open(SplitStart("files-0", 2501))
    with pytest.raises(TailraceError, match=r"file is not there: file=.*part-9\.parquet, is the folder reachable"):
        source.open(SplitStart("part-9.parquet"))
