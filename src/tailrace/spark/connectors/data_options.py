"""Checks the arguments that sources and sinks over PySpark data sources share: class, options, schema, log."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkNotImplementedError
from pyspark.sql.datasource import CaseInsensitiveDict, DataSource
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from tailrace.errors import OptionError, shorten
from tailrace.runtime.connectors.commits.files import absolute
from tailrace.runtime.connectors.schemas.ddl import parse_ddl


def check_class(source: Any, connector: str) -> type[DataSource]:
    if isinstance(source, type) and issubclass(source, DataSource):
        return source
    hint = "did you mean its class?" if isinstance(source, DataSource) else "is it a subclass of DataSource?"
    raise OptionError(f"not a data source: {connector}={shorten(source)} type={type(source).__name__}, {hint}")


def check_options(source: type[DataSource], options: Mapping[str, str] | None) -> dict[str, str]:
    """Check that all options are text, as Spark passes them: a data source must behave the same in both."""
    checked = dict(options or {})
    for name, value in checked.items():
        if not isinstance(name, str):
            raise OptionError(
                f"name of an option is not a string: class={source.__name__} option={shorten(name)} "
                f"type={type(name).__name__}, did you swap name and value?"
            )
        if not isinstance(value, str):
            raise OptionError(
                f"option is not a string: class={source.__name__} option={name} value={shorten(value)} "
                f"type={type(value).__name__}, did you mean {str(value)!r}?"
            )
    return checked


def check_log(source: type[DataSource], log: str | Path | None, connector: str) -> Path:
    if log is None or not str(log):
        raise OptionError(
            f"log folder is missing: {connector}={source.__name__} log={log!r}, did you forget log='folder'? "
            "Without it nothing is known after a restart."
        )
    return absolute(log)


def make(source: type[DataSource], options: Mapping[str, str]) -> DataSource:
    return source(options=CaseInsensitiveDict(options))


def own_schema(source: type[DataSource], options: Mapping[str, str]) -> Any:
    """The schema that the data source declares."""
    try:
        return make(source, options).schema()
    except PySparkNotImplementedError:
        raise OptionError(
            f"data source has no schema: class={source.__name__}, did you forget schema='id long, name string'?"
        ) from None


def as_arrow(schema: StructType) -> Any:
    """The schema in pyarrow's types, with timestamps as instants in UTC."""
    convert: Any = to_arrow_schema
    try:
        return convert(schema, timezone="UTC")
    except TypeError:  # before Spark 4.2 it is always UTC
        return convert(schema)


def as_struct(schema: Any, source: type[DataSource]) -> StructType:
    """A schema given as DDL text or as a StructType. Text is parsed here, because Spark would need a session for it."""
    if isinstance(schema, str):
        schema = from_arrow_schema(parse_ddl(schema), prefer_timestamp_ntz=True)
    if not isinstance(schema, StructType) or not schema.fields:
        raise OptionError(
            f"not a schema: class={source.__name__} schema={shorten(schema)} type={type(schema).__name__}, "
            "did you mean a string like 'id long, name string', or a StructType?"
        )
    names = schema.fieldNames()
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise OptionError(
            f"schema names a column twice: class={source.__name__} columns={doubled}, is one of them a typo?"
        )
    return schema
