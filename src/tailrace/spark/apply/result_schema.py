"""The columns of a result: as DDL, which Spark parses, or as a ``StructType``."""

from __future__ import annotations

from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql.types import DataType, StructType

from tailrace.errors import OptionError, shorten
from tailrace.spark.host import explain


def result_schema(schema: Any) -> StructType:
    """The schema that was given. Raises OptionError if it is none."""
    if isinstance(schema, str):
        try:
            schema = DataType.fromDDL(schema)
        except PySparkException as error:
            raise OptionError(
                f"schema cannot be read: schema={shorten(schema)} cause={explain(error)}: "
                "is it written like 'id long, name string'?"
            ) from None
    if not isinstance(schema, StructType) or not schema.fields:
        shown = schema.simpleString() if isinstance(schema, DataType) else shorten(schema)
        raise OptionError(
            f"not a schema: schema={shown}: did you mean names and types, such as 'id long, name string'?"
        )
    return schema
