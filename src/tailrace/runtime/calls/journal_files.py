"""A journal in files: the results of calls, kept so that no call is made again when its tuple or row comes again.

Each process that keeps results appends them to files of its own, each with one write, which survives the death of the
process. Nothing is synced: a power cut may lose the last results, and their calls are then made again. Reading is in
``journal_index.py``, the bytes in ``calls/journal_records.py``.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tailrace.calls.journal_keys import KEY_BYTES, Place
from tailrace.calls.journal_records import BEGUN, GIVEN_UP, MAGIC, encode_mark, encode_record
from tailrace.errors import TailraceError, shorten
from tailrace.runtime.calls.journal_folder import SUFFIX, UNFINISHED, prepare_journal
from tailrace.runtime.calls.journal_index import JournalIndex, is_below
from tailrace.runtime.links.frames import encode

LARGEST_RESULT = 256 << 20
"""Bytes, as for a tuple on a link: what is larger belongs into a file or a table, and its name into the result."""

SEGMENT_BYTES = 1 << 20
"""Results that will be dropped go to files of about this size, because a file is dropped as a whole."""

IDLE_INDEXES = 4
"""Indexes without a user that a process keeps: its next task, with the same folder, need not read all files again."""

_LONGEST_NAME = 100  # characters of a writer's name in a file name, which may have 255 bytes in all

_indexes: dict[Path, JournalIndex] = {}  # of this process, by folder, in order of use
_indexes_lock = threading.Lock()


def open_journal(folder: Path, writer: str, *, owner: str, keep: bool = True) -> FileJournal:
    """Open a journal for one task.

    Args:
        folder: where results are kept. Any number of tasks and processes may use it at once.
        writer: names the task in file names and errors, such as ``"score-3-e17"``.
        owner: whose journal it is, as for ``prepare_journal``.
        keep: whether results stay for good. If not, ``drop_below`` removes them.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> journal = open_journal(folder, "geocode-0", owner="function geocode")
        >>> journal.keep(b"sixteen bytes...", {"city": "Roma"})
        >>> open_journal(folder, "geocode-1", owner="function geocode").find(b"sixteen bytes...")
        ({'city': 'Roma'},)
        >>> journal.find(b"another 16 bytes") is None
        True
    """
    path = prepare_journal(folder, owner)
    return FileJournal(_take_index(path), writer, keep=keep)


class FileJournal:
    """The journal of one task: it appends to a file of its own, and finds what is in the files of all."""

    def __init__(self, index: JournalIndex, writer: str, *, keep: bool) -> None:
        self._index = index
        self._writer = writer
        self._keep = keep
        self._prefixes: dict[int, int] = {}  # by split; of this run, which may begin below those of an earlier one
        self._descriptor: int | None = None  # of the file that results are appended to
        self._path: Path | None = None
        self._written = 0
        self._begun: set[bytes] = set()  # keys of the calls that are under way
        self._closed = False

    def find(self, key: bytes) -> tuple[Any] | None:
        """The result that is kept under this key, in a tuple of one, or None."""
        encoded = self._index.find(key[:KEY_BYTES])
        if encoded is None:
            return None
        try:
            return (pickle.loads(encoded),)
        except Exception as error:  # of the class of the result, which may be gone
            raise TailraceError(
                f"a result that was kept cannot be read: journal={self._index.folder} writer={self._writer} "
                f"cause={type(error).__name__}: {error}: was its class moved or changed since? "
                "Without the folder all calls are made again"
            ) from error

    def begin(self, key: bytes) -> bool:
        """Say that the call under this key is made now. False: another one is, here or in another living process.

        Two that begin at the same moment may both get False. The one that got True calls ``keep`` or ``give_up``.
        """
        digest = key[:KEY_BYTES]
        if digest in self._begun or self._index.under_way(digest):
            return False
        self._append(encode_mark(digest, BEGUN))
        self._begun.add(digest)
        # A process that begins from now on sees the mark. One that began a moment ago may not have seen it.
        if self._index.under_way(digest, besides=self._path):
            self.give_up(key)
            return False
        return True

    def give_up(self, key: bytes) -> None:
        """The call under this key has ended without a result. Another may begin."""
        self._begun.discard(key[:KEY_BYTES])
        self._append(encode_mark(key, GIVEN_UP))

    def keep(self, key: bytes, result: Any) -> None:
        """Keep a result. When this returns, it survives the death of the process."""
        identity = key[:KEY_BYTES] if self._keep else key  # without a place it is never dropped
        record = encode_record(identity, self._encoded(result))
        self._begun.discard(key[:KEY_BYTES])
        self._append(record)

    def drop_below(self, prefixes: Mapping[int, int]) -> None:
        """Drop results below these offsets, by split: all that followed from them is durable."""
        if not self._keep:
            for split, offset in prefixes.items():
                self._prefixes[split] = max(offset, self._prefixes.get(split, 0))
            self._index.drop_below(self._prefixes)

    def is_durable(self, place: Place) -> bool:
        """Whether all that follows from this place is durable, so that no result of it is needed."""
        return is_below(place, self._prefixes)

    def close(self) -> None:
        """Keep no more. Of results that may be dropped, drop those that are below the last prefixes."""
        if self._closed:
            return
        self._closed = True
        self._end_file()
        self._index.drop_below(self._prefixes)
        _give_back_index(self._index)

    def _encoded(self, result: Any) -> bytes:
        try:
            encoded = encode(result)
        except Exception as error:
            raise self._not_kept(
                result, f"{type(error).__name__}: {error}", "could the function return plain values?"
            ) from error
        if len(encoded) > LARGEST_RESULT:
            why = f"bytes={len(encoded)} limit={LARGEST_RESULT}"
            raise self._not_kept(result, why, "could it be stored elsewhere, and its place be the result?")
        return encoded

    def _not_kept(self, result: Any, cause: str, question: str) -> TailraceError:
        return TailraceError(
            f"a result cannot be kept, and its call has been made: journal={self._index.folder} writer={self._writer} "
            f"result={shorten(result)} cause={cause}: {question}"
        )

    def _append(self, record: bytes) -> None:
        try:
            full = not self._keep and self._written >= SEGMENT_BYTES
            if self._descriptor is None or full:
                self._begin_file(record)
            else:
                self._write(self._descriptor, record)
        except OSError as error:
            self._end_file()  # what is torn stays at the end of a file
            raise TailraceError(
                f"a result cannot be kept, and its call has been made: journal={self._index.folder} "
                f"writer={self._writer} bytes={len(record)} cause={error}: is the disk full, or the folder gone?"
            ) from error

    def _begin_file(self, record: bytes) -> None:
        """Go on in a new file. It gets its name when it is locked: by that readers know that its writer lives.

        It repeats the marks of calls that are under way, as those of the last file end with its lock.
        """
        name = re.sub(r"[^\w.-]", "_", self._writer)[:_LONGEST_NAME] + f"-{os.urandom(6).hex()}{SUFFIX}"
        path = self._index.folder / name
        fresh = path.with_name(name + UNFINISHED)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o666)
        last, self._descriptor, self._path, self._written = self._descriptor, descriptor, path, 0
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # this file system has no locks: readers find none either, and take every writer for alive
            pass
        try:
            self._write(descriptor, b"".join((MAGIC, *(encode_mark(key, BEGUN) for key in self._begun), record)))
            fresh.rename(path)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise
        finally:
            if last is not None:
                os.close(last)

    def _write(self, descriptor: int, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        self._written += len(data)

    def _end_file(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _take_index(folder: Path) -> JournalIndex:
    """The index that this process has for a folder. A folder that was removed and made again is another one."""
    with _indexes_lock:
        index = _indexes.pop(folder, None)
        if index is None or index.inode != folder.stat().st_ino:
            index = JournalIndex(folder)
        index.users += 1
        _indexes[folder] = index
        return index


def _give_back_index(index: JournalIndex) -> None:
    with _indexes_lock:
        index.users -= 1
        if not index.users and _indexes.get(index.folder) is not index:
            index.close()
        idle = [other for other in _indexes.values() if not other.users]
        for other in idle[: max(0, len(idle) - IDLE_INDEXES)]:
            del _indexes[other.folder]
            other.close()
