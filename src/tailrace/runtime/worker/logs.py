"""Captures what user code prints and logs in a worker, labelled with operator and task, for the driver.

Lines wait in a bounded buffer, which each heartbeat empties. When it is full, lines are dropped and counted, and the
count is sent along. ``runtime/driver/display.py`` shows the lines.
"""

from __future__ import annotations

import io
import logging
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from tailrace.errors import message_of, shorten
from tailrace.runtime.current_task import current_label
from tailrace.runtime.links.control import LogLine, Logs

MAX_LINES = 2_000
"""Capacity of the buffer: lines between two heartbeats."""

MAX_CHARACTERS = 8_000
"""A longer line is cut."""


class LogBuffer:
    """Lines to be sent to the driver. Any thread may add; one takes."""

    def __init__(self) -> None:
        self._lines: deque[LogLine] = deque()
        self._dropped = 0

    def add(self, line: LogLine) -> None:
        if len(self._lines) < MAX_LINES:
            self._lines.append(line)
        else:
            self._dropped += 1

    def take(self) -> Logs | None:
        lines = []
        while self._lines:
            lines.append(self._lines.popleft())
        dropped, self._dropped = self._dropped, 0
        return Logs(lines, dropped) if lines or dropped else None


class _Printed(io.TextIOBase):
    """Replaces ``sys.stdout``. Each thread has its own unfinished line."""

    def __init__(self, buffer: LogBuffer) -> None:
        self._buffer = buffer
        self._partial = threading.local()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        whole = getattr(self._partial, "text", "") + text
        *lines, rest = whole.split("\n")
        self._partial.text = rest
        for line in lines:
            self._buffer.add(LogLine(current_label(), 0, "", line[:MAX_CHARACTERS]))
        return len(text)


class _Handler(logging.Handler):
    """Adds formatted log records to the buffer, with their level and logger."""

    def __init__(self, buffer: LogBuffer) -> None:
        super().__init__()
        self._buffer = buffer

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)[:MAX_CHARACTERS]
        except Exception as error:
            text = f"a log message could not be formatted: {shorten(record.msg)}: {message_of(error)}"
        self._buffer.add(LogLine(current_label(), record.levelno, record.name, text))


@contextmanager
def captured() -> Iterator[LogBuffer]:
    """Within the block, capture this process's standard output and log records in the buffer."""
    buffer = LogBuffer()
    root, stdout = logging.getLogger(), sys.stdout
    level, handlers = root.level, root.handlers[:]
    sys.stdout = _Printed(buffer)
    root.handlers[:] = [_Handler(buffer)]
    root.setLevel(logging.INFO)
    try:
        yield buffer
    finally:
        sys.stdout = stdout
        root.handlers[:] = handlers
        root.setLevel(level)
