"""Words that the workers of one machine share, with a lock: a file in memory without a name, so none can be left over.

Other processes open it through the maker's list of open files. The kernel frees it with the last process that has it
open, and releases the lock of a process that dies.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path

from tailrace.core.send_order.node_uplink import NodeUplink
from tailrace.errors import SegmentError

WORD = 8  # bytes
NONCE = 2  # words at the beginning


class SharedWords:
    """Mapped words, all 0 at first. One thread of each process may use the lock."""

    def __init__(self, number: int, nonce: str) -> None:
        self.number = number  # the file number
        self.nonce = nonce
        self._memory = mmap.mmap(number, os.fstat(number).st_size)
        self._view = memoryview(self._memory).cast("q")
        self.words = self._view[NONCE:]

    @classmethod
    def make(cls, count: int) -> SharedWords:
        """Make so many words. Raises SegmentError if there is no memory for them."""
        nonce = secrets.token_bytes(NONCE * WORD)
        number = -1
        try:
            number = os.memfd_create("tailrace-link", os.MFD_CLOEXEC)
            os.posix_fallocate(number, 0, (NONCE + count) * WORD)
            os.pwrite(number, nonce, 0)
            return cls(number, nonce.hex())
        except OSError as error:
            _close(number)
            raise SegmentError(f"no shared memory for a link: words={count}: {error.strerror}") from error

    @classmethod
    def open(cls, pid: int, number: int, nonce: str, count: int) -> SharedWords:
        """Map what another process has made. Raises SegmentError if that is impossible, or it is something else."""
        path = f"/proc/{pid:d}/fd/{number:d}"
        own = -1
        try:
            status = Path(path).stat()
            if stat.S_ISREG(status.st_mode) and status.st_size == (NONCE + count) * WORD:
                own = os.open(path, os.O_RDWR | os.O_CLOEXEC)
                if os.pread(own, NONCE * WORD, 0).hex() == nonce:
                    return cls(own, nonce)
        except OSError as error:
            _close(own)
            raise SegmentError(f"no such memory: {error}; is its maker in another container?") from error
        _close(own)
        raise SegmentError(f"another file than was meant: path={path}; is its maker in another container?")

    def take(self) -> bool:
        """Lock the words until ``release``. False if another process has locked them."""
        try:
            fcntl.flock(self.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        fcntl.flock(self.number, fcntl.LOCK_UN)

    def close(self) -> None:
        self.words.release()
        self._view.release()
        self._memory.close()
        os.close(self.number)


def _close(number: int) -> None:
    if number >= 0:
        os.close(number)


@dataclass(frozen=True)
class SharedUplink:
    """The shared words of an uplink, and one worker's view of them."""

    memory: SharedWords
    view: NodeUplink
