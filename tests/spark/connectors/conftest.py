"""What tests of streams share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kit.streams import Input
from tailrace.spark.slots import HELD


@pytest.fixture
def numbers(spark: SparkSession, tmp_path: Path) -> Input:
    return Input(spark, tmp_path / "in")


@pytest.fixture
def nothing_left(spark: SparkSession) -> Iterator[None]:
    """No query goes on after its run, and no slot stays taken."""
    yield
    if spark.sparkContext._jsc is not None:
        assert not spark.streams.active
        assert HELD.count(spark.sparkContext.applicationId) == 0
