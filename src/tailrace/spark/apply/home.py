"""The folder of one ``apply``: the rows that go in, what the run has done, and the rows that came out.

::

    about.json    the topology, the columns in and out, and whether all is done
    lock          held by the driver that works here
    rows/         the rows of the DataFrame, until all is done
    run/          the checkpoint of the run, until all is done
    output/       the result

A temporary one has only ``rows`` and ``output``. All that a driver has in one place are in one folder, which it locks
and deletes when it ends. If it was killed, the next driver that looks for a place there finds the lock released.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

from tailrace.errors import OptionError, shorten
from tailrace.runtime.connectors.commits.disk import make_directory, sync_directory, write_file
from tailrace.runtime.connectors.commits.files import absolute
from tailrace.runtime.driver.folder_lock import is_abandoned, lock_folder, lock_new

_PREFIX = "tailrace-apply-"
_ABOUT = "about.json"
_KIND = "tailrace apply"
_VERSION = 1
_BEFORE = {"lock", f"{_ABOUT}.new"}  # what a driver may have left that died before it described the folder


class Home:
    """The folder of one ``apply``. A lasting one is locked by it."""

    def __init__(self, path: Path, lock: IO[bytes] | None = None, about: dict[str, Any] | None = None) -> None:
        self.path = path
        self.rows = path / "rows"
        self.output = path / "output"
        self.run = path / "run" if about is not None else None
        self._about = about
        self._lock = lock

    @property
    def lasting(self) -> bool:
        return self._about is not None

    @property
    def complete(self) -> bool:
        """Whether the result is there already."""
        return self._about is not None and bool(self._about.get("complete"))

    def finish(self) -> None:
        """The run has ended, and all of the result is in ``output``: nothing else is needed any more."""
        if self._about is not None and not self.complete:
            self._about["complete"] = True
            _write_about(self.path, self._about)
        shutil.rmtree(self.rows, ignore_errors=True)
        shutil.rmtree(self.path / "run", ignore_errors=True)
        self._unlock()

    def give_up(self) -> None:
        """The run has ended without a result. What can be resumed stays."""
        if not self.lasting:
            shutil.rmtree(self.path, ignore_errors=True)
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()


class _Place(NamedTuple):
    """Where this driver has its temporary folders, below a folder that others use too."""

    path: Path
    lock: IO[bytes]


_places: dict[tuple[int, Path], _Place] = {}  # by process, because a child that is forked has none yet
_making = threading.Lock()


def temporary_home(folder: str | os.PathLike[str] | None) -> Home:
    """A new folder, below a given one or where this machine has temporary files, which lasts as long as the driver."""
    shared = Path(tempfile.gettempdir()) if folder is None else _made(absolute(Path(folder)), "folder")
    key = (os.getpid(), shared)
    with _making:
        if key not in _places or not _places[key].path.is_dir():
            _sweep(shared)
            _places[key] = _new_place(shared, private=folder is None)
    home = Home(_places[key].path / uuid.uuid4().hex[:12])
    home.path.mkdir()
    home.output.mkdir()
    return home


def _new_place(shared: Path, private: bool) -> _Place:
    if private:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=shared))
    else:  # executors may run as another user, and write to it as they do to the folder that was given
        path = shared / f"{_PREFIX}{uuid.uuid4().hex[:12]}"
        path.mkdir()
    atexit.register(_remove, path, os.getpid())
    return _Place(path, lock_new(path))


def lasting_home(
    checkpoint: str | os.PathLike[str], topology: str, columns: Mapping[str, str], schema: Mapping[str, str]
) -> Home:
    """The folder that holds, or will hold, the result of this topology for a DataFrame of these columns.

    Raises OptionError if it holds something else, or another driver works there.
    """
    path = _made(absolute(Path(checkpoint)), "checkpoint")
    lock = lock_folder(path, f"checkpoint is in use: checkpoint={path}; does another apply still go on?")
    try:
        about = {"kind": _KIND, "version": _VERSION, "topology": topology, "columns": columns, "schema": schema}
        known = _read_about(path)
        if known is None:
            _check_empty(path)
            _write_about(path, about)
        else:
            _check_same(path, known, about)
        make_directory(path / "output")
        return Home(path, lock, known or about)
    except BaseException:
        lock.close()
        raise


def _made(path: Path, what: str) -> Path:
    try:
        make_directory(path)
    except OSError as error:
        raise OptionError(f"not a folder to write to: {what}={path} cause={error}") from error
    return path


def _check_empty(path: Path) -> None:
    others = sorted({entry.name for entry in path.iterdir()} - _BEFORE)
    if others:
        raise OptionError(
            f"folder holds something else: checkpoint={path} found={others[:3]}: did you mean a new folder in it?"
        )


def _check_same(path: Path, known: Mapping[str, Any], about: Mapping[str, Any]) -> None:
    for name, what in (
        ("topology", "another topology"),
        ("columns", "another DataFrame"),
        ("schema", "another schema"),
    ):
        if known[name] != about[name]:
            raise OptionError(
                f"checkpoint belongs to {what}: checkpoint={path} {name}={shorten(about[name])} "
                f"found={shorten(known[name])}: did you mean another folder?"
            )


def _read_about(path: Path) -> dict[str, Any] | None:
    try:
        known = json.loads((path / _ABOUT).read_text("utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise OptionError(
            f"checkpoint cannot be read: file={path / _ABOUT} cause={error}: is it one of ours?"
        ) from error
    if not isinstance(known, dict) or (known.get("kind"), known.get("version")) != (_KIND, _VERSION):
        raise OptionError(f"checkpoint cannot be read: file={path / _ABOUT} found={shorten(known)}: is it one of ours?")
    return known


def _write_about(path: Path, about: Mapping[str, Any]) -> None:
    fresh = path / f"{_ABOUT}.new"
    write_file(fresh, json.dumps(about, indent=2).encode())
    fresh.replace(path / _ABOUT)
    sync_directory(path)


def _sweep(place: Path) -> None:
    """Delete the folders of drivers that were killed."""
    for path in place.glob(f"{_PREFIX}*"):
        if is_abandoned(path):
            shutil.rmtree(path, ignore_errors=True)


def _remove(path: Path, pid: int) -> None:
    if os.getpid() == pid:  # not in a child that was forked from the driver
        shutil.rmtree(path, ignore_errors=True)
