"""A process has one number for all time: its pid, and when it started. So the dead can be told from a namesake."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

START_MASK = 0xFFFF_FFFF
"""Ticks of 10 ms: this many bits are 497 days."""


LARGEST_PID = 1 << 22
"""What Linux allows; a larger number is rubbish."""


def _started(pid: int) -> int | None:
    """When a process started, in ticks since the machine did; None if it is over and only waits to be reaped."""
    text = Path(f"/proc/{pid}/stat").read_text()
    fields = text[text.rindex(")") + 2 :].split()  # the name before may hold spaces and brackets
    state, threads, started = fields[0], int(fields[17]), int(fields[19])
    return None if state in "ZX" and threads <= 1 else started  # a first thread may end before the others


def own_id() -> int:
    """This process."""
    pid = os.getpid()
    return pid << 32 | (_started(pid) or 0) & START_MASK


def is_alive(owner: int) -> bool:
    """Whether a process of this namespace still runs, be it stopped. Only proof makes it False: what it was writing
    is written over then."""
    pid = owner >> 32
    if not 0 < pid <= LARGEST_PID:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # someone else's, but there
    try:
        started = _started(pid)
    except OSError:
        return True  # gone this instant, or no file to be had: we shall know next time
    return started is not None and started & START_MASK == owner & START_MASK


@cache
def process_namespace() -> int:
    """In which namespace process numbers mean what they say here."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0
