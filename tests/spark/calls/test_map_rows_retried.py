"""Tasks that fail, are tried again, or run twice at once give the rows that they should."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

import tailrace as tr
from kit.spark import Sessions


def test_task_retries_and_speculation_change_nothing(sessions: Sessions, tmp_path: Path) -> None:
    spark = sessions.get(
        "local[2,3]", spark_speculation="true", spark_speculation_interval="50ms", spark_speculation_multiplier="1.1"
    )
    failed_once = tmp_path / "failed"

    def doubled(row: Any) -> Any:
        if row.id == 77 and not failed_once.exists():
            failed_once.touch()
            raise ConnectionError("a task fails")
        return [(row.id, row.id % 3)] * (row.id % 3)

    async def slowly(row: Any) -> Any:
        await asyncio.sleep(0.001 * (row.id % 5))
        return doubled(row)

    def plain(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in batches:
            rows = [(row.id, row.id % 3) for row in batch.itertuples() for _ in range(row.id % 3)]
            yield pd.DataFrame(rows, columns=["id", "third"])

    schema = "id long, third long"
    df = spark.range(0, 400, numPartitions=8)
    expected = Counter(df.mapInPandas(plain, schema).collect())
    assert Counter(df.transform(tr.map_rows(slowly, schema, calls=tr.Calls(concurrency=8))).collect()) == expected
    failed_once.unlink()
    assert Counter(df.transform(tr.map_rows(doubled, schema)).collect()) == expected
