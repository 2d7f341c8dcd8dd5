"""A process has one number for all time: its pid, and when it started. So the dead can be told from a namesake."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

START_MASK = 0xFFFF_FFFF
"""Ticks of 10 ms: this many bits are 497 days."""


def _started(pid: int) -> int | None:
    """When a process started, in ticks since the machine did; None if it is gone or only waits to be reaped."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()  # the name before may hold spaces and brackets
    return None if fields[0] in "ZX" else int(fields[19])


def own_id() -> int:
    """This process."""
    pid = os.getpid()
    return pid << 32 | (_started(pid) or 0) & START_MASK


def is_alive(owner: int) -> bool:
    """Whether a process of this namespace still runs, be it stopped."""
    started = _started(owner >> 32)
    return started is not None and started & START_MASK == owner & START_MASK


@cache
def process_namespace() -> int:
    """In which namespace process numbers mean what they say here."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0
