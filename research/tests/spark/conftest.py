"""A session for the tests of this folder. All tests of a module share one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tailrace.spark.session import local_session

SLOTS = 4


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """On this machine, with four slots. A process has one Spark context: that of tests that ran before is stopped."""
    before = SparkSession.getActiveSession()
    if before is not None:
        before.stop()
    session = local_session(SLOTS)
    yield session
    session.stop()
