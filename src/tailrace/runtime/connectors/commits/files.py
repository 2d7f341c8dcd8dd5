"""The commit protocol of file sinks: a row is visible once, and exactly if its entry is recovered.

::

    out/part-<operator>-<job>-<task>-e<epoch>-<number>.<ext>               data, visible to readers
    out/_tailrace/<operator>-<job>/manifests/<task>-e<epoch>-<number>.manifest
    out/_tailrace/<operator>-<job>/staging/<task>-e<epoch>/                 see ``staging.py``

A commit writes data and manifest into staging, then renames the manifest into ``manifests/``: that is the commit
point. Then it renames the data file into ``out/``; if it dies in between, its successor does that. Every step is on
disk before the next begins, so the order also holds across a power cut. The directory must be on one file system
with atomic renames, whose names are the same for all workers at any moment: a local disk, or NFS that is mounted with
``noac`` (see ``mounts.py``); not an object store.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from math import isfinite
from pathlib import Path

from tailrace.connector import Entry, SinkContext
from tailrace.errors import OptionError, TailraceError, refuse_uri, shorten
from tailrace.runtime.connectors.commits.disk import make_directory, sync_directory, write_file
from tailrace.runtime.connectors.commits.manifest import Manifest, decode, encode
from tailrace.runtime.connectors.commits.mounts import warn_of_cached_names
from tailrace.runtime.connectors.commits.staging import MANIFEST, Place, Staging

_NAME = re.compile(r"(\d+)-e(\d+)-(\d+)" + re.escape(MANIFEST))
_LONGEST_NAME = 80  # characters of an operator's name in a file name, which may have 255 bytes in all
_log = logging.getLogger(__name__)


class PartFiles:
    """The files of one sink task in one epoch. Used by one thread; any number of tasks share the directory."""

    def __init__(self, directory: Path, extension: str, context: SinkContext) -> None:
        self._directory = directory
        self._extension = extension
        self._job_id = context.job_id
        self._name = _name_of(context.operator, context.job_id)
        home = home_of(directory, context.operator, context.job_id)
        self._manifests = home / "manifests"
        self._staging = Staging(home / "staging", context.task, context.tasks, context.epoch, context.first_epoch)
        self._number = 0
        self._kept: dict[Path, dict[str, int]] = {}  # manifests that this task may delete, with their newest offsets
        self._broken = False
        make_directory(self._manifests)
        if context.task == 0:  # once for the sink
            warn_of_cached_names(directory)
        self._staging.enter()

    def recover(self, prefixes: Mapping[str, int]) -> list[Entry]:
        """See ``CommittingWriter.recover``. Entries are those of all tasks, whose number may have changed."""
        fenced = self._staging.shut_out()
        entries: list[Entry] = []
        gone: list[str] = []
        finished = False
        for path in sorted(self._manifests.iterdir()):
            match = _NAME.fullmatch(path.name)
            manifest = self._read(path) if match else None
            if match is None or manifest is None:
                continue
            task, epoch = int(match[1]), int(match[2])
            self._staging.check([Place(task, epoch, False, path)])
            entries.extend(entry for entry in manifest.entries if entry.offset >= prefixes.get(entry.split, 0))
            if self._staging.owns(task):
                if manifest.data is not None and self._finish(manifest.data, task, epoch):
                    finished = True
                elif manifest.data is not None:
                    gone.append(manifest.data)
                self._kept[path] = manifest.newest()
        if finished:
            sync_directory(self._directory)
        if gone:  # a crash cannot cause this
            _log.warning(
                "committed files are gone: directory=%s files=%d first=%s: their rows do not come again; "
                "has a reader moved or deleted them, such as one with clean=True?",
                self._directory,
                len(gone),
                gone[0],
            )
        self._staging.sweep(fenced)
        return entries

    def commit(self, data: bytes | memoryview | None, rows: int, entries: Sequence[Entry]) -> None:
        """Make ``data``, which holds ``rows`` rows, visible atomically with its entries."""
        if self._broken:
            raise TailraceError(
                f"writer is broken by a failed commit: directory={self._directory}, did the runtime open it again?"
            )
        self._broken = True  # after a failure only a successor can tell whether the commit took effect
        self._staging.check(self._staging.places())
        try:
            self._commit(data, rows, entries)
        except FileNotFoundError as error:
            if self._staging.path.is_dir():
                raise
            raise self._staging.fenced("found=no directory of ours") from error
        self._broken = False

    def forget(self, prefixes: Mapping[str, int]) -> None:
        """Delete manifests whose entries are all below the prefixes."""
        below = [
            path
            for path, newest in self._kept.items()
            if all(offset < prefixes.get(split, 0) for split, offset in newest.items())
        ]
        for path in below:
            path.unlink(missing_ok=True)
            del self._kept[path]

    def close(self) -> None:
        if not self._broken:
            self._staging.clear()

    def _commit(self, data: bytes | memoryview | None, rows: int, entries: Sequence[Entry]) -> None:
        stem = f"{self._staging.path.name}-{self._number:06d}"
        self._number += 1
        name = None if data is None else f"part-{self._name}-{stem}.{self._extension}"
        manifest = Manifest(self._job_id, name, rows, entries)
        staged = self._staging.path / f"{stem}{MANIFEST}"
        if data is not None and name is not None:
            write_file(self._staging.path / name, data)
        write_file(staged, encode(manifest))
        sync_directory(self._staging.path)
        committed = self._manifests / staged.name
        staged.rename(committed)
        sync_directory(self._manifests)
        if name is not None:
            (self._staging.path / name).rename(self._directory / name)
            sync_directory(self._directory)
        self._kept[committed] = manifest.newest()

    def _read(self, path: Path) -> Manifest | None:
        try:
            manifest = decode(path.read_bytes(), path)
        except FileNotFoundError:  # its task has just deleted it, so it is below the prefixes
            return None
        if manifest.job_id != self._job_id:
            raise TailraceError(
                f"directory holds the output of another job: file={path} job={manifest.job_id} ours={self._job_id}, "
                "do two jobs with similar ids write to one directory?"
            )
        return manifest

    def _finish(self, data: str, task: int, epoch: int) -> bool:
        """Move a committed data file to its place, if its writer has not. False if it was removed after its commit."""
        target = self._directory / data
        if target.exists():
            return True  # its writer may have died before syncing it
        for place in self._staging.places():
            if place.fenced and (place.task, place.epoch) == (task, epoch):
                try:
                    (place.path / data).rename(target)
                    return True
                except FileNotFoundError:  # not in this one
                    continue
        return target.exists()


def absolute(path: str | Path) -> Path:
    """The path relative to the driver's working directory, made absolute: workers may have another one."""
    if not isinstance(path, str | Path) or not str(path):
        raise OptionError(
            f"not a folder: path={shorten(path)} type={type(path).__name__}, did you mean a string like 'out'?"
        )
    refuse_uri("path", path)
    return Path(path).expanduser().absolute()


