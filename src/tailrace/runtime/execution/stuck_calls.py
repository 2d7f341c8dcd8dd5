"""Calls that do not return: the user is told of them, and the tasks beside them go on.

The thread that beats looks at all tasks of its worker, every quarter of a second. It costs the tasks nothing that it
does: they note when they begin something, and where a call is, and with what, is read from its frames.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

from tailrace.clock import SECOND_NS
from tailrace.errors import shorten

if TYPE_CHECKING:
    from tailrace.runtime.execution.task_host import TaskHost

LEAVE_BEHIND_NS = 1 * SECOND_NS
"""After so long in a call the other tasks of the runner get another thread: longer than a collection of garbage or a
slow disk takes, and a third of the silence after which a worker counts as dead."""

WARN_NS = 10 * SECOND_NS
"""After so long the user hears of it, and again whenever it has doubled. A task whose calls take that long by nature is
therefore named a few times in all, not with each call."""


@dataclass(frozen=True)
class Place:
    """Where a call is."""

    operator: str
    task: int
    value: str  # the tuple; empty if it cannot be told
    line: str  # where it stands; empty if that cannot be told

    def __str__(self) -> str:
        value = f" tuple={self.value}" if self.value else ""
        return f"operator={self.operator} task={self.task}{value}{f' at={self.line}' if self.line else ''}"


class StuckCalls:
    """Of one worker. Used by one thread, but for ``draining``.

    ``leave_behind`` has the other tasks of a host's runner go on without it; ``say`` tells the user, once a topic.
    """

    def __init__(self, leave_behind: Callable[[TaskHost], None], say: Callable[[str, str], None]) -> None:
        self.draining = False
        self._leave_behind = leave_behind
        self._say = say
        self._patience_ns: dict[str, int] = {}  # by label: how long a call may take before it is named
        self._was_draining = False

    def look(self, hosts: Iterable[TaskHost], now_ns: int) -> None:
        if self.draining and not self._was_draining:
            self._was_draining = True
            self._patience_ns.clear()  # what was named before is what the end waits for now
        for host in hosts:
            since_ns = host.since_ns
            if not since_ns or now_ns - since_ns < LEAVE_BEHIND_NS:
                continue
            if host.shared:
                self._free_the_others(host, now_ns)
            if host.busy_since_ns:
                host.show_busy(now_ns)
            patience_ns = self._patience_ns.get(host.label, WARN_NS)
            if now_ns - since_ns >= patience_ns:
                self._name(host, (now_ns - since_ns) // SECOND_NS, patience_ns)

    def _free_the_others(self, host: TaskHost, now_ns: int) -> None:
        assert host.runner is not None
        seat = host.runner.seat
        if not seat.acquire(blocking=False):
            return  # it is not in a call, or not any more
        try:
            since_ns = host.busy_since_ns
            if host.shared and since_ns and now_ns - since_ns >= LEAVE_BEHIND_NS:
                self._leave_behind(host)
        finally:
            seat.release()

    def _name(self, host: TaskHost, seconds: int, patience_ns: int) -> None:
        assert host.runner is not None
        place = host.runner.place_of_call(host)
        if place is None:
            return
        self._patience_ns[host.label] = 2 * max(patience_ns, seconds * SECOND_NS)
        end = ", and the run cannot end before it does" if self.draining else ""
        self._say(
            f"stuck {place.operator}/{place.task} {seconds}",
            f"a call has not returned for {seconds} s{end}: {place}; does it wait for something that never comes?",
        )


def place_in(thread: int | None, label: str) -> Place | None:
    """Where a thread is that works for this task; None if it is in no call of an operator, as a source that waits."""
    frame = sys._current_frames().get(thread or 0)
    if frame is None:
        return None
    line = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    operator, _, task = label.rpartition("/")
    caller: FrameType | None = frame
    while caller is not None:
        module = caller.f_globals.get("__name__")
        if module in (STAGE, BATCHES):
            found = caller.f_locals
            wiring = getattr(found.get("self"), "wiring", None)
            if wiring is not None:
                operator, task = wiring.operator, wiring.task
            value = next((shorten(found[name]) for name in ("value", "values") if name in found), "")
            return Place(operator, int(task), value, line)
        caller = caller.f_back
    return None


STAGE = "tailrace.core.tasks.stages"
BATCHES = "tailrace.core.tasks.deferred"
"""Modules that call users' functions: their local ``value`` or ``values`` is what a call was given."""
