"""Gets the rows of a micro-batch into files: small batches through the driver, large ones by the executors.

A batch is expected to be like the one before. While they are small, the driver collects the rows and writes them, which
takes half the time of a job that writes (docs/decisions/streams-in.md). The job leaves out what exceeds a number of
rows in each partition. If it had to, the rows are thrown away, and the executors write the batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tailrace.spark.connectors.handover.row_files import SCHEMA, WriteRows, write_rows

SMALL_ROWS = 10_000
"""A batch of more rows is large, and so is a partition of as many."""

SMALL_BYTES = 16 << 20
"""A batch whose files have more bytes is large."""

FILE_ROWS = 1000
"""A small batch of more rows is divided into a file for each split."""

_PLACE = "__tailrace_place"
_IN_PARTITION = (1 << 33) - 1
"""The bits of ``monotonically_increasing_id`` that count the rows of a partition."""


class BatchWriter:
    """Writes the batches of one query, one after another."""

    def __init__(self, folder: Path, splits: int) -> None:
        self._folder = folder
        self._splits = splits
        self._small = False  # after a start there may be much to catch up with

    def write(self, frame: DataFrame, number: int) -> list[tuple[str, int]]:
        """Write a batch. Returns the names of its files and their numbers of rows, in order."""
        table = self._collect(frame) if self._small else None
        if table is not None:
            files = list(self._write_parts(table, number))
        else:
            # PySpark takes a dot in a name for a part of a struct here.
            numbered = frame.toDF(*(f"c{place}" for place in range(len(frame.columns))))
            write = WriteRows(self._folder, number, tuple(frame.columns))
            found = numbered.mapInArrow(write, SCHEMA).collect()
            files = sorted((row.file, row.rows) for row in found)
        self._small = self._is_small(files)
        return files

    def _collect(self, frame: DataFrame) -> Any:
        """The rows as a table; None if there are too many."""
        counted = frame.select("*", F.monotonically_increasing_id().alias(_PLACE))
        try:
            table = counted.filter(F.col(_PLACE).bitwiseAND(_IN_PARTITION) < SMALL_ROWS).toArrow()
        except PySparkException as error:
            if "spark.driver.maxResultSize" in str(error):
                return None
            raise
        import pyarrow.compute as pc

        if table.num_rows >= SMALL_ROWS:
            places = pc.bit_wise_and(table.column(_PLACE), _IN_PARTITION)
            if pc.max(places).as_py() >= SMALL_ROWS - 1:
                return None
        return table.drop_columns([_PLACE])

    def _write_parts(self, table: Any, number: int) -> Iterator[tuple[str, int]]:
        parts = 1 if table.num_rows <= FILE_ROWS else self._splits
        rows = -(-table.num_rows // parts)
        for part in range(parts):
            written = write_rows(self._folder, number, part, table.slice(part * rows, rows).to_batches())
            if written is not None:
                yield written

    def _is_small(self, files: list[tuple[str, int]]) -> bool:
        if sum(rows for _, rows in files) > SMALL_ROWS:
            return False
        paths = [self._folder / name for name, _ in files]
        return sum(path.stat().st_size for path in paths if path.exists()) <= SMALL_BYTES
