"""Types that are declared for results: read as early as can be, and refused if results cannot have them."""

from __future__ import annotations

import re

from pyspark.errors import AnalysisException, ArithmeticException, ParseException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    CharType,
    DataType,
    MapType,
    StructField,
    StructType,
    UserDefinedType,
    VarcharType,
    YearMonthIntervalType,
)
from pyspark.sql.utils import is_remote

from tailrace.errors import OptionError, message_of, refuse_doubled, shorten

FAULTS = (ParseException, AnalysisException, ArithmeticException)
"""The errors that Spark raises for text that describes no type. Others are faults of the session."""

WRITTEN = "is it a string such as 'label string, score double', or a type of pyspark.sql.types?"


def parse(declared: str | DataType, what: str) -> DataType:
    """The type that was declared, as DDL or as a type of PySpark. Raises OptionError if results cannot have it.

    Args:
        declared: what the user gave.
        what: how it is called in errors.
    """
    check_given(declared, what)
    kind = _from_ddl(declared, what) if isinstance(declared, str) else declared
    refuse_types(kind, what)
    _refuse_doubled(kind, what, "")
    return kind


def check_given(declared: str | DataType, what: str) -> None:
    """Refuse what is no type to be seen without Spark, or has nothing in it."""
    if not isinstance(declared, str | DataType):
        raise OptionError(f"not a type: {what}={shorten(declared)}: {WRITTEN}")
    if not (declared.fields if isinstance(declared, StructType) else str(declared).strip()):
        raise OptionError(f"a schema of nothing: {what}={shorten(declared)}: {WRITTEN}")


def parse_early(declared: str | DataType, what: str) -> str | DataType:
    """The type that was declared, parsed if there is a session that can parse it already.

    Inside the query function of a pipeline Spark parses nothing, so a declaration in front of it is parsed there.
    """
    if not isinstance(declared, str):
        return parse(declared, what)
    check_given(declared, what)
    if active_session() is None:
        return declared
    try:
        return parse(declared, what)
    except PySparkException:
        return declared  # the session cannot answer: another one may, when it is used


def _from_ddl(ddl: str, what: str) -> DataType:
    try:
        return DataType.fromDDL(ddl)
    except PySparkException as error:
        if analysis_refused(error):
            raise OptionError(
                f"Spark parses no types inside the query function of a pipeline: {what}={shorten(ddl)}: "
                "could the step be made in front of it, or its schema be a StructType?"
            ) from None
        if not isinstance(error, FAULTS):
            raise
        raise OptionError(f"not a type: {what}={shorten(ddl)} cause={_cause(error)}: {WRITTEN}") from None


def _cause(error: PySparkException) -> str:
    """The first line of what Spark says, without codes for machines."""
    said = message_of(error).strip().partition("\n")[0]
    return shorten(re.sub(r"\.? SQLSTATE: .*", "", said))


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


def _refuse_doubled(kind: DataType, what: str, column: str) -> None:
    """Raise OptionError if a struct, or the whole, has columns of one name: Spark could not tell them apart."""
    if isinstance(kind, ArrayType):
        _refuse_doubled(kind.elementType, what, f"{column}[]")
    elif isinstance(kind, MapType):
        _refuse_doubled(kind.keyType, what, f"{column} key")
        _refuse_doubled(kind.valueType, what, f"{column}{{}}")
    elif isinstance(kind, StructType):
        refuse_doubled(kind.names, f"{what}={kind.simpleString()}" + (f" column={column}" if column else ""))
        for field in kind:
            _refuse_doubled(field.dataType, what, f"{column}.{field.name}".lstrip("."))


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
