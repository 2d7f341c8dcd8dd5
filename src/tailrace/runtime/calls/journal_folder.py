"""The folder of a journal: whose it is, who may drop results from it, and how it is removed.

``journal.json`` names the owner, a topology or a function, so that results of one are never dropped by another. Files
that are not Tailrace's are left alone.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tailrace.errors import OptionError

SUFFIX = ".results"
VERSION = 1
_FORMAT = "tailrace-journal"
_OWNER_FILE = "journal.json"
_LOCK_FILE = "journal.lock"
UNFINISHED = ".new"  # ends the name of a file that is not in its place yet


def topology_owner(name: str) -> str:
    """The owner of the journals of a topology."""
    return f"topology {name}"


def prepare_journal(folder: str | os.PathLike[str], owner: str) -> Path:
    """Make a folder the journal of ``owner``, or find that it is. Returns its absolute path.

    Any number of processes may do that at once. Raises OptionError if it is no folder, cannot be written to, or is the
    journal of another owner.

    Args:
        folder: where results are kept.
        owner: whose they are: ``"topology NAME"`` or ``"function NAME"``.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> prepare_journal(folder, "function geocode") == Path(folder)
        True
        >>> prepare_journal(folder, "function classify")
        Traceback (most recent call last):
        tailrace.errors.OptionError: journal belongs to something else: journal=... found='function geocode'...
    """
    path = Path(folder).absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(13, "permission denied", str(path))
        found = _owner_of(path) or _claim(path, owner)
    except OSError as error:
        raise OptionError(
            f"not a folder to write to: journal={path} cause={error}: is it a file, or does it belong to someone else?"
        ) from error
    if found != owner:
        raise OptionError(
            f"journal belongs to something else: journal={path} owner={owner!r} found={found!r}: "
            "could this one have a folder of its own?"
        )
    return path


def _owner_of(folder: Path) -> str | None:
    path = folder / _OWNER_FILE
    try:
        stored = json.loads(path.read_bytes())
        if not isinstance(stored, Mapping) or stored.get("format") != _FORMAT:
            raise ValueError("it says nothing of a journal")
        if stored.get("version") != VERSION:
            raise ValueError(f"version={stored.get('version')!r} known={VERSION}")
        return str(stored["owner"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError) as error:
        raise OptionError(
            f"journal cannot be read: file={path} cause={error}: is it one of ours, of this version?"
        ) from error


def _claim(folder: Path, owner: str) -> str:
    """Write the owner down, unless another process was faster. Returns who is the owner then."""
    content: dict[str, Any] = {"format": _FORMAT, "version": VERSION, "owner": owner}
    fresh = folder / f"{_OWNER_FILE}.{os.getpid()}-{os.urandom(4).hex()}{UNFINISHED}"
    fresh.write_text(json.dumps(content))
    try:
        os.link(fresh, folder / _OWNER_FILE)  # unlike a rename, it fails if the name is there
    except FileExistsError:
        pass
    finally:
        fresh.unlink()
    return _owner_of(folder) or owner


class JournalHold:
    """One run's right to drop results from a journal. It ends with ``release``, or with the process.

    Without it two runs in one folder would drop each other's results.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = os.open(folder / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise OptionError(
                f"journal is in use: journal={folder}: does another run still go on? "
                "Two runs can share one only with keep=True"
            ) from None

    def release(self, *, remove: bool) -> None:
        """Give the folder up. ``remove``: no result in it is needed any more."""
        if remove:
            remove_journal(self._folder)
        os.close(self._lock)


def remove_journal(folder: Path) -> None:
    """Remove what Tailrace has written to a folder, and the folder itself if nothing else is in it."""
    with suppress(OSError):  # what cannot be removed is found, and used or dropped, by the next run
        for path in list(folder.iterdir()):
            if path.suffix in (SUFFIX, UNFINISHED) or path.name in (_OWNER_FILE, _LOCK_FILE):
                path.unlink(missing_ok=True)
        folder.rmdir()
