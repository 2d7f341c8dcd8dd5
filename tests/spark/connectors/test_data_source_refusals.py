"""What cannot be a source or a sink is refused in one sentence, before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import LongType, StructField, StructType

from kit.data_sources import Counter2, Folder
from tailrace.errors import OptionError
from tailrace.spark.connectors.data_sink import to_data_source
from tailrace.spark.connectors.data_source import from_data_source
from tailrace.spark.connectors.dataframe import from_dataframe


class Bare(DataSource):
    """Neither reads nor writes."""


class NoSchema(Counter2):
    def schema(self) -> str:
        return DataSource.schema(self)  # type: ignore[return-value]


class OddSchema(Counter2):
    def schema(self) -> str:
        return ["n"]  # type: ignore[return-value]


Refusal = tuple[Callable[[], Any], str]
REFUSALS: dict[str, Refusal] = {
    "no reader": (
        lambda: from_data_source(Folder, log="log"),
        "data source has no stream reader: class=Folder, did you forget to define streamReader or simpleStreamReader?",
    ),
    "no writer": (
        lambda: to_data_source(Bare, schema="n long", log="log"),
        "data source has no stream writer: class=Bare, did you forget to define streamWriter?",
    ),
    "not a data source": (
        lambda: from_data_source(int, log="log"),  # type: ignore[arg-type]
        "not a data source: from_data_source=<class 'int'> type=type, is it a subclass of DataSource?",
    ),
    "not a class": (
        lambda: to_data_source(Folder({}), schema="n long", log="log"),  # type: ignore[arg-type]
        None,
    ),
    "option": (
        lambda: from_data_source(Counter2, {"rows": 5}, log="log"),  # type: ignore[dict-item]
        "option is not a string: class=Counter2 option=rows value=5 type=int, did you mean '5'?",
    ),
    "name of option": (
        lambda: to_data_source(Folder, {5: "rows"}, schema="n long", log="log"),  # type: ignore[dict-item]
        "name of an option is not a string: class=Folder option=5 type=int, did you swap name and value?",
    ),
    "source without log": (
        lambda: from_data_source(Counter2, {"rows": "5"}),
        "log folder is missing: from_data_source=Counter2 log=None, did you forget log='folder'? "
        "Without it nothing is known after a restart.",
    ),
    "sink without log": (
        lambda: to_data_source(Folder, schema="n long", log=""),
        "log folder is missing: to_data_source=Folder log='', did you forget log='folder'? "
        "Without it nothing is known after a restart.",
    ),
    "no schema": (
        lambda: from_data_source(NoSchema, {"rows": "5"}, log="log"),
        "data source has no schema: class=NoSchema, did you forget schema='id long, name string'?",
    ),
    "odd schema": (
        lambda: from_data_source(OddSchema, {"rows": "5"}, log="log"),
        "not a schema: class=OddSchema schema=['n'] type=list, "
        "did you mean a string like 'id long, name string', or a StructType?",
    ),
    "column twice": (
        lambda: to_data_source(Folder, schema=StructType([StructField("n", LongType())] * 2), log="log"),
        "schema names a column twice: class=Folder columns=['n'], is one of them a typo?",
    ),
    "poll_ms": (
        lambda: from_data_source(Counter2, {"rows": "5"}, log="log", poll_ms=0),
        "option must be positive: poll_ms=0, did you mean to leave it out?",
    ),
    "roll_rows": (
        lambda: to_data_source(Folder, schema="n long", log="log", roll_rows=0),
        "option must be positive: roll_rows=0, did you mean to leave it out?",
    ),
    "dataframe": (
        lambda: from_dataframe([1]),  # type: ignore[arg-type]
        "not a DataFrame: from_dataframe=[1] type=list, is it a table?",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name: str) -> None:
    make, text = REFUSALS[name]
    with pytest.raises(OptionError) as caught:
        make()
    if name == "not a class":
        assert str(caught.value).endswith("type=Folder, did you mean its class?")
    else:
        assert str(caught.value) == text
