"""Examples in docstrings that need Spark."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tailrace as tr
from kit.examples import run_example

NEED_SPARK = ["from_data_source", "from_dataframe", "local_session", "map_rows", "read_stream", "to_data_source", "udf"]
NEED_SPARK += ["from_stream", "Run.table", "Topology.apply"]


@pytest.mark.parametrize("name", NEED_SPARK)
def test_example_runs(name: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_example(name, attrgetter(name)(tr), {"spark": spark})
