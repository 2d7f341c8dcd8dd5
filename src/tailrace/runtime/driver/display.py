"""The driver's side of what workers print and log: a thread of its own shows it, and nobody waits for that thread.

A terminal after Ctrl-S, a pager or a pipe that nobody reads takes nothing for as long as it likes. The threads that
hear workers and that decide only put lines into a queue. When it is full, lines are dropped and their number is told.
What cannot be shown at all is not shown: no line is worth a run.
"""

from __future__ import annotations

import logging
import select
import sys
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from tailrace.runtime.links.control import Logs

MOST_LINES = 10_000
"""That wait to be shown, of all workers: five times what one may send between two heartbeats."""

PIECE = 1024
"""Characters of four bytes at most: a pipe that has room has it for as many."""

LOOK_S = 0.1
CLOSE_S = 1.0
"""A display that has shown nothing for so long, though it has something to show, is given up at the end of a run."""


class Display:
    """Any thread may tell it something, and none waits."""

    def __init__(self) -> None:
        self._lines: deque[tuple[int, str, str]] = deque()  # level of logging or 0, logger, text
        self._dropped = 0
        self._shown = 0
        self._closed = False
        self._given_up = False
        self._change = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="tailrace-display", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def show(self, worker: int, logs: Logs) -> None:
        """Print what was printed, log what was logged."""
        for line in logs.lines:
            label = f"[{line.label}] " if line.label else f"[worker {worker}] "
            self._put(line.level, line.logger, f"{label}{line.text}")
        if logs.dropped:
            self._put(0, "", f"[worker {worker}] … {logs.dropped:,} more lines were dropped: they came too fast")

    def warn(self, text: str) -> None:
        self._put(logging.WARNING, "tailrace", text)

    def close(self) -> None:
        """Returns when all is shown, or nothing has been for a while."""
        with self._change:
            self._closed = True
            self._change.notify()
        before = -1
        while self._thread.is_alive() and self._shown != before:
            before = self._shown
            self._thread.join(CLOSE_S)
        self._given_up = True

    def _put(self, level: int, logger: str, text: str) -> None:
        with self._change:
            if len(self._lines) >= MOST_LINES:
                self._dropped += 1
                return
            self._tell_dropped()
            self._lines.append((level, logger, text))
            self._change.notify()

    def _tell_dropped(self) -> None:
        if self._dropped:
            self._lines.append((0, "", f"… {self._dropped:,} more lines were dropped: nobody took them"))
            self._dropped = 0

    # -- the thread

    def _work(self) -> None:
        while (found := self._take()) is not None:
            level, logger, text = found
            if level:
                quietly(partial(logging.getLogger(logger).log, level, "%s", text))
            else:
                self._print(text)
            self._shown += 1

    def _take(self) -> tuple[int, str, str] | None:
        """What is to be shown next, printed lines together as far as they fit; None at the end."""
        with self._change:
            while not self._lines and not self._dropped and not self._closed:
                self._change.wait()
            if not self._lines:
                self._tell_dropped()
            if not self._lines:
                return None
            level, logger, text = self._lines.popleft()
            if level:
                return level, logger, text
            lines = [text]
            length = len(text)
            while self._lines and not self._lines[0][0] and length + len(self._lines[0][2]) < PIECE:
                lines.append(self._lines.popleft()[2])
                length += len(lines[-1])
            return 0, "", "".join(f"{line}\n" for line in lines)

    def _print(self, text: str) -> None:
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        sayable = text.encode(encoding, "backslashreplace").decode(encoding)
        for start in range(0, len(sayable), PIECE):
            self._wait_for_room()
            if self._given_up:
                return
            quietly(partial(_write, sys.stdout, sayable[start : start + PIECE]))

    def _wait_for_room(self) -> None:
        """A thread that sat in a write would hold the lock of the stream when the interpreter ends, and break that."""
        while not self._given_up and not _has_room(sys.stdout):
            pass


def _has_room(stream: Any) -> bool:
    """Whether a stream takes something, after a short wait. One that is no file is taken to."""
    try:
        poll = select.poll()
        poll.register(stream.fileno(), select.POLLOUT)
        return bool(poll.poll(LOOK_S * 1000))
    except Exception:
        return True


def _write(stream: Any, text: str) -> None:
    if stream is not None:
        stream.write(text)
        stream.flush()


def quietly(show: Callable[[], None]) -> None:
    """A stream may be closed, its reader may have left, and a handler of the user's may raise what it likes."""
    try:
        show()
    except Exception:
        pass