def home_of(directory: Path, operator: str, job_id: str) -> Path:
    """The folder of what a sink needs for its recovery."""
    return directory / "_tailrace" / _name_of(operator, job_id)


def part_pattern(operator: str, job_id: str, extension: str) -> str:
    """A glob pattern for the names of a sink's data files: those of this job, and of no other in the folder."""
    return f"part-{_name_of(operator, job_id)}-{'[0-9]' * 5}-e*-*.{extension}"


def _name_of(operator: str, job_id: str) -> str:
    return f"{_file_name(operator)}-{_job_name(job_id)}"


def _file_name(operator: str) -> str:
    """An operator's name as part of a file name. A name that has to be changed gets a hash, so that it stays unique."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", operator)[:_LONGEST_NAME]
    return name if name == operator else f"{name}~{sha256(operator.encode()).hexdigest()[:8]}"


def _job_name(job_id: str) -> str:
    return job_id[:8] if re.fullmatch(r"[0-9a-f]{8,}", job_id) else sha256(job_id.encode()).hexdigest()[:8]


def check_roll(**options: float) -> None:
    """Raise OptionError for sizes and times that would commit every row, or none."""
    for name, value in options.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise OptionError(
                f"option is not a number: {name}={value!r} type={type(value).__name__}, did you mean to leave it out?"
            )
        if not (isfinite(value) and value > 0):
            raise OptionError(f"option must be positive: {name}={value}, did you mean to leave it out?")
