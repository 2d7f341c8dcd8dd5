"""The folder of a handover: what it holds, and who may use it.

::

    about.json              that it is one; its columns and its number of splits, for good
    lock                    held by the driver that uses it
    job.json                the job that reads it, and how far its rows may have been deleted
    query/                  Spark's checkpoint of the streaming query
    batches/                a manifest for each micro-batch: see ``manifests.py``
    rows/N-….parquet        the rows of batch N

All of it must be on one file system with hard links and atomic renames that the driver, the executors and all workers
reach under the same path.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tailrace.errors import OptionError, TailraceError
from tailrace.runtime.connectors.commits.disk import make_directory, replace_file
from tailrace.runtime.connectors.commits.mounts import warn_of_cached_names
from tailrace.runtime.driver.folder_lock import lock_folder

VERSION = 1
_FORMAT = "tailrace-handover"
_ABOUT = "about.json"
_JOB = "job.json"
_OWN = {_ABOUT, "about.new", "lock"}  # what a driver that died early may leave in a folder without a description


@dataclass(frozen=True)
class About:
    """The purpose of a handover. Columns are names and types, in order."""

    splits: int
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Job:
    """The job that reads a handover, and by split the offset below which rows may have been deleted."""

    id: str
    deleted: Mapping[str, int]


class HandoverFolder:
    """The folder and its description."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.batches = path / "batches"
        self.rows = path / "rows"
        self.query = path / "query"

    def check(self, about: About) -> None:
        """Raise OptionError unless the folder is new, or a handover of this description. Makes nothing."""
        try:
            names = sorted(found.name for found in self.path.iterdir())
        except FileNotFoundError:
            return
        except NotADirectoryError:
            raise OptionError(f"not a folder but a file: folder={self.path}, did you mean another path?") from None
        found = self._describe()
        if found is None:
            others = [name for name in names if name not in _OWN]
            if others:
                raise OptionError(
                    f"folder holds something else: folder={self.path} found={others[:3]}, "
                    "did you mean a new folder in it?"
                )
        elif found != about:
            raise OptionError(_difference(self.path, found, about))

    def claim(self, about: About) -> IO[bytes]:
        """Take the folder's lock, and make what is not there yet. The lock lasts until it is closed."""
        make_directory(self.path)
        warn_of_cached_names(self.path)
        lock = self._take_lock()
        try:
            self.check(about)
            if self._describe() is None:
                content = {"format": _FORMAT, "version": VERSION, "splits": about.splits, "columns": about.columns}
                replace_file(self.path / _ABOUT, json.dumps(content).encode())
            make_directory(self.rows)
            make_directory(self.batches)
        except BaseException:
            lock.close()
            raise
        return lock

    def job(self) -> Job | None:
        stored = self._read(_JOB)
        if stored is None:
            return None
        try:
            return Job(str(stored["job"]), {str(name): int(offset) for name, offset in stored["deleted"].items()})
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _unreadable(self.path / _JOB, error) from error

    def set_job(self, job: Job) -> None:
        replace_file(self.path / _JOB, json.dumps({"job": job.id, "deleted": dict(job.deleted)}).encode())

    def delete(self) -> None:
        """Delete the folder with all that is in it. Does nothing if there is none, or if it is no handover."""
        if self._describe() is None:
            return
        lock = self._take_lock()
        with lock:
            (self.path / _ABOUT).rename(self.path / "about.new")  # first: a part of a handover must not pass for one
            shutil.rmtree(self.path, ignore_errors=True)

    def _take_lock(self) -> IO[bytes]:
        busy = "does another run still go on, or have two sources this folder?"
        return lock_folder(self.path, f"folder is in use: folder={self.path}, {busy}")

    def _describe(self) -> About | None:
        stored = self._read(_ABOUT)
        if stored is None:
            return None
        try:
            if stored["format"] != _FORMAT or stored["version"] != VERSION:
                raise ValueError(f"format={stored['format']!r} version={stored['version']!r}")
            return About(int(stored["splits"]), tuple((str(name), str(kind)) for name, kind in stored["columns"]))
        except (KeyError, TypeError, ValueError) as error:
            raise _unreadable(self.path / _ABOUT, error) from error

    def _read(self, name: str) -> Any:
        try:
            return json.loads((self.path / name).read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise _unreadable(self.path / name, error) from error


def _unreadable(path: Path, error: Exception) -> TailraceError:
    return OptionError(f"handover cannot be read: file={path} cause={error}, is it one of ours, of this version?")


def _difference(path: Path, found: About, wanted: About) -> str:
    if found.columns != wanted.columns:
        before, now = _columns(found, wanted), _columns(wanted, found)
        return (
            f"folder holds other columns: folder={path} found={before} columns={now}, "
            "has the DataFrame changed? Then it needs a new folder"
        )
    return (
        f"folder has another number of splits: folder={path} found={found.splits} splits={wanted.splits}, "
        f"did you mean splits={found.splits}?"
    )


def _columns(about: About, other: About) -> list[str]:
    """The first columns that the other does not have at the same place."""
    places = enumerate(about.columns)
    found = [f"{name} {kind}" for place, (name, kind) in places if other.columns[place : place + 1] != ((name, kind),)]
    return found[:3]
