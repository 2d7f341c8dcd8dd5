"""Has Spark write a DataFrame to a folder, from which workers read it, and finds what an earlier driver has written.

Spark's job runs in a thread of its own. A Ctrl-C that came while the driver's own thread waits for an answer of the JVM
would leave the answer in the connection, where the next question finds it, and the job would go on.
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
from pathlib import Path
from typing import Any

from pyspark import InheritableThread
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from tailrace.errors import OptionError, TailraceError
from tailrace.runtime.connectors.commits.disk import sync_directory
from tailrace.signals import terminable, wait_for
from tailrace.spark.calls.driver import is_connect
from tailrace.spark.connectors.staged_rows import rows_in
from tailrace.spark.connectors.staged_source import files_in
from tailrace.spark.shared_folder import TOKEN, path_to_write

_SUCCESS = "_SUCCESS"  # Spark writes it last
_LEFTOVERS = ("part-*", ".part-*.crc", "_temporary", "._SUCCESS.crc", f"{TOKEN}*")  # of a driver that died
CANCEL_AGAIN_S = 0.5
_log = logging.getLogger(__name__)


def stage(df: DataFrame, place: Path, splits: int | None, durable: bool) -> None:
    """Write the rows of a DataFrame to a folder, unless they are there already.

    Args:
        df: the DataFrame.
        place: the folder. It may hold rows of the same columns, which are taken as they are.
        splits: how many files to write. ``None``: one for each partition.
        durable: whether the files are to be read again after a power cut.
    """
    if (place / _SUCCESS).exists():
        _check_columns(place, df.columns)
        _log.warning("rows are there already and are read as they are: folder=%s, is this a restart?", place)
        return
    _check_empty(place)
    _write(df if splits is None else df.repartition(splits), place)
    if durable:
        for file in files_in(place):
            _sync(file)
        sync_directory(place)


def check_splits(splits: object) -> None:
    if splits is not None and (not isinstance(splits, int) or isinstance(splits, bool) or splits < 1):
        raise OptionError(f"option must be a positive number: splits={splits!r}, did you mean to leave it out?")


def _write(df: DataFrame, place: Path) -> None:
    seen = Observation()
    observed: Any = df.observe(seen, F.count(F.lit(1)).alias("rows"))
    writer = observed.write.mode("overwrite").option("compression", "snappy")
    _run(df.sparkSession, lambda: writer.parquet(path_to_write(place)))
    rows = seen.get.get("rows", 0)
    found = sum(map(rows_in, files_in(place)))
    if found != rows:
        # Executors without access to the driver's disk write to their own, and Spark does not notice.
        (place / _SUCCESS).unlink(missing_ok=True)
        raise TailraceError(
            f"rows are not where the driver can read them: folder={place} rows={rows} found={found}, "
            "is the folder on a disk that the driver and all executors share?"
        )


def _run(session: Any, write: Any) -> None:
    """Call a function that runs a job of Spark. Ctrl-C and SIGTERM cancel it."""
    if is_connect(session):
        write()
        return
    context = session.sparkContext
    tag = f"tailrace-staging-{uuid.uuid4().hex[:8]}"
    ended = threading.Event()
    failures: list[BaseException] = []

    def work() -> None:
        context.addJobTag(tag)  # the tag ends with the thread
        try:
            write()
        except BaseException as error:
            failures.append(error)
        finally:
            ended.set()

    thread = InheritableThread(target=work, name="tailrace-staging", daemon=True)
    with terminable():
        try:
            thread.start()
            wait_for(ended, None)
        except BaseException:
            context.cancelJobsWithTag(tag)
            while not wait_for(ended, CANCEL_AGAIN_S):  # it may have been about to begin
                context.cancelJobsWithTag(tag)
            raise
    if failures:
        raise failures[0]


def _sync(file: Path) -> None:
    """Wait until a file that another process wrote is on disk."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_empty(place: Path) -> None:
    """Raise OptionError if the folder holds anything but leftovers, as Spark is about to delete its content."""
    others = [path.name for path in place.glob("*") if not any(path.match(pattern) for pattern in _LEFTOVERS)]
    if others or place.is_file():
        raise OptionError(
            f"folder holds something else: folder={place} found={sorted(others)[:3]}, did you mean a new folder in it?"
        )


def _check_columns(place: Path, columns: list[str]) -> None:
    import pyarrow.parquet as pq

    for path in files_in(place)[:1]:
        found = pq.read_schema(path).names
        if found != columns:
            raise OptionError(
                f"folder holds another DataFrame: folder={place} found={found} columns={columns}, "
                "did you mean another folder?"
            )
