"""Tasks that fail and are tried again, or run twice at once, give the rows that they should."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark import TaskContext
from pyspark.sql import Row, SparkSession

import tailrace as tr
from kit.spark import Sessions, standalone_cluster

SCHEMA = "id long, third long"
ROWS, TASKS, SLOW = 400, 8, 3
GIVE_UP_S = 60.0


def numbers(spark: SparkSession) -> Any:
    return spark.range(0, ROWS, numPartitions=TASKS)


def expected(spark: SparkSession) -> Counter[Row]:
    """What plain ``mapInPandas`` makes of them."""

    def plain(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in batches:
            rows = [(row.id, row.id % 3) for row in batch.itertuples() for _ in range(row.id % 3)]
            yield pd.DataFrame(rows, columns=["id", "third"])

    return Counter(numbers(spark).mapInPandas(plain, SCHEMA).collect())


def test_task_retries_change_nothing(sessions: Sessions, tmp_path: Path) -> None:
    spark = sessions.get("local[2,3]")
    failed_once = tmp_path / "failed"

    def doubled(row: Any) -> Any:
        if row.id == 77 and not failed_once.exists():
            failed_once.touch()
            raise ConnectionError("a task fails")
        return [(row.id, row.id % 3)] * (row.id % 3)

    async def slowly(row: Any) -> Any:
        await asyncio.sleep(0.001 * (row.id % 5))
        return doubled(row)

    step = tr.map_rows(slowly, SCHEMA, calls=tr.Calls(concurrency=8))
    assert Counter(numbers(spark).transform(step).collect()) == expected(spark)
    failed_once.unlink()
    assert Counter(numbers(spark).transform(tr.map_rows(doubled, SCHEMA)).collect()) == expected(spark)


@pytest.mark.slow
def test_speculative_copies_change_nothing(sessions: Sessions, tmp_path: Path) -> None:
    """Spark makes a copy of a task on another host only, so there are two. The first attempt waits for the copy."""
    begun = tmp_path / "begun"
    begun.mkdir()

    async def held_up(row: Any) -> Any:
        task = TaskContext.get()
        assert task is not None
        (begun / f"{task.partitionId()}-{task.attemptNumber()}").touch()
        until = time.monotonic() + GIVE_UP_S
        if (task.partitionId(), task.attemptNumber()) == (SLOW, 0):
            while not (begun / f"{SLOW}-1").exists() and time.monotonic() < until:
                await asyncio.sleep(0.02)
        return [(row.id, row.id % 3)] * (row.id % 3)

    conf = {"spark_executor_memory": "512m", "spark_executor_cores": "2", "spark_speculation": "true"}
    conf |= {"spark_speculation_interval": "50ms", "spark_speculation_quantile": "0.5"}
    with standalone_cluster(sessions, tmp_path, "127.0.0.1", {"127.0.0.1": [], "127.0.0.2": []}) as (url, _):
        spark = sessions.get(url, **conf)
        step = tr.map_rows(held_up, SCHEMA, calls=tr.Calls(concurrency=8))
        assert Counter(numbers(spark).transform(step).collect()) == expected(spark)
    assert (begun / f"{SLOW}-1").exists(), "Spark has made no copy of the slow task"
