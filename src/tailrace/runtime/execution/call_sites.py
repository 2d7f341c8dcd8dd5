"""Where a call of a user's function is, read from the frames of its thread. It costs the call nothing."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import FrameType

from tailrace.errors import shorten

CALLERS = ("tailrace.core.tasks.stages", "tailrace.core.tasks.deferred")
"""Modules that call users' functions. Their local ``value`` or ``values`` is the argument of the call."""


@dataclass(frozen=True)
class CallSite:
    """Where a call is."""

    operator: str
    task: int
    value: str  # the tuple; empty if unknown
    line: str  # the line that runs; empty if unknown

    def __str__(self) -> str:
        value = f" tuple={self.value}" if self.value else ""
        return f"operator={self.operator} task={self.task}{value}{f' at={self.line}' if self.line else ''}"


def call_site_in(thread: int | None, label: str) -> CallSite | None:
    """The call that a thread is in for the task with this label; None if it is in none, as a source that waits."""
    frame = sys._current_frames().get(thread or 0)
    if frame is None:
        return None
    line = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    operator, _, task = label.rpartition("/")
    caller: FrameType | None = frame
    while caller is not None:
        if caller.f_globals.get("__name__") in CALLERS:
            found = caller.f_locals
            wiring = getattr(found.get("self"), "wiring", None)
            if wiring is not None:
                operator, task = wiring.operator, wiring.task
            value = next((shorten(found[name]) for name in ("value", "values") if name in found), "")
            return CallSite(operator, int(task), value, line)
        caller = caller.f_back
    return None
