"""Columns and steps in a streaming query."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import SparkSession

import tailrace as tr

register_pickle_by_value(sys.modules[__name__])  # Spark's workers do not have the tests


@tr.udf("double", calls=tr.Calls(on_error="skip"))
async def inverse(number: int) -> float:
    return 1 / number


async def repeated(row: Any) -> Any:
    await asyncio.sleep(0)
    return [(row.id, row.inverse)] * (row.id % 3)


def test_a_streaming_query_reports_figures(spark: SparkSession, tmp_path: Path) -> None:
    for part in range(2):
        spark.range(part * 30, part * 30 + 30, numPartitions=1).write.mode("append").parquet(str(tmp_path / "in"))
    rows = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    step = tr.map_rows(repeated, "id long, inverse double", calls=tr.Calls(), observation="repeating")
    stream = rows.select("id", inverse("id").alias("inverse")).transform(step)
    query = (
        stream.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    assert query.awaitTermination(120)
    progress = [one for one in query.recentProgress if one["numInputRows"]]
    assert sum(one["observedMetrics"]["repeating"]["calls"] for one in progress) == 60
    assert all(one["observedMetrics"]["repeating"]["p99_ms"] > 0 for one in progress)
    got = sorted(tuple(row) for row in spark.read.parquet(str(tmp_path / "out")).collect())
    assert got == sorted(
        (number, None if number == 0 else 1 / number) for number in range(60) for _ in range(number % 3)
    )
