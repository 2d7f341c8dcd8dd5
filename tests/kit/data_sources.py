"""Data sources for tests: readers that count, writers that keep batches, and ways to look at what they wrote.

They are in a module of their own because workers import them by name, on executors too.
"""

from __future__ import annotations

import json
import sqlite3
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import Row
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    SimpleDataSourceStreamReader,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import StructType

import tailrace as tr
from kit.runs import assert_same_rows

# --- to read


class Counted(DataSource):
    """Options: ``rows`` in all, or a file ``upto`` that says how many there are by now."""

    def schema(self) -> str:
        return "n long, name string"

    @property
    def upto(self) -> int:
        if "upto" in self.options:
            return int(Path(self.options["upto"]).read_text())
        return int(self.options["rows"])


class Counter2(Counted):
    """Partitioned, two partitions a batch, as many rows a batch as ``step`` says. Notes what was committed."""

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return CounterReader(self)


@dataclass
class Range(InputPartition):
    first: int
    end: int


class CounterReader(DataSourceStreamReader):
    def __init__(self, source: Counted) -> None:
        self.source = source
        self.options = source.options

    def initialOffset(self) -> dict[str, int]:
        return {"n": 0}

    def getDefaultReadLimit(self) -> ReadMaxRows:
        return ReadMaxRows(int(self.options.get("STEP", "7")))  # options do not care for case

    def latestOffset(self, start: dict[str, int], limit: ReadMaxRows) -> dict[str, int]:
        time.sleep(float(self.options.get("pause", "0")))
        return {"n": min(self.source.upto, start["n"] + limit.max_rows)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        middle = (start["n"] + end["n"]) // 2
        return [Range(start["n"], middle), Range(middle, end["n"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        assert isinstance(partition, Range)
        for n in range(partition.first, partition.end):
            yield n, f"row {n}"

    def commit(self, end: dict[str, int]) -> None:
        if "committed" in self.options:
            with Path(self.options["committed"]).open("a") as file:
                file.write(json.dumps(end) + "\n")


class Simple(Counted):
    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        return SimpleReader(self)


class SimpleReader(SimpleDataSourceStreamReader):
    def __init__(self, source: Counted) -> None:
        self.source = source

    def initialOffset(self) -> dict[str, int]:
        return {"n": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[Any, ...]], dict[str, int]]:
        end = {"n": min(self.source.upto, start["n"] + int(self.source.options.get("step", "7")))}
        return self.readBetweenOffsets(start, end), end

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[Any, ...]]:
        return iter([(n, f"row {n}") for n in range(start["n"], end["n"])])


# --- to write


@dataclass
class Staged(WriterCommitMessage):
    value: Any


class Folder(DataSource):
    """A file per batch in the folder ``path``, moved there by the commit: idempotent by batch id."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return FolderWriter(Path(self.options["path"]), self.options.get("fail"))


class FolderWriter(DataSourceStreamWriter):
    def __init__(self, path: Path, fail: str | None) -> None:
        self.path = path
        self.fail = Path(fail) if fail else None

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        self.path.mkdir(exist_ok=True)
        draft = self.path / f".{uuid.uuid4().hex}"
        draft.write_text(json.dumps([row.asDict() for row in iterator]))
        return Staged(draft)

    def commit(self, messages: list[Any], batchId: int) -> None:
        if self.fail is not None and self.fail.exists():
            raise ConnectionError(f"no commit of batch {batchId} today")
        for message in messages:
            message.value.rename(self.path / f"batch-{batchId}.json")

    def abort(self, messages: list[Any], batchId: int) -> None:
        (self.path / f"aborted-{batchId}").write_text(str(len(messages)))


class Table(DataSource):
    """An SQLite table that remembers the highest batch id, as transactional tables do."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return TableWriter(self.options["path"])


class TableWriter(DataSourceStreamWriter):
    def __init__(self, path: str) -> None:
        self.path = path

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        return Staged([tuple(row) for row in iterator])

    def commit(self, messages: list[Any], batchId: int) -> None:
        with closing(sqlite3.connect(self.path, timeout=30)) as database, database:
            database.execute("PRAGMA synchronous = OFF")  # processes are killed here, no power is cut
            database.execute("CREATE TABLE IF NOT EXISTS rows (n)")
            database.execute("CREATE TABLE IF NOT EXISTS batches (id)")
            (last,) = database.execute("SELECT max(id) FROM batches").fetchone()
            if last is None or batchId > last:
                database.execute("INSERT INTO batches VALUES (?)", (batchId,))
                for message in messages:
                    database.executemany("INSERT INTO rows VALUES (?)", [(row[0],) for row in message.value])


# --- what tests share


def batches(folder: Path) -> dict[int, list[Any]]:
    paths = folder.glob("batch-*.json")
    return {int(path.stem.removeprefix("batch-")): json.loads(path.read_text()) for path in paths}


def numbers(folder: Path) -> list[int]:
    return [row["n"] for rows in batches(folder).values() for row in rows]


def table_rows(path: Path) -> list[int]:
    if not path.exists():
        return []
    with closing(sqlite3.connect(path)) as database:
        return [n for (n,) in database.execute("SELECT n FROM rows")]


def assert_once(found: Iterable[int], rows: int) -> None:
    assert_same_rows(found, range(rows))


def only_n(row: dict[str, Any]) -> dict[str, Any]:
    return {"n": row["n"]}


def copy(source: Any, sink: Any, tasks: int = 1, sinks: int = 1) -> tr.Topology:
    topology = tr.Topology("copy")
    rows = topology.source("rows", source, tasks=tasks)
    rows.map("only", only_n, tasks=2).sink("out", sink, tasks=sinks)
    return topology
