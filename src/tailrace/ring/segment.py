"""A segment is a file in /dev/shm that processes of one machine map. It holds a head that identifies it, and a ring.

Its name contains the run and the process that created it, so that segments left by a crash can be removed. The two ends
of a pair unlink theirs as soon as both have mapped it, so that a crash leaves nothing behind.
"""

from __future__ import annotations

import errno
import itertools
import mmap
import os
import re
import secrets
import threading
from collections.abc import Callable
from pathlib import Path

from tailrace.errors import SegmentError
from tailrace.ring.layout import DATA, LARGEST, MAGIC, SEGMENT, SMALLEST, VERSION
from tailrace.ring.owner import is_alive, own_id, process_namespace

FOLDER = Path("/dev/shm")
PREFIX = "tailrace"

naming = threading.RLock()
"""Held while a file with a name of this process is created, until the creator can unlink it. See ``sweep_own``."""

_serial = itertools.count()
_NAME = re.compile(rf"{PREFIX}-.+-(\d+)-(\d+)-\d+(\.bell)?")


def ring_capacity(least: int) -> int:
    """The smallest valid capacity of at least this many bytes."""
    if not 0 < least <= LARGEST:
        raise SegmentError(f"ring of impossible size: bytes={least} limit={LARGEST}; did you mix two numbers up?")
    return max(SMALLEST, 1 << (least - 1).bit_length())


class Segment:
    """A mapped segment. Closing unmaps it; the file stays until it is unlinked."""

    def __init__(self, path: Path, memory: mmap.mmap, kind: int, capacity: int, nonce: bytes) -> None:
        self.path = path
        self.memory = memory
        self.kind = kind
        self.capacity = capacity
        self.nonce = nonce

    @classmethod
    def create(cls, run: str, kind: int, least_bytes: int) -> Segment:
        """Create a segment with at least this many bytes of data. Raises SegmentError if there is no memory for it."""
        capacity = ring_capacity(least_bytes)
        size = DATA[kind] + capacity
        owner, nonce = own_id(), secrets.token_bytes(16)
        path = FOLDER / f"{PREFIX}-{run}-{process_namespace()}-{owner}-{next(_serial)}"
        with naming:
            memory = cls._allocate(path, size)
        SEGMENT.pack_into(memory, 0, MAGIC, VERSION, kind, capacity, owner, process_namespace(), nonce)
        return cls(path, memory, kind, capacity, nonce)

    @staticmethod
    def _allocate(path: Path, size: int) -> mmap.mmap:
        try:
            number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise SegmentError(f"cannot create a segment: {error}; is {FOLDER} there and writable?") from error
        try:
            os.posix_fallocate(number, 0, size)  # fails now: if space is short, a later access would kill the process
            return mmap.mmap(number, size)
        except OSError as error:
            path.unlink()
            full = "; is it full?" if error.errno == errno.ENOSPC else ""
            raise SegmentError(f"no shared memory: bytes={size} folder={FOLDER}: {error.strerror}{full}") from error
        finally:
            os.close(number)

    @classmethod
    def attach(cls, path: Path, kind: int, nonce: bytes | None = None) -> Segment:
        """Map a segment of another process. Raises SegmentError if it does not exist, or is not the expected one."""
        try:
            number = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            raise SegmentError(f"no such segment: {error}; is its maker on another machine?") from error
        try:
            status = os.fstat(number)
            if status.st_uid != os.geteuid():
                raise SegmentError(f"segment of another user: path={path} uid={status.st_uid}")
            if status.st_size < SEGMENT.size:
                raise SegmentError(f"not a segment: path={path} bytes={status.st_size}; was it cut off?")
            memory = mmap.mmap(number, status.st_size)
        except OSError as error:
            raise SegmentError(f"cannot map a segment: path={path}: {error}") from error
        finally:
            os.close(number)
        try:
            capacity, found = _check(path, memory, kind, nonce)
        except SegmentError:
            memory.close()
            raise
        return cls(path, memory, kind, capacity, found)

    def unlink(self) -> None:
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        try:
            self.memory.close()
        except BufferError:
            pass  # a view of a record exists; the memory is unmapped when it is deleted


def _check(path: Path, memory: mmap.mmap, kind: int, nonce: bytes | None) -> tuple[int, bytes]:
    magic, version, its_kind, capacity, _, processes, its_nonce = SEGMENT.unpack_from(memory)
    if magic != MAGIC:
        raise SegmentError(f"not a segment: path={path} magic={magic:#x}; does something else use this name?")
    if version != VERSION:
        raise SegmentError(f"segment of another version: path={path} version={version} ours={VERSION}")
    if its_kind != kind:
        raise SegmentError(f"segment of another kind: path={path} kind={its_kind} expected={kind}")
    if capacity & (capacity - 1) or not SMALLEST <= capacity <= LARGEST or len(memory) < DATA[kind] + capacity:
        raise SegmentError(f"segment does not add up: path={path} capacity={capacity} bytes={len(memory)}")
    if processes != process_namespace():
        raise SegmentError(f"segment of another process namespace: path={path}; is its maker in another container?")
    if nonce is not None and nonce != its_nonce:
        raise SegmentError(f"another segment of the same name: path={path}; is its maker on another machine?")
    return capacity, its_nonce


def sweep() -> list[Path]:
    """Remove segments of dead processes. Those of other PID namespaces are left, because their state is unknown."""
    return _remove(lambda owner: not is_alive(owner))


def sweep_own() -> list[Path]:
    """Remove all segments of this process, which is about to exit. Its threads cannot create more after this."""
    naming.acquire()  # never released
    own = own_id()
    return _remove(lambda owner: owner == own)


def _remove(whose: Callable[[int], bool]) -> list[Path]:
    swept = []
    try:
        paths = sorted(FOLDER.glob(f"{PREFIX}-*"))
    except OSError:
        return []
    for path in paths:
        match = _NAME.fullmatch(path.name)
        if match and int(match[1]) == process_namespace() and whose(int(match[2])):
            try:
                path.unlink()
            except OSError:
                continue  # of another user, or removed by another process
            swept.append(path)
    return swept
