"""Which types of Spark pass between a DataFrame and the rows of a topology, through Parquet files.

Rows are dicts of what one would write in Python: maps and structs are dicts, arrays lists, decimals ``Decimal``,
instants datetimes in UTC, readings of a clock datetimes without a time zone, intervals of days and seconds timedeltas.
What has no such form is refused by name, before anything runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CalendarIntervalType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
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

from tailrace.errors import OptionError, refuse_doubled
from tailrace.spark.connectors.data_options import as_arrow
from tailrace.spark.connectors.staged_rows import RowReader

_PLAIN = (
    *(BooleanType, ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType, DecimalType),
    *(StringType, BinaryType, DateType, TimestampType, TimestampNTZType, DayTimeIntervalType),
)
_NESTED = (ArrayType, MapType, StructType)

_INSTEAD: dict[type[DataType], str] = {
    VariantType: "could it be text, by to_json(…)?",
    NullType: "could it have a type, by cast('string')?",
    YearMonthIntervalType: "could it be text, by cast('string'), or a number of months?",
    CalendarIntervalType: "could it be text, by cast('string')?",
}
"""Advice for types that do not pass. Others of which nothing is known here may be cast to text, too."""


def row_reader(schema: StructType, what: str) -> RowReader:
    """A reader of files of these columns. Raises OptionError if a column cannot become a Python value.

    Args:
        schema: that of the DataFrame.
        what: how the DataFrame is called in the error.
    """
    _check_names(schema, what, "")
    return RowReader(as_arrow(StructType([_plainly(field, what, "") for field in schema])))


def writable(schema: StructType, what: str) -> Any:
    """The columns in pyarrow's types. Raises OptionError if values of a column cannot be written and read back.

    Args:
        schema: that of the result.
        what: how it is called in the error.
    """
    for path, kind in _columns(schema):
        if isinstance(kind, CharType | VarcharType):
            shown = f"{what} column={path} type={kind.simpleString()}"
            raise OptionError(f"files have strings of any length only: {shown}: did you mean string?")
    return row_reader(schema, what).schema


def of_any_length(df: DataFrame) -> DataFrame:
    """The DataFrame with strings for its texts of limited length, which Spark does not give to Arrow."""
    schema = StructType([_without_limit(field) for field in df.schema])
    return df if schema == df.schema else df.to(schema)


def _without_limit(field: StructField) -> StructField:
    return StructField(field.name, _unlimited(field.dataType), field.nullable, field.metadata)


def _unlimited(kind: DataType) -> DataType:
    if isinstance(kind, CharType | VarcharType):
        return StringType()
    if isinstance(kind, ArrayType):
        return ArrayType(_unlimited(kind.elementType), kind.containsNull)
    if isinstance(kind, MapType):
        return MapType(_unlimited(kind.keyType), _unlimited(kind.valueType), kind.valueContainsNull)
    if isinstance(kind, StructType):
        return StructType([_without_limit(field) for field in kind])
    return kind


def described(schema: StructType) -> dict[str, str]:
    """Columns and their types by name, to compare with those of another day."""
    return {field.name: field.dataType.simpleString() for field in schema}


def _plainly(field: StructField, what: str, outer: str) -> StructField:
    return StructField(field.name, _plain(field.dataType, what, f"{outer}{field.name}"), field.nullable)


def _plain(kind: DataType, what: str, path: str) -> DataType:
    """The type as Arrow knows it: without limits of length, and what user-defined types are stored as."""
    if isinstance(kind, _PLAIN):
        return kind
    if isinstance(kind, CharType | VarcharType):
        return StringType()
    if isinstance(kind, UserDefinedType):
        return _plain(kind.sqlType(), what, path)
    if isinstance(kind, ArrayType):
        return ArrayType(_plain(kind.elementType, what, f"{path}[]"), kind.containsNull)
    if isinstance(kind, MapType):
        if isinstance(kind.keyType, _NESTED):
            shown = f"{what} column={path} type={kind.simpleString()}"
            raise OptionError(
                f"keys of a dict cannot be dicts or lists: {shown}: could it be an array, by map_entries(…)?"
            )
        key, value = _plain(kind.keyType, what, f"{path} key"), _plain(kind.valueType, what, f"{path}{{}}")
        return MapType(key, value, kind.valueContainsNull)
    if isinstance(kind, StructType):
        _check_names(kind, what, path)
        return StructType([_plainly(field, what, f"{path}.") for field in kind])
    hint = _INSTEAD.get(type(kind), "could it be text, by cast('string')?")
    raise OptionError(f"no Python value stands for this type: {what} column={path} type={kind.simpleString()}: {hint}")


def _check_names(schema: StructType, what: str, path: str) -> None:
    """Refuse what files cannot hold: no columns at all, and two of one name. Spark does not look at the case."""
    inside = f" column={path}" if path else ""
    if not schema.fields:
        raise OptionError(f"files need columns: {what}{inside} columns=0: did you forget to select some?")
    refuse_doubled(schema.names, f"{what}{inside}")


def _columns(schema: StructType, outer: str = "") -> Iterator[tuple[str, DataType]]:
    """All columns and the parts of nested ones, by path."""
    for field in schema:
        yield from _parts(f"{outer}{field.name}", field.dataType)


def _parts(path: str, kind: DataType) -> Iterator[tuple[str, DataType]]:
    yield path, kind
    if isinstance(kind, StructType):
        yield from _columns(kind, f"{path}.")
    elif isinstance(kind, ArrayType):
        yield from _parts(f"{path}[]", kind.elementType)
    elif isinstance(kind, MapType):
        yield from _parts(f"{path} key", kind.keyType)
        yield from _parts(f"{path}{{}}", kind.valueType)
