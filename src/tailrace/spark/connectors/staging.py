"""Has Spark write a DataFrame to a folder, from which workers read it, and finds what an earlier driver has written.

Spark's job runs in a thread of its own. A Ctrl-C that came while the driver's own thread waits for an answer of the JVM
would leave the answer in the connection, where the next question finds it, and the job would go on.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
import uuid
from pathlib import Path
from typing import Any

from pyspark import InheritableThread
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from tailrace.errors import OptionError, TailraceError, shorten
from tailrace.runtime.connectors.commits.disk import make_directory, replace_file, sync_directory
from tailrace.signals import terminable, wait_for
from tailrace.spark.calls.driver import is_connect
from tailrace.spark.connectors.passing_types import described
from tailrace.spark.connectors.staged_rows import rows_in
from tailrace.spark.connectors.staged_source import files_in
from tailrace.spark.shared_folder import TOKEN, path_to_write

_ABOUT = "_tailrace-rows.json"
"""Says what the folder is for, from before Spark writes to it, and that all rows are there, once that was verified and
they are on disk. Spark's own ``_SUCCESS`` comes before that. The name is hidden from Spark."""

_KIND = "tailrace rows"
_VERSION = 1
_WRITTEN = ("part-*", ".part-*.crc", "_temporary", "_SUCCESS", "._SUCCESS.crc")  # by Spark
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
    columns = [[name, kind] for name, kind in described(df.schema).items()]
    known = _read_about(place)
    if known is not None and known["complete"]:
        _check_columns(place, known["columns"], columns)
        _log.warning("rows are there already and are read as they are: folder=%s, is this a restart?", place)
        return
    _clear(place, ours=known is not None)
    try:
        make_directory(place)
        _write_about(place, columns, complete=False)
    except OSError as error:
        raise OptionError(f"not a folder to write to: folder={place} cause={error}, did you mean another?") from error
    _write(df if splits is None else df.repartition(splits), place)
    if durable:
        for file in files_in(place):
            _sync(file)
        sync_directory(place)
    _write_about(place, columns, complete=True)


def check_splits(splits: object) -> None:
    if splits is not None and (not isinstance(splits, int) or isinstance(splits, bool) or splits < 1):
        raise OptionError(f"option must be a positive number: splits={splits!r}, did you mean to leave it out?")


def _write(df: DataFrame, place: Path) -> None:
    seen = Observation()
    observed: Any = df.observe(seen, F.count(F.lit(1)).alias("rows"))
    writer = observed.write.mode("append").option("compression", "snappy")  # "overwrite" would delete all that is there
    _run(df.sparkSession, lambda: writer.parquet(path_to_write(place)))
    rows = seen.get.get("rows", 0)
    found = sum(map(rows_in, files_in(place)))
    if found != rows:
        # Executors without access to the driver's disk write to their own, and Spark does not notice.
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


def _clear(place: Path, ours: bool) -> None:
    """Delete what a driver has left that died on the way. Raise OptionError if the folder holds anything else."""
    patterns = (f"{TOKEN}*", f"{Path(_ABOUT).stem}.*", *(_WRITTEN if ours else ()))
    found = sorted(place.glob("*"))
    others = [path.name for path in found if not any(path.match(pattern) for pattern in patterns)]
    if others or place.is_file():
        raise OptionError(
            f"folder holds something else: folder={place} found={others[:3]}, did you mean a new folder in it?"
        )
    for path in found:
        if any(path.match(pattern) for pattern in _WRITTEN):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _check_columns(place: Path, found: list[list[str]], columns: list[list[str]]) -> None:
    if found != columns:
        before, now = _shown(found, columns), _shown(columns, found)
        raise OptionError(
            f"folder holds another DataFrame: folder={place} found={before} columns={now}, did you mean another folder?"
        )


def _shown(columns: list[list[str]], others: list[list[str]]) -> list[str]:
    """The first columns that the others do not have at the same place."""
    return [" ".join(one) for number, one in enumerate(columns) if others[number : number + 1] != [one]][:3]


def _read_about(place: Path) -> dict[str, Any] | None:
    path = place / _ABOUT
    try:
        known = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as error:
        raise OptionError(f"rows cannot be read: file={path} cause={error}, is it one of ours?") from error
    if not isinstance(known, dict) or (known.get("kind"), known.get("version")) != (_KIND, _VERSION):
        raise OptionError(f"rows cannot be read: file={path} found={shorten(known)}, is it one of ours?")
    return known


def _write_about(place: Path, columns: list[list[str]], *, complete: bool) -> None:
    about = {"kind": _KIND, "version": _VERSION, "columns": columns, "complete": complete}
    replace_file(place / _ABOUT, json.dumps(about).encode())
