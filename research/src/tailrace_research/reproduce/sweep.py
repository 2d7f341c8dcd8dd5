"""A parameter grid as Spark jobs: each cell of the grid is a simulation, results and their provenance go to Parquet.

The grid runs a chunk at a time, and each chunk is appended when it is done: that is what progress is counted in, what
is lost when a run is interrupted, and why the next run only computes what is missing. Results of other code lie in
another folder below the same one and are never mixed in.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from tailrace.errors import TailraceError
from tailrace.version import VERSION

CHUNK_S = 10.0
"""About the most that an interrupted run loses; the start of a chunk's tasks costs some tenths of a second."""

FIRST_CHUNK = 4
"""Cells a slot in the first chunk, when it is not yet known how long one takes."""

JOB_GROUP = "tailrace-sweep"

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
ONE_PARTITION = 50_000
"""Results that one task sums up in a second or two."""

PARTITIONS = 4
"""Tasks a slot and chunk, so that slots with cheap cells do not wait long for those with expensive ones."""

SQL_TYPES: dict[Any, str] = {int: "bigint", float: "double", str: "string", list[float]: "array<double>"}
ARROW_TYPES: dict[Any, pa.DataType] = {
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    list[float]: pa.list_(pa.float64()),
}
PROVENANCE: dict[str, tuple[str, pa.DataType]] = {
    "version": ("string", pa.string()),
    "python": ("string", pa.string()),
    "machine": ("string", pa.string()),
    "finished": ("timestamp", pa.timestamp("us", tz="UTC")),
    "cpu_s": ("double", pa.float64()),
}

Cell = Mapping[str, Any]
Progress = Callable[[int, int, float], None]  # cells done, cells in all, seconds since the start


@dataclass(frozen=True)
class Sweep:
    parameters: Mapping[str, Any]  # names and types, which together tell one cell from another
    measures: Mapping[str, Any]
    run_cell: Callable[[Cell], Mapping[str, Any]]  # importable by name where the executors are
    code: str  # names the version of the code; results of another one do not count
    folder: str  # a path or URL that driver and executors share

    @property
    def place(self) -> str:
        return f"{self.folder.rstrip('/')}/code={self.code}"

    @property
    def cell_schema(self) -> str:
        return ", ".join(f"`{name}` {SQL_TYPES[kind]}" for name, kind in self.parameters.items())

    @property
    def result_schema(self) -> str:
        measured = [f"`{name}` {SQL_TYPES[kind]}" for name, kind in self.measures.items()]
        return ", ".join([self.cell_schema, *measured, *(f"{name} {kind[0]}" for name, kind in PROVENANCE.items())])


def run_sweep(spark: SparkSession, sweep: Sweep, cells: Sequence[Cell], progress: Progress) -> int:
    """Compute the cells that are not in the folder yet. Returns how many that were."""
    missing = _missing(spark, sweep, cells)
    Random(0).shuffle(missing)  # expensive cells are neighbours in a grid; chunks are to cost the same
    slots = spark.sparkContext.defaultParallelism
    started = time.monotonic()
    done, size = 0, FIRST_CHUNK * slots
    while done < len(missing):
        progress(len(cells) - len(missing) + done, len(cells), time.monotonic() - started)
        begun = time.monotonic()
        chunk = missing[done : done + size]
        _run_interruptibly(spark, partial(_run_chunk, spark, sweep, chunk, PARTITIONS * slots))
        done += len(chunk)
        size = _next_size(len(chunk), time.monotonic() - begun, slots)
    progress(len(cells), len(cells), time.monotonic() - started)
    return len(missing)


def _next_size(size: int, seconds: float, slots: int) -> int:
    """As many cells as should take ``CHUNK_S``, but no more than four times as many as were just tried."""
    return max(slots, min(4 * size, round(size * CHUNK_S / max(seconds, 0.001))))


def _missing(spark: SparkSession, sweep: Sweep, cells: Sequence[Cell]) -> list[tuple[Any, ...]]:
    with _sized_for(spark, cells):
        left = _grid(spark, sweep, cells).join(_results(spark, sweep), list(sweep.parameters), "left_anti")
        return sorted(tuple(row) for row in left.collect())


