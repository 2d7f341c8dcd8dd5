"""Parquet files as a table: schemas, shapes of rows, and what is refused."""

from __future__ import annotations

import datetime as dt
import pickle
from collections import namedtuple
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tailrace.connector import Entry, SinkContext
from tailrace.errors import OptionError, TailraceError
from tailrace.runtime.connectors import to_parquet
from tailrace.runtime.connectors.schemas.ddl import parse_ddl


def open_writer(path: Path, **options: Any) -> Any:
    sink = pickle.loads(pickle.dumps(to_parquet(path, **options)))
    return sink.open(SinkContext("out", 0, 1, 1, "0123456789abcdef", lambda *_: None))


def write(writer: Any, *rows: Any) -> None:
    for row in rows:
        writer.write(row)
    writer.commit([Entry("s", n, n) for n in range(len(rows))])


def read(path: Path) -> list[Any]:
    return pq.read_table(path).to_pylist()  # type: ignore[no-any-return]


def test_a_directory_is_a_table(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    write(writer, {"n": 1, "name": "a"}, {"n": 2, "name": None})
    write(writer, {"n": 3})
    rows = [{"n": 1, "name": "a"}, {"n": 2, "name": None}, {"n": 3, "name": None}]
    assert read(tmp_path) == rows
    assert ds.dataset(tmp_path, format="parquet").to_table().to_pylist() == rows
    assert all(p.name.startswith("_") or p.suffix == ".parquet" for p in tmp_path.iterdir())


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        (7, {"value": 7}),
        ("a", {"value": "a"}),
        ((1, "b"), {"_1": 1, "_2": "b"}),
        (Point(1, 2), {"x": 1, "y": 2}),
        ({"a": [1, 2], "b": {"c": 1.5}}, {"a": [1, 2], "b": {"c": 1.5}}),
        (None, {"value": None}),
    ],
)
def test_rows_of_any_shape_have_columns(tmp_path: Path, row: Any, columns: dict[str, Any]) -> None:
    write(open_writer(tmp_path), row)
    assert read(tmp_path) == [columns]


def test_tuples_and_plain_values_fill_a_schema_by_place(tmp_path: Path) -> None:
    write(open_writer(tmp_path / "a", schema="id int, name string"), (1, "a"))
    write(open_writer(tmp_path / "b", schema="n double"), 1)
    assert read(tmp_path / "a") == [{"id": 1, "name": "a"}]
    assert read(tmp_path / "b") == [{"n": 1.0}]


def test_a_schema_in_the_words_of_spark() -> None:
    schema = parse_ddl(
        "id long not null, name STRING, score double, ok boolean, at timestamp, wall timestamp_ntz, day date, "
        "raw binary, tags array<string>, `odd, ``name` map<string, array<int>>, price decimal(12, 2), d decimal, "
        "code varchar(3), who: struct<first: string, age: short>"
    )
    assert schema == pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("name", pa.string()),
            ("score", pa.float64()),
            ("ok", pa.bool_()),
            ("at", pa.timestamp("us", tz="UTC")),
            ("wall", pa.timestamp("us")),
            ("day", pa.date32()),
            ("raw", pa.binary()),
            ("tags", pa.list_(pa.string())),
            ("odd, `name", pa.map_(pa.string(), pa.list_(pa.int32()))),
            ("price", pa.decimal128(12, 2)),
            ("d", pa.decimal128(10, 0)),
            ("code", pa.string()),
            ("who", pa.struct([("first", pa.string()), ("age", pa.int16())])),
        ]
    )


