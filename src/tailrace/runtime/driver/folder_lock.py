"""A lock file keeps a second driver out of a folder. The system releases it when its holder's process ends."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import IO

from tailrace.errors import OptionError

_NAME = "lock"


def lock_folder(folder: Path, busy: str) -> IO[bytes]:
    """Take the lock of a folder until the file is closed. Raises OptionError with the text ``busy`` if it is taken."""
    lock = os.fdopen(os.open(folder / _NAME, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666), "rb")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise OptionError(busy) from None
    return lock


def lock_new(folder: Path) -> IO[bytes]:
    """Take the lock of a folder that was just made. A process that sees an unlocked lock file in it may delete it."""
    draft = folder / f"{_NAME}.new"
    lock = draft.open("xb")
    with suppress(OSError):  # a file system without locks: it will not be found abandoned
        fcntl.flock(lock, fcntl.LOCK_EX)
    draft.rename(folder / _NAME)
    return lock


def is_abandoned(folder: Path) -> bool:
    """Whether a folder has been locked, and its holder's process has ended."""
    try:
        with (folder / _NAME).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # there is none yet, it is held, or the file system knows no locks
        return False
    return True