def _grid(spark: SparkSession, sweep: Sweep, cells: Sequence[Cell]) -> DataFrame:
    return spark.createDataFrame([tuple(cell[name] for name in sweep.parameters) for cell in cells], sweep.cell_schema)


def _results(spark: SparkSession, sweep: Sweep) -> DataFrame:
    """All there is so far. A cell may be there twice, if two runs were at it at once."""
    try:
        found = spark.read.schema(sweep.result_schema).parquet(sweep.place)
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        found = spark.createDataFrame([], sweep.result_schema)
    return found.dropDuplicates(list(sweep.parameters))


@contextmanager
def _sized_for(spark: SparkSession, cells: Sequence[Cell]) -> Iterator[None]:
    """Spark's 200 shuffle partitions cost fifteen seconds of CPU a figure where one partition will do."""
    before = spark.conf.get(SHUFFLE_PARTITIONS)
    spark.conf.set(SHUFFLE_PARTITIONS, str(1 + len(cells) // ONE_PARTITION))
    try:
        yield
    finally:
        spark.conf.set(SHUFFLE_PARTITIONS, str(before))


def _run_interruptibly(spark: SparkSession, job: Callable[[], None]) -> None:
    """In a thread of its own: a Ctrl-C in the middle of a call to the JVM would break the connection and be logged."""

    def run() -> None:
        spark.sparkContext.setJobGroup(JOB_GROUP, "a chunk of a sweep")
        job()

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(run)
        try:
            done.result()
        except KeyboardInterrupt:
            spark.sparkContext.setLogLevel("OFF")  # a cancelled writer logs a hundred lines, and the process ends
            spark.sparkContext.cancelJobGroup(JOB_GROUP)
            raise


def _run_chunk(spark: SparkSession, sweep: Sweep, chunk: Sequence[tuple[Any, ...]], partitions: int) -> None:
    grid = spark.createDataFrame(list(chunk), sweep.cell_schema).repartition(min(len(chunk), partitions))
    try:
        results = grid.mapInArrow(_cell_runner(sweep), sweep.result_schema)
        results.write.mode("append").parquet(sweep.place)
    except PySparkException as error:
        told = [line for line in str(error).splitlines() if "CellFailed: " in line]
        if not told:
            raise
        raise TailraceError(told[-1].partition("CellFailed: ")[2]) from error


class CellFailed(Exception):
    """A simulation raised; says of which cell."""


def _cell_runner(sweep: Sweep) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    run_cell = sweep.run_cell
    types = {name: ARROW_TYPES[kind] for name, kind in {**sweep.parameters, **sweep.measures}.items()}
    schema = pa.schema([*types.items(), *((name, kind[1]) for name, kind in PROVENANCE.items())])

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for cell in batch.to_pylist():
                yield pa.RecordBatch.from_pylist([_run_one(run_cell, cell)], schema)

    return run


def _run_one(run_cell: Callable[[Cell], Mapping[str, Any]], cell: Cell) -> dict[str, Any]:
    begun = time.process_time()
    try:
        measured = run_cell(cell)
    except Exception as error:
        raise CellFailed(f"a cell failed: cell={dict(cell)} {type(error).__name__}: {error}") from error
    return {
        **cell,
        **measured,
        "version": VERSION,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "finished": datetime.now(UTC),
        "cpu_s": time.process_time() - begun,
    }


def aggregate(
    spark: SparkSession,
    sweep: Sweep,
    cells: Sequence[Cell],
    sql: str,
    quantiles: Sequence[tuple[int, float]],
) -> list[dict[str, Any]]:
    """``sql`` over the results of just these cells, the view ``cells``, and the view ``student_t`` (n, t)."""
    with _sized_for(spark, cells):
        results = _results(spark, sweep).join(_grid(spark, sweep, cells), list(sweep.parameters), "left_semi").cache()
        try:
            results.createOrReplaceTempView("cells")
            spark.createDataFrame(list(quantiles), "n bigint, t double").createOrReplaceTempView("student_t")
            return [row.asDict() for row in spark.sql(sql).collect()]
        finally:
            results.unpersist()
