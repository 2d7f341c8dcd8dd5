"""Values on their way from Arrow to Python and back, as PySpark's own UDFs convert them.

Python gets what a plain UDF gets: naive datetimes in the worker's time zone, ``Row`` for structs, ``dict`` for maps,
``bytes``. A result may be what a plain UDF may return; what does not fit is an error that names column and value,
neither null nor cut to fit. Only a ``Decimal`` is rounded, to the scale of its column.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.conversion import ArrowTableToRowsConversion, LocalDataToArrowConversion
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    StringType,
    StructType,
)

from tailrace.errors import TailraceError, message_of, shorten
from tailrace.spark.calls.fitting import NOT_AWAITED, check_of

UTC = "UTC"

AS_THEY_ARE: dict[type, frozenset[type]] = {
    StringType: frozenset({str, type(None)}),
    BinaryType: frozenset({bytes, type(None)}),
}
"""Python types that PySpark's converter of a column returns unchanged. Columns of them are not converted one by one."""


class Misfit(TailraceError):
    """A result is not of the type that was declared."""


# -- from Arrow


class Reader:
    """Turns columns of Arrow into lists of Python values. It learns the types from the first batch."""

    def __init__(self, types: Sequence[DataType | None] = ()) -> None:
        self._types = types  # what Arrow does not say, by column: user-defined types
        self._converters: list[Callable[[Any], Any] | None] | None = None

    def lists(self, columns: Sequence[pa.Array]) -> list[list[Any]]:
        """One list a column."""
        if self._converters is None:
            self._converters = [self._converter(place, column.type) for place, column in enumerate(columns)]
        return [
            values if convert is None else [convert(value) for value in values]
            for values, convert in zip(map(_to_list, columns), self._converters, strict=True)
        ]

    def _converter(self, place: int, arrow_type: pa.DataType) -> Callable[[Any], Any] | None:
        known = self._types[place] if place < len(self._types) else None
        kind = known or from_arrow_type(arrow_type, prefer_timestamp_ntz=True)
        converter: Callable[[Any], Any] | None = ArrowTableToRowsConversion._create_converter(
            kind, none_on_identity=True
        )
        return converter


_to_list: Callable[[pa.Array], list[Any]] = getattr(
    ArrowTableToRowsConversion, "_to_pylist", lambda column: column.to_pylist()
)


# -- to Arrow


class Writer:
    """Turns lists of Python values into a column of Arrow of one type."""

    def __init__(self, column: str, kind: DataType, nullable: bool = True) -> None:
        self.column = column
        self.kind = kind
        self.arrow_type = to_arrow_type(kind, timezone=UTC)
        self._check = check_of(kind)
        self._as_they_are = AS_THEY_ARE.get(type(kind), frozenset()) if nullable else frozenset()
        self._convert = LocalDataToArrowConversion._create_converter(
            kind, nullable, none_on_identity=True, int_to_decimal_coercion_enabled=True
        )

    def array(self, values: Sequence[Any]) -> pa.Array:
        """The column. Raises anything if a value does not fit: ``why_not`` finds it."""
        if self._check is not None:
            self._check(values)
        convert = self._convert
        if convert is None or (self._as_they_are and self._as_they_are.issuperset(map(type, values))):
            return pa.array(values, type=self.arrow_type)
        return pa.array([convert(value) for value in values], type=self.arrow_type)

    def why_not(self, value: Any) -> str | None:
        """How one value fails to fit, or None if it fits."""
        try:
            self.array([value])
        except Exception as error:
            return self._explain(self.column, self.kind, value, error)
        return None

    def _explain(self, column: str, kind: DataType, value: Any, error: Exception) -> str:
        """Go down to the innermost part that does not fit."""
        for name, inner, part in _parts(kind, value):
            found = Writer(f"{column}{name}", inner).why_not(part)
            if found is not None:
                return found
        why = " ".join(message_of(error).split()) or type(error).__name__
        if isinstance(value, Awaitable):
            why = NOT_AWAITED
        return f"column={column} type={kind.simpleString()} value={shorten(value)}: {shorten(why)[1:-1]}"


def _parts(kind: DataType, value: Any) -> list[tuple[str, DataType, Any]]:
    """The values inside a value, each with how it is reached."""
    if isinstance(kind, ArrayType) and isinstance(value, list):
        return [(f"[{place}]", kind.elementType, part) for place, part in enumerate(value)]
    if isinstance(kind, MapType) and isinstance(value, dict):
        keys: list[tuple[str, DataType, Any]] = [(" key", kind.keyType, key) for key in value]
        return keys + [(f"[{shorten(key)}]", kind.valueType, part) for key, part in value.items()]
    if isinstance(kind, StructType) and isinstance(value, tuple):
        if len(value) != len(kind):
            return []
        return [(f".{field.name}", field.dataType, part) for field, part in zip(kind, value, strict=True)]
    if isinstance(kind, StructType):
        fields = value if isinstance(value, dict) else getattr(value, "__dict__", {})
        return [(f".{field.name}", field.dataType, fields[field.name]) for field in kind if field.name in fields]
    return []
