"""The columns of a file sink in Spark's types: those as which Spark reads what pyarrow has written."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType, StructField, StructType

from tailrace.errors import OptionError, shorten

_READ_AS = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.date64(): pa.date32(),
}
"""Types that come back from a Parquet file as others."""

_MOST_DIGITS = 38


def table_schema(schema: Any) -> StructType | str | None:
    """A schema that was given or that a sink has, as a reader of Spark takes it. Raises OptionError if none does."""
    if schema is None:
        return None
    if isinstance(schema, pa.Schema) and schema.names:
        return StructType([StructField(field.name, _spark_type(field.name, field.type)) for field in schema])
    if (isinstance(schema, str) and schema.strip()) or (isinstance(schema, StructType) and schema.names):
        return schema
    raise OptionError(
        f"not a schema: schema={shorten(schema)} type={type(schema).__name__}, "
        "did you mean a string like 'id long, name string', or a StructType?"
    )


def _spark_type(column: str, kind: pa.DataType) -> DataType:
    readable = _readable(kind)
    if readable is not None:
        try:
            return from_arrow_type(readable, True)
        except Exception:  # each release of Spark knows other types
            pass
    raise OptionError(
        f"Spark does not read a column: column={column} type={kind}, "
        "could it be of another type, or be left out: schema='…'?"
    )


def _readable(kind: pa.DataType) -> pa.DataType | None:
    """The type that a value of this type has when it is read, or None if Spark refuses its file, or reads another."""
    types = pa.types
    if kind in _READ_AS:
        return _READ_AS[kind]
    if types.is_dictionary(kind):
        return _readable(kind.value_type)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        inner = _readable(kind.value_type)
        return None if inner is None else pa.list_(inner)
    if types.is_map(kind):
        parts = _readable(kind.key_type), _readable(kind.item_type)
        return None if None in parts else pa.map_(*parts)
    if types.is_struct(kind):
        fields = [(kind.field(place).name, _readable(kind.field(place).type)) for place in range(kind.num_fields)]
        return None if any(inner is None for _, inner in fields) else pa.struct(fields)
    if types.is_decimal(kind):
        return kind if kind.precision <= _MOST_DIGITS else None
    if types.is_timestamp(kind):
        return None if kind.unit == "ns" else kind
    if types.is_duration(kind):
        return kind if kind.unit == "us" else None
    return None if types.is_time(kind) or types.is_null(kind) or types.is_float16(kind) else kind
