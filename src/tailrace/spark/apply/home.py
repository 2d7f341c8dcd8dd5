"""The folder of one ``apply``: the rows that go in, what the run has done, and the rows that came out.

::

    about.json    the topology, the columns in and out, and whether all is done
    lock          held by the driver that works here
    rows/         the rows of the DataFrame, until all is done
    run/          the checkpoint of the run, until all is done
    output/       the result

A temporary one has neither ``lock`` nor ``run``, and is deleted when the driver ends: see ``temporary_folders.py``.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from tailrace.errors import OptionError, shorten
from tailrace.runtime.connectors.commits.disk import make_directory, sync_directory, write_file
from tailrace.runtime.connectors.commits.files import absolute
from tailrace.runtime.driver.folder_lock import lock_folder
from tailrace.spark.temporary_folders import temporary_folder

_PREFIX = "tailrace-apply-"
_ABOUT = "about.json"
_KIND = "tailrace apply"
_VERSION = 1
_BEFORE = {"lock", f"{_ABOUT}.new"}  # what a driver may have left that died before it described the folder


class Home:
    """The folder of one ``apply``. A lasting one is locked by it until it is complete."""

    def __init__(self, path: Path, about: dict[str, Any], *, lasting: bool, lock: IO[bytes] | None = None) -> None:
        self.path = path
        self.about = about
        self.lasting = lasting
        self.rows = path / "rows"
        self.output = path / "output"
        self.run = path / "run" if lasting else None
        self._lock = lock

    @property
    def complete(self) -> bool:
        """Whether the result is there already."""
        return bool(self.about.get("complete"))

    def finish(self) -> None:
        """The run has ended, and all of the result is in ``output``: nothing else is needed any more."""
        if not self.complete:
            self.about["complete"] = True
            _write_about(self.path, self.about)
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


def temporary_home(
    folder: str | os.PathLike[str] | None, topology: str, columns: Mapping[str, str], schema: Mapping[str, str]
) -> Home:
    """A new folder, below a given one or where this machine has temporary files, which lasts as long as the driver."""
    path = temporary_folder(_PREFIX, None if folder is None else _made(absolute(Path(folder)), "folder"))
    home = Home(path, _about(topology, columns, schema), lasting=False)
    _write_about(path, home.about)
    home.output.mkdir()
    return home


def finished_home(
    checkpoint: str | Path, topology: str, columns: Mapping[str, str], schema: Mapping[str, str]
) -> Home | None:
    """The folder, if it holds the result of this topology for a DataFrame of these columns. Makes nothing.

    Raises OptionError if it holds something else. It needs no lock: what is complete does not change.
    """
    path = absolute(checkpoint)
    known = _read_about(path)
    if known is None:
        return None
    _check_same(path, known, _about(topology, columns, schema))
    home = Home(path, known, lasting=True)
    return home if home.complete else None


def lasting_home(
    checkpoint: str | os.PathLike[str], topology: str, columns: Mapping[str, str], schema: Mapping[str, str]
) -> Home:
    """The folder that holds, or will hold, the result of this topology for a DataFrame of these columns.

    Raises OptionError if it holds something else, or another driver works there.
    """
    path = _made(absolute(Path(checkpoint)), "checkpoint")
    lock = lock_folder(path, f"checkpoint is in use: checkpoint={path}; does another apply still go on?")
    try:
        about = _about(topology, columns, schema)
        known = _read_about(path)
        if known is None:
            _check_empty(path)
            _write_about(path, about)
        else:
            _check_same(path, known, about)
        make_directory(path / "output")
        return Home(path, known or about, lasting=True, lock=lock)
    except BaseException:
        lock.close()
        raise


def _about(topology: str, columns: Mapping[str, str], schema: Mapping[str, str]) -> dict[str, Any]:
    return {"kind": _KIND, "version": _VERSION, "topology": topology, "columns": columns, "schema": schema}


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
    except (FileNotFoundError, NotADirectoryError):
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