def test_values_of_all_types_come_back(tmp_path: Path) -> None:
    row = {
        "id": 2**40,
        "at": dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.timezone.utc),  # noqa: UP017
        "day": dt.date(2026, 1, 2),
        "raw": b"\x00\xff",
        "tags": [],
        "price": Decimal("12.50"),
    }
    schema = "id long, at timestamp, day date, raw binary, tags array<string>, price decimal(9,2), gone string"
    write(open_writer(tmp_path, schema=schema), row)
    assert read(tmp_path) == [{**row, "gone": None}]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "expected a column name, found 'the end'"),
        ("id", "unknown type 'the end'"),
        ("id lung", "unknown type 'lung'"),
        ("id long,", "expected a column name, found 'the end'"),
        ("id long name string", "expected 'the end', found 'name'"),
        ("tags array<string", "expected '>', found 'the end'"),
        ("tags array", "expected '<', found 'the end'"),
        ("p decimal(x)", "expected a number, found 'x'"),
        ("id long not nil", "expected 'null', found 'nil'"),
        ("id long; name string", "unexpected ';'"),
        ("a decimal(99,2)", "a decimal has 1 to 38 digits, and no more behind the point, not (99,2)"),
        ("a decimal(2,3)", "a decimal has 1 to 38 digits, and no more behind the point, not (2,3)"),
    ],
)
def test_a_schema_that_cannot_be_read_is_named(text: str, fault: str) -> None:
    with pytest.raises(OptionError) as caught:
        to_parquet("out", schema=text)
    assert str(caught.value).startswith(f"schema cannot be read: {fault} near=")
    assert str(caught.value).endswith(f"schema={text!r}, is it written like 'id long, name string'?")


def test_other_options_that_make_no_sense() -> None:
    with pytest.raises(OptionError, match=r"schema names a column twice: columns=\['a'\]"):
        to_parquet("out", schema="a int, a long")
    for twice in ("a int, A int", "s struct<A: int, a: int>", pa.schema([("a", pa.int64()), ("A", pa.int64())])):
        with pytest.raises(OptionError, match=r"schema names a column twice: columns=\['A', 'a'\] schema="):
            to_parquet("out", schema=twice)
    with pytest.raises(OptionError, match=r"not a schema: schema=7 type=int, did you mean a string like"):
        to_parquet("out", schema=7)
    with pytest.raises(OptionError, match=r"unknown compression: compression='zip', did you mean gzip\?$"):
        to_parquet("out", compression="zip")
    with pytest.raises(OptionError, match=r"option must be positive: roll_rows=0"):
        to_parquet("out", roll_rows=0)


@pytest.mark.parametrize(
    ("schema", "rows", "fault"),
    [
        ("a int", [{"a": 1, "b": 2}], r"row does not fit: unknown=\['b'\] columns=\['a'\] type=dict row={'a': 1, 'b'"),
        ("a int, b int", [(1,)], r"row does not fit: columns=\['a', 'b'\] type=tuple row=\(1,\), did you forget"),
        ("a int, b int", [5], r"row does not fit: columns=\['a', 'b'\] type=int"),
        (None, [{"a": 1}, 5], r"row does not fit: expected=a dict type=int row=5"),
        (None, [(1, 2), (1, 2, 3)], r"row does not fit: expected=a tuple of 2 type=tuple"),
        (None, [1, {"a": 1}], r"row does not fit: expected=a plain value type=dict"),
        (None, [{}], r"row does not fit: columns=none type=dict row={}"),
    ],
)
def test_a_row_of_another_shape_is_refused_when_written(
    tmp_path: Path, schema: str | None, rows: list[Any], fault: str
) -> None:
    writer = open_writer(tmp_path, schema=schema)
    for row in rows[:-1]:
        writer.write(row)
    with pytest.raises(TypeError, match=fault):
        writer.write(rows[-1])
    writer.commit([Entry("s", n, n) for n in range(len(rows) - 1)])
    assert sum(pq.read_metadata(part).num_rows for part in tmp_path.glob("part-*")) == len(rows) - 1


