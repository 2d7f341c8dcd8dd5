"""Shows on the driver what workers print and log, from a thread of its own that no other thread waits for.

A terminal stopped by Ctrl-S, a pager, or a pipe without a reader can block a write for any length of time. All other
threads of the driver therefore only put lines into a bounded queue. When it is full, lines are dropped and counted, and
the count is shown. Errors while showing a line are ignored: they must not fail the run.
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
"""Capacity of the queue, for all workers together: five times what one worker may send between two heartbeats."""

PIECE = 1024
"""Characters per write. At four bytes each they fit into the 4096 bytes that ``poll`` guarantees on a writable pipe."""

LOOK_S = 0.1
CLOSE_S = 1.0
"""At the end of a run, how long the display may make no progress before its remaining lines are abandoned."""


class Display:
    """A queue of lines and the thread that shows them. Any thread may call ``show`` and ``warn``; neither blocks."""

    def __init__(self) -> None:
        self._lines: deque[tuple[int, str, str]] = deque()  # (logging level, or 0 for printed text; logger; text)
        self._dropped = 0
        self._shown = 0
        self._closed = False
        self._given_up = False
        self._change = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="tailrace-display", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def show(self, worker: int, logs: Logs) -> None:
        """Queue a worker's lines: printed ones for standard output, log records for the logger of the same name."""
        for line in logs.lines:
            label = f"[{line.label}] " if line.label else f"[worker {worker}] "
            self._put(line.level, line.logger, f"{label}{line.text}")
        if logs.dropped:
            self._put(0, "", f"[worker {worker}] … {logs.dropped:,} more lines were dropped: they came too fast")

    def warn(self, text: str) -> None:
        self._put(logging.WARNING, "tailrace", text)

    def close(self) -> None:
        """Return when every line has been shown, or when no line has been shown for ``CLOSE_S``."""
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
            self._report_dropped()
            self._lines.append((level, logger, text))
            self._change.notify()

    def _report_dropped(self) -> None:
        if self._dropped:
            self._lines.append((0, "", f"… {self._dropped:,} more lines were dropped: standard output was blocked"))
            self._dropped = 0

    # -- the thread

    def _work(self) -> None:
        while (found := self._take()) is not None:
            level, logger, text = found
            if level:
                ignore_errors(partial(logging.getLogger(logger).log, level, "%s", text))
            else:
                self._print(text)
            self._shown += 1

    def _take(self) -> tuple[int, str, str] | None:
        """The next entry to show; None at the end. Successive printed lines are joined, up to ``PIECE`` characters."""
        with self._change:
            while not self._lines and not self._dropped and not self._closed:
                self._change.wait()
            if not self._lines:
                self._report_dropped()
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
            ignore_errors(partial(_write, sys.stdout, sayable[start : start + PIECE]))

    def _wait_for_room(self) -> None:
        """Wait outside of ``write``, which holds the stream's lock: the interpreter could not shut down cleanly."""
        while not self._given_up and not _has_room(sys.stdout):
            pass


def _has_room(stream: Any) -> bool:
    """Whether a stream is writable within ``LOOK_S``. A stream without a file descriptor counts as writable."""
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


def ignore_errors(show: Callable[[], None]) -> None:
    """Call ``show`` and ignore errors: a stream may be closed, and a logging handler of the user may raise anything."""
    try:
        show()
    except Exception:
        pass
