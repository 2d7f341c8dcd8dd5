"""Temporary folders of this driver, on this machine or below a folder that other drivers use too.

All that a driver has in one place are in one folder, which it locks, and deletes when it ends. If it was killed, the
next driver that looks for a place there finds the lock released. A process id would not do: it means nothing in another
container, or on another host, that shares the place.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
import uuid
from pathlib import Path
from typing import IO, NamedTuple

from tailrace.runtime.driver.folder_lock import is_abandoned, lock_new


class _Place(NamedTuple):
    """Where this driver has its folders of one kind."""

    path: Path
    lock: IO[bytes]


_places: dict[tuple[int, str, Path], _Place] = {}  # by process, because a child that is forked has none yet
_making = threading.Lock()


def temporary_folder(prefix: str, shared: Path | None = None) -> Path:
    """A new folder that lasts as long as the driver. Those of drivers that were killed are deleted before.

    Args:
        prefix: begins the names of what is made for this purpose.
        shared: where. It exists, and executors may run as another user: they can write to what is made there as they
            can to the folder itself. ``None``: where this machine has temporary files, and nobody else may look.
    """
    where = Path(tempfile.gettempdir()) if shared is None else shared
    key = (os.getpid(), prefix, where)
    with _making:
        if key not in _places or not _places[key].path.is_dir():
            _sweep(where, prefix)
            _places[key] = _new_place(where, prefix, private=shared is None)
    folder = _places[key].path / uuid.uuid4().hex[:12]
    folder.mkdir()
    return folder


def _new_place(where: Path, prefix: str, private: bool) -> _Place:
    if private:
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=where))
    else:
        path = where / f"{prefix}{uuid.uuid4().hex[:12]}"
        path.mkdir()
    atexit.register(_remove, path, os.getpid())
    return _Place(path, lock_new(path))


def _sweep(where: Path, prefix: str) -> None:
    """Delete the folders of drivers that were killed."""
    for path in where.glob(f"{prefix}*"):
        if is_abandoned(path):
            shutil.rmtree(path, ignore_errors=True)


def _remove(path: Path, pid: int) -> None:
    if os.getpid() == pid:  # not in a child that was forked from the driver
        shutil.rmtree(path, ignore_errors=True)
