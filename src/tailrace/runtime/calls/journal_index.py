"""Where the results of a journal are: one index for each process and folder, which all its tasks share.

Before the index says that a result is missing, it looks whether a file has appeared or grown, so that what any process
has kept is found by every other at once. A file is looked at again as long as its writer lives, which shows in the lock
that the writer holds on it.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tailrace.calls.journal_keys import Place
from tailrace.calls.journal_records import BEGUN, HEADER_BYTES, MAGIC, NOWHERE, Damaged, Header, decode_header, scan
from tailrace.errors import TailraceError
from tailrace.runtime.calls.journal_folder import SUFFIX

_log = logging.getLogger(__name__)

_CHUNK = 1 << 18
_POSITION_BITS = 44  # of a location: the rest is the number of the file. 16 TiB is more than a file may have
_LOOK_FOR_DEAD_S = 1.0  # a writer that has ended costs no more than a second of looking at its file
_EXHAUSTED = (errno.EMFILE, errno.ENFILE)
_COARSE_NS = 2_000_000_000  # a folder that has changed within this time may change again without a new time stamp


def is_below(place: Place, prefixes: Mapping[int, int]) -> bool:
    """Whether the results of this place are needed no more: all that follows from it is durable downstream."""
    prefix = prefixes.get(place.split)
    return prefix is not None and NOWHERE.offset < place.offset < prefix


def _refuse_exhausted(error: OSError, path: Path) -> None:
    """Raise TailraceError if no more files can be opened: what they hold must not be computed again."""
    if error.errno in _EXHAUSTED:
        raise TailraceError(
            f"a file of a journal cannot be read, as this process has too many files open: file={path} cause={error}: "
            "does something leave files open, or could ulimit -n be higher?"
        ) from error


class _File:
    """One file of results, as far as it has been read."""

    def __init__(self, path: Path, number: int) -> None:
        self.path = path
        self.number = number
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe would wait for a writer
        if not stat.S_ISREG(os.fstat(self.descriptor).st_mode):
            self.close()
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        self.live = True
        self.foreign = False
        self.read = 0  # bytes
        self.records = 0
        self.newest: dict[int, int] = {}  # by split: the highest offset

    def grown(self) -> list[tuple[Header, int]]:
        """Read what has been appended: the headers, each with its position."""
        size = os.fstat(self.descriptor).st_size
        found: list[tuple[Header, int]] = []
        if self.foreign or size < self.read + HEADER_BYTES:
            return found
        if not self.read:
            if os.pread(self.descriptor, len(MAGIC), 0) != MAGIC:
                self.foreign = True
                _log.warning("not a file of a journal: file=%s: does something else write to the folder?", self.path)
                return found
            self.read = len(MAGIC)
        with suppress(Damaged):  # ``ended`` reports it, when it is certain that it is no write under way
            began = -1
            while self.read > began:
                began = self.read
                for position, header in scan(os.pread(self.descriptor, _CHUNK, self.read), self.read, size):
                    found.append((header, position))
                    if not header.is_mark:
                        self._count(header)
                    self.read = position + HEADER_BYTES + header.length
        return found

    def _count(self, header: Header) -> None:
        split, offset = header.place
        self.records += 1
        self.newest[split] = max(offset, self.newest.get(split, NOWHERE.offset))

    def is_below(self, prefixes: Mapping[int, int]) -> bool:
        """Whether nothing will be added to it, and all its results are below these prefixes."""
        ours = not self.live and self.read > 0  # else it is none of a journal
        return ours and all(is_below(Place(split, offset), prefixes) for split, offset in self.newest.items())

    def writer_lives(self) -> bool:
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:  # it has the lock, or this file system has none
            return True
        fcntl.flock(self.descriptor, fcntl.LOCK_UN)
        return False

    def ended(self) -> None:
        """Its writer is gone, and all of it has been read: keep no descriptor, as there may be thousands of files."""
        self.live = False
        left = os.fstat(self.descriptor).st_size - self.read
        if self.read and left >= HEADER_BYTES and decode_header(self._bytes(self.read, HEADER_BYTES)) is None:
            _log.warning(
                "a file of a journal is damaged, and its other results will be computed again: "
                "file=%s position=%d bytes=%d: has the disk failed, or did something else write to it?",
                self.path,
                self.read,
                left,
            )
        self.close()

    def result(self, key: bytes, position: int) -> bytes | None:
        """The result of the record at this position, or None if it is not there as it was written."""
        if self.live:
            return self._result(key, position)
        try:
            self.descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:  # removed since
            _refuse_exhausted(error, self.path)
            return None
        try:
            return self._result(key, position)
        finally:
            self.close()

    def _result(self, key: bytes, position: int) -> bytes | None:
        data = self._bytes(position, HEADER_BYTES)
        header = decode_header(data) if len(data) == HEADER_BYTES else None
        if header is None or header.key != key:
            return None
        result = self._bytes(position + HEADER_BYTES, header.length)
        return result if header.matches(result) else None

    def _bytes(self, position: int, length: int) -> bytes:
        parts = []
        while length and (part := os.pread(self.descriptor, length, position)):
            parts.append(part)
            position, length = position + len(part), length - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class JournalIndex:
    """Finds results by key in all files of a folder. Any thread may use it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.inode = folder.stat().st_ino
        self.users = 0  # tasks of this process that have it open
        self._lock = threading.Lock()
        self._names: set[str] = set()  # of all files seen so far
        self._files: dict[int, _File] = {}
        self._live: list[_File] = []
        self._where: dict[bytes, int] = {}  # key -> location
        self._begun: dict[bytes, set[int]] = {}  # key -> files of those that make this call now
        self._dropped = 0  # records in ``_where`` whose files are gone
        self._changed_ns = -1  # the folder's own time stamp, when its names were last read; -1: read them again
        self._looked_s = 0.0  # when the locks of writers were last tried

    def find(self, key: bytes) -> bytes | None:
        """The bytes that are kept under this key."""
        with self._lock:
            result = self._look_up(key)
            if result is None:
                self._refresh()
                result = self._look_up(key)
            return result

    def under_way(self, key: bytes, besides: Path | None = None) -> bool:
        """Whether a living process makes this call now, as a file other than ``besides`` says."""
        with self._lock:
            self._refresh()
            found = [self._files.get(number) for number in self._begun.get(key, ())]
            return any(file is not None and file.live and file.path != besides for file in found)

    def drop_below(self, prefixes: Mapping[int, int]) -> None:
        """Remove the files all of whose results are below these prefixes (offset by split).

        The file that a living process writes to stays.
        """
        with self._lock:
            self._refresh(look_for_dead=True)
            for file in [file for file in self._files.values() if file.is_below(prefixes)]:
                with suppress(OSError):  # it has been removed, or may not be: then it stays for the next run
                    file.path.unlink()
                del self._files[file.number]
                self._dropped += file.records
            if self._dropped > len(self._where) // 2:
                self._where = {key: at for key, at in self._where.items() if at >> _POSITION_BITS in self._files}
                self._dropped = 0

    def __len__(self) -> int:
        return len(self._where) - self._dropped

    def close(self) -> None:
        with self._lock:
            for file in self._live:
                file.close()

    def _look_up(self, key: bytes) -> bytes | None:
        location = self._where.get(key)
        if location is None:
            return None
        file = self._files.get(location >> _POSITION_BITS)
        return None if file is None else file.result(key, location & ((1 << _POSITION_BITS) - 1))

    def _refresh(self, *, look_for_dead: bool = False) -> None:
        for name in self._new_names():
            self._add(name)
        now_s = time.monotonic()
        dead: list[_File] = []
        if look_for_dead or now_s - self._looked_s > _LOOK_FOR_DEAD_S:
            self._looked_s = now_s
            dead = [file for file in self._live if not file.writer_lives()]  # before they are read for the last time
        for file in self._live:
            self._read(file)
        for file in dead:
            file.ended()
        if dead:
            self._live = [file for file in self._live if file.live]
            gone = {file.number for file in dead}
            self._begun = {key: left for key, files in self._begun.items() if (left := files - gone)}

    def _read(self, file: _File) -> None:
        location = file.number << _POSITION_BITS
        for header, position in file.grown():
            if not header.is_mark:
                self._where[header.key] = location + position
            if header.is_mark and header.checksum == BEGUN:
                self._begun.setdefault(header.key, set()).add(file.number)
            elif files := self._begun.get(header.key):
                files.discard(file.number)
                if not files:
                    del self._begun[header.key]

    def _new_names(self) -> list[str]:
        try:
            changed_ns = self.folder.stat().st_mtime_ns
            if changed_ns == self._changed_ns:
                return []
            with os.scandir(self.folder) as entries:
                names = [entry.name for entry in entries]
        except FileNotFoundError:  # removed by the user, or by the run that has ended
            return []
        except OSError as error:
            _refuse_exhausted(error, self.folder)
            raise
        self._changed_ns = changed_ns if abs(time.time_ns() - changed_ns) > _COARSE_NS else -1
        return [name for name in names if name.endswith(SUFFIX) and name not in self._names]

    def _add(self, name: str) -> None:
        """Take a file in. If its writer is gone, read it and close it before the next: there may be thousands."""
        path = self.folder / name
        try:
            file = _File(path, len(self._names) + 1)
        except FileNotFoundError:  # dropped by another process
            self._names.add(name)
            return
        except OSError as error:
            if error.errno in _EXHAUSTED:
                self._changed_ns = -1  # this file and those that follow are looked for again
                _refuse_exhausted(error, path)
            self._names.add(name)  # a folder, or a file of another user
            _log.warning("not a file of a journal: file=%s cause=%s: is it someone else's?", path, error)
            return
        self._names.add(name)
        self._files[file.number] = file
        if file.writer_lives():
            self._live.append(file)
            return
        self._read(file)
        file.ended()
        self._begun = {key: left for key, files in self._begun.items() if (left := files - {file.number})}
