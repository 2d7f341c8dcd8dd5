"""Processes that compress, over and over, to take processor time from whatever is measured beside them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

_PROGRAM = """
import os, zlib
parent = os.getppid()
data = bytes(range(256)) * 1024
while os.getppid() == parent:
    zlib.compress(data, 9)
"""
"""The program of a process. It ends by itself once its parent is gone."""


@contextmanager
def compressors(count: int) -> Iterator[tuple[int, ...]]:
    """Run so many until the end of the block. Gives their process ids."""
    with ExitStack() as stack:
        processes = []
        for _ in range(count):
            process = subprocess.Popen([sys.executable, "-c", _PROGRAM], stdin=subprocess.DEVNULL)
            stack.callback(_end, process)
            processes.append(process)
        yield tuple(process.pid for process in processes)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
