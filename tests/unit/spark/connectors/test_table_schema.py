"""The columns of a sink in Spark's types, and what is refused before Spark would fail over it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from tailrace.errors import OptionError
from tailrace.runtime.connectors.schemas.ddl import parse_ddl
from tailrace.spark.connectors.table_schema import table_schema


def as_ddl(schema: pa.Schema) -> list[str]:
    struct: Any = table_schema(schema)
    return [f"{field.name} {field.dataType.simpleString()}" for field in struct]


@pytest.mark.parametrize(
    "ddl",
    [
        "a boolean, b tinyint, c smallint, d int, e bigint, f float, g double, h string, i binary, j date",
        "a timestamp, b timestamp_ntz, c decimal(12,3)",
        "a array<string>, b map<string,array<bigint>>, c struct<x:bigint,y:struct<z:date>>",
    ],
)
def test_what_is_declared_in_words_comes_back_in_the_same_words(ddl: str) -> None:
    assert ", ".join(as_ddl(parse_ddl(ddl))) == ddl


def test_what_spark_reads_as_something_else() -> None:
    schema = pa.schema(
        {
            "a": pa.uint8(),
            "b": pa.uint16(),
            "c": pa.uint32(),
            "d": pa.uint64(),
            "e": pa.date64(),
            "f": pa.dictionary(pa.int32(), pa.string()),
            "g": pa.list_(pa.uint8()),
            "h": pa.struct({"x": pa.uint32()}),
            "i": pa.map_(pa.string(), pa.uint16()),
            "j": pa.large_list(pa.large_string()),
        }
    )
    assert as_ddl(schema) == [
        "a smallint",
        "b int",
        "c bigint",
        "d decimal(20,0)",
        "e date",
        "f string",
        "g array<smallint>",
        "h struct<x:bigint>",
        "i map<string,int>",
        "j array<string>",
    ]


@pytest.mark.parametrize(
    "kind",
    [
        pa.timestamp("ns"),
        pa.duration("s"),
        pa.float16(),
        pa.null(),
        pa.time32("ms"),
        pa.decimal256(50, 2),
        pa.list_(pa.timestamp("ns")),
        pa.struct({"x": pa.float16()}),
        pa.map_(pa.string(), pa.null()),
    ],
    ids=str,
)
def test_what_spark_does_not_read(kind: pa.DataType) -> None:
    with pytest.raises(OptionError) as told:
        table_schema(pa.schema({"id": pa.int64(), "bad": kind}))
    assert str(told.value) == (
        f"Spark does not read a column: column=bad type={kind}, "
        "could it be of another type, or be left out: schema='…'?"
    )


def test_schemas_for_spark_pass_as_they_are() -> None:
    struct = StructType().add("id", "long")
    assert table_schema(struct) is struct
    assert table_schema("id long") == "id long"
    assert table_schema(None) is None


@pytest.mark.parametrize("rubbish", ["", " ", 5, StructType(), pa.schema([]), ["id long"]], ids=repr)
def test_what_is_no_schema(rubbish: Any) -> None:
    with pytest.raises(OptionError, match=r"not a schema: schema=.* type=.*, did you mean a string like 'id long, "):
        table_schema(rubbish)