@pytest.mark.parametrize(
    ("schema", "rows", "fault"),
    [
        ("a int", [{"a": 1}, {"a": "x"}], r"column=a type=int32 value='x' row={'a': 'x'}, did you forget to convert"),
        ("a byte", [{"a": 1}, {"a": 300}], r"column=a type=int8 value=300 row={'a': 300}"),
        ("a int", [{"a": 1}, {"a": 1.5}], r"column=a type=int32 value=1\.5"),
        ("a double", [{"a": 1}, {"a": True}], r"column=a type=double value=True"),
        ("a date", [{"a": dt.date(2026, 1, 2)}, {"a": dt.datetime(2026, 1, 2, 3)}], r"column=a type=date32"),
        ("a struct<b: int>", [{"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}], r"column=a type=struct<b: int32>"),
        ("a array<int>", [{"a": [1]}, {"a": [1, 2.5]}], r"column=a type=list<.*int32> value=\[1, 2\.5\]"),
        ("a map<string, int>", [{"a": [("b", 1)]}, {"a": [("b", 0.5)]}], r"column=a type=map<string, int32"),
        ("a string", [{"a": "ü"}, {"a": "\ud83d"}], r"column=a type=string"),
        (None, [{"a": None}, {"a": 1}, {"a": "x"}], r"column=a type=int64 value='x'"),
        ("a int not null", [{"a": 1}, {}], r"no value in a column that is not null: column=a row={}, is the column"),
    ],
)
def test_a_value_of_another_type_is_refused_when_written(
    tmp_path: Path, schema: str | None, rows: list[Any], fault: str
) -> None:
    """So that the operator's ``on_error`` decides about it, and the commit of the others succeeds."""
    writer = open_writer(tmp_path, schema=schema)
    for row in rows[:-1]:
        writer.write(row)
    with pytest.raises(TypeError, match=fault):
        writer.write(rows[-1])
    writer.commit([Entry("s", n, n) for n in range(len(rows) - 1)])
    assert [row["a"] for row in read(tmp_path)] == [row["a"] for row in rows[:-1]]


def test_without_a_schema_types_are_fixed_by_the_first_value(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    write(writer, {"a": 1, "b": None})
    write(writer, {"a": None, "b": "text"})
    with pytest.raises(TypeError, match=r"column=b type=string value=1 row=.*or to give to_parquet a schema\?"):
        write(writer, {"b": 1})
    assert [set(pq.read_schema(part).names) for part in sorted(tmp_path.glob("part-*"))] == [{"a"}, {"a", "b"}]


@pytest.mark.parametrize("value", [{}, {"b": {}}, [{}], object(), {1: 2}])
def test_a_type_that_cannot_be_known_needs_a_schema(tmp_path: Path, value: Any) -> None:
    writer = open_writer(tmp_path)
    with pytest.raises(TypeError, match=r"type of column is not known: column=a value=.* row=.*to_parquet a schema\?"):
        writer.write({"a": value})
    write(writer, {"b": 1})
    assert read(tmp_path) == [{"b": 1}]


def test_a_row_that_was_changed_after_it_was_passed_on_is_the_sinks_error(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    row: dict[str, Any] = {"a": 1}
    writer.write(row)
    row["a"] = "x"
    with pytest.raises(TailraceError, match=rf"rows do not become a file: directory={tmp_path} rows=1 cause=.*changed"):
        writer.commit([Entry("s", 0, 0)])


def test_a_writer_is_full_by_rows_or_by_bytes(tmp_path: Path) -> None:
    few = open_writer(tmp_path / "a", roll_rows=2)
    few.write({"a": 1})
    assert not few.full
    few.write({"a": 1})
    assert few.full
    large = open_writer(tmp_path / "b", roll_bytes=1_000_000)
    rows = 0
    while not large.full:
        large.write({"a": b"x" * 10_000})
        rows += 1
    assert 90 <= rows <= 101
    large.commit([Entry("s", n, n) for n in range(rows)])
    assert not large.full


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_compression_is_that_which_was_asked_for(tmp_path: Path, compression: str) -> None:
    write(open_writer(tmp_path, compression=compression), {"a": 1})
    (part,) = tmp_path.glob("part-*")
    found = pq.read_metadata(part).row_group(0).column(0).compression
    assert found == {"none": "UNCOMPRESSED"}.get(compression, compression.upper())
