"""Streams for tests of ``from_stream``: an input that grows file by file, and ways to look at what was handed over.

They are in a module of their own because workers import them by name.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import tailrace as tr
from kit.data_sources import only_n

AVAILABLE = {"availableNow": True}


class Input:
    """A folder that a streaming query reads, file by file."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.rows = self.files = 0
        folder.mkdir()

    def add(self, rows: int, files: int = 1) -> None:
        for _ in range(files):
            path = self.folder / f"{self.files:05d}.json"
            draft = path.with_name(f".{path.name}")
            draft.write_text("".join(f'{{"n": {n}}}\n' for n in range(self.rows, self.rows + rows)))
            os.utime(draft, (self.files, self.files))  # Spark takes them in this order
            draft.rename(path)
            self.rows += rows
            self.files += 1

    @property
    def stream(self) -> DataFrame:
        """A micro-batch for each file."""
        return self.spark.readStream.schema("n long").option("maxFilesPerTrigger", 1).json(str(self.folder))


def of(source: Any, out: Any, name: str = "streamed") -> tr.Topology:
    topology = tr.Topology(name)
    topology.source("rows", source, tasks=2).map("only", only_n, tasks=2).sink("out", out)
    return topology


def n_of(values: list[Any]) -> list[int]:
    return [value["n"] for value in values]


def query_of(run: Any) -> dict[str, Any]:
    """The newest progress of the query; empty if there is none yet."""
    return ((run.lastProgress or {}).get("queries") or {}).get("rows") or {}


def files_in(folder: Path, pattern: str) -> list[str]:
    return sorted(path.name for path in folder.glob(pattern))


class WaitsFor:
    """Row 0 waits until a file is there."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        while row["n"] == 0 and not self.path.exists():
            time.sleep(0.01)
        return row
