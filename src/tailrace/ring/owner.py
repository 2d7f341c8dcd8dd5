"""Identifies a process by its pid and its start time, so that a dead one is not mistaken for a new one with its pid."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

START_MASK = 0xFFFF_FFFF
"""Bits of the start time that are kept. In ticks of 10 ms they span 497 days."""


LARGEST_PID = 1 << 22
"""The limit of Linux. A larger number is corrupt data."""


def _started(pid: int) -> int | None:
    """When a process started, in ticks since the machine booted; None if it is a zombie."""
    text = Path(f"/proc/{pid}/stat").read_text()
    fields = text[text.rindex(")") + 2 :].split()  # the name before it may contain spaces and parentheses
    state, threads, started = fields[0], int(fields[17]), int(fields[19])
    return None if state in "ZX" and threads <= 1 else started  # the first thread may end before the others


def own_id() -> int:
    """The id of this process."""
    pid = os.getpid()
    return pid << 32 | (_started(pid) or 0) & START_MASK


def is_alive(owner: int) -> bool:
    """Whether a process of this namespace exists, even if it is stopped.

    False only with proof of its death, because the record that it was writing is then overwritten.
    """
    pid = owner >> 32
    if not 0 < pid <= LARGEST_PID:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # a process of another user, but it exists
    try:
        started = _started(pid)
    except OSError:
        return True  # it has just ended, or /proc cannot be read: the next call will tell
    return started is not None and started & START_MASK == owner & START_MASK


@cache
def process_namespace() -> int:
    """The PID namespace of this process. Process ids are only comparable within one."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0
