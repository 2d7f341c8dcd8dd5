"""Values on their way from Arrow to Python and back, as PySpark's own UDFs convert them.

Python gets what a plain UDF gets: naive datetimes in the worker's time zone, ``Row`` for structs, ``dict`` for maps,
``bytes``. A result may be what a plain UDF may return; what does not fit is an error that names column and value,
neither null nor cut to fit. Only a ``Decimal`` is rounded, to the scale of its column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.conversion import ArrowTableToRowsConversion, LocalDataToArrowConversion
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CharType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
    UserDefinedType,
    VarcharType,
    YearMonthIntervalType,
)
from pyspark.sql.utils import is_remote

from tailrace.errors import OptionError, TailraceError, message_of, shorten
from tailrace.spark.calls.fitting import check_of

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


# -- declared types


def parse(declared: str | DataType, what: str) -> DataType:
    """The type that was declared, as DDL or as a type of PySpark. Raises OptionError if results cannot have it."""
    if isinstance(declared, str):
        kind = _from_ddl(declared, what)
    elif isinstance(declared, DataType):
        kind = declared
    else:
        raise OptionError(
            f"not a type: {what}={shorten(declared)}: is it a string such as 'label string, score double', "
            "or a type of pyspark.sql.types?"
        )
    refuse_types(kind, what)
    return kind


def parse_early(declared: str | DataType, what: str) -> str | DataType:
    """The type that was declared, parsed if there is a session that can parse it already.

    Inside the query function of a pipeline Spark parses nothing, so a declaration in front of it is parsed there.
    """
    if not isinstance(declared, str):
        return parse(declared, what)
    if active_session() is None:
        return declared
    try:
        return parse(declared, what)
    except PySparkException:
        return declared  # Spark says why when it is used


def _from_ddl(ddl: str, what: str) -> DataType:
    try:
        return DataType.fromDDL(ddl)
    except PySparkException as error:
        if not analysis_refused(error):
            raise
        raise OptionError(
            f"Spark parses no types inside the query function of a pipeline: {what}={shorten(ddl)}: "
            "could the step be made in front of it, or its schema be a StructType?"
        ) from None


def analysis_refused(error: PySparkException) -> bool:
    """Whether Spark refused to answer because it was asked inside the query function of a pipeline."""
    return "ATTEMPT_ANALYSIS_IN_PIPELINE" in str(error)


def active_session() -> SparkSession | None:
    """The session, classic or of Spark Connect, that columns are made in."""
    if is_remote():
        from pyspark.sql.connect.session import SparkSession as Remote

        return Remote.getActiveSession()  # type: ignore[return-value]
    return SparkSession.getActiveSession()


def refuse_types(kind: DataType, what: str, column: str = "") -> None:
    """Raise OptionError if a type has no form in Python, as it has none in a plain UDF."""
    where = f"{what}={kind.simpleString()}" + (f" column={column}" if column else "")
    if isinstance(kind, YearMonthIntervalType):
        raise OptionError(
            f"year-month intervals do not exist in Python: {where}: could it be an int, a number of months?"
        )
    if isinstance(kind, CharType | VarcharType):
        raise OptionError(f"Python has strings of any length only: {where}: did you mean string?")
    if isinstance(kind, ArrayType):
        refuse_types(kind.elementType, what, column)
    elif isinstance(kind, MapType):
        refuse_types(kind.keyType, what, column)
        refuse_types(kind.valueType, what, column)
    elif isinstance(kind, StructType):
        for field in kind:
            refuse_types(field.dataType, what, f"{column}.{field.name}".lstrip("."))


def user_defined(schema: StructType) -> list[DataType | None]:
    """The columns whose type Arrow does not tell, because it has a user-defined type in it."""
    return [field.dataType if _has_user_defined(field.dataType) else None for field in schema]


def _has_user_defined(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_has_user_defined(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return _has_user_defined(kind.elementType)
    if isinstance(kind, MapType):
        return _has_user_defined(kind.keyType) or _has_user_defined(kind.valueType)
    return isinstance(kind, UserDefinedType)


def nullable(schema: StructType) -> StructType:
    """The schema with columns that may be null, for rows that stand for a failed call."""
    return StructType([StructField(field.name, field.dataType, True) for field in schema])
