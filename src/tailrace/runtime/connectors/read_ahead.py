"""Reads an iterator that may block in a thread of its own, into a bounded buffer.

If the thread that runs the tasks read it, the iterator would stop them all while it blocks, and records that it has
already produced would be held back. Iterators over data in memory never block, and need no thread.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice
from typing import Any, Protocol

from tailrace.clock import MILLISECOND_NS, system_clock
from tailrace.errors import TailraceError
from tailrace.runtime.current_task import running

MOST = 1024
"""Capacity of the buffer. When it is full, the thread pauses until half of the values have been taken."""

LATER_NS = 1 << 62
"""``ready_ns`` of a reader that announces new values by itself, and need not be polled until then."""

PAUSE_NS = 100 * MILLISECOND_NS
"""An iterator that has produced nothing for this long is taken to be blocked."""

CLOSE_S = 0.2
"""On closing, how long the iterator may take to produce its next value. After that its thread is abandoned."""

_NEVER_WAIT: tuple[Iterable[Any], ...] = ([], (), range(0), "", b"", {}, set(), count())
IN_MEMORY = tuple(type(iter(one)) for one in _NEVER_WAIT)
"""Types of iterators that never block."""


class Values(Protocol):
    """The values of a split, from memory or read ahead by a thread."""

    def take(self, limit: int) -> list[Any]: ...

    @property
    def ended(self) -> bool:
        """Whether all values have been taken."""
        ...

    @property
    def waits(self) -> bool:
        """Whether there is no value now. The function given to ``wake_by`` is called when there is one again."""
        ...

    @property
    def may_follow(self) -> bool:
        """Whether a value may arrive at any moment."""
        ...

    def wake_by(self, wake: Callable[[], None]) -> None: ...

    def close(self) -> None: ...


def values_of(iterator: Iterator[Any], split: str, begin: Callable[[Iterator[Any]], None]) -> Values:
    """The values of an iterator. ``begin`` skips those that were read before, and may block like the iterator."""
    if isinstance(iterator, IN_MEMORY):
        begin(iterator)
        return InMemory(iterator)
    return ReadAhead(iterator, split, begin)


class InMemory:
    """Values that never have to be waited for."""

    waits = may_follow = False

    def __init__(self, values: Iterator[Any]) -> None:
        self._values = values
        self.ended = False

    def take(self, limit: int) -> list[Any]:
        taken = list(islice(self._values, limit))
        self.ended = len(taken) < limit
        return taken

    def wake_by(self, wake: Callable[[], None]) -> None: ...

    def close(self) -> None: ...


class ReadAhead:
    """Values that a thread reads ahead. The thread starts at the first ``take``."""

    def __init__(self, values: Iterable[Any], split: str, begin: Callable[[Iterator[Any]], None]) -> None:
        self._values = iter(values)
        self._split = split
        self._begin = begin
        self._buffer: deque[Any] = deque()
        self._room = threading.Event()
        self._full = False  # the thread is waiting for room
        self._given = 0
        self._given_ns = 0  # when values were last taken
        self._over = False  # the thread has ended, and will not append to the buffer again
        self._error: BaseException | None = None
        self._closing = False
        self._thread: threading.Thread | None = None
        self._wake: Callable[[], None] = _wake_nothing
        self._label = running.label

    # -- called by the thread that runs the source

    def take(self, limit: int) -> list[Any]:
        if self._thread is None:
            self._given_ns = system_clock()
            self._thread = threading.Thread(target=self._read, name=f"reads {self._split}", daemon=True)
            self._thread.start()
        buffer = self._buffer
        taken = [buffer.popleft() for _ in range(min(limit, len(buffer)))]
        if taken:
            self._given += len(taken)
            self._given_ns = system_clock()
            if self._full and len(buffer) <= MOST // 2:
                self._full = False
                self._room.set()
        elif self._error is not None and self.ended:
            raise self._error
        return taken

    @property
    def ended(self) -> bool:
        return self._over and not self._buffer  # in this order: nothing is appended once ``_over`` is set

    @property
    def waits(self) -> bool:
        return self._thread is not None and not self._buffer and not self._over

    @property
    def may_follow(self) -> bool:
        return not self.ended and system_clock() - self._given_ns < PAUSE_NS

    def wake_by(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def close(self) -> None:
        """Stop the thread. Raises TailraceError if the iterator still blocks; its daemon thread is then abandoned."""
        self._closing = True
        self._room.set()
        if self._thread is None:
            close_iterator(self._values)
            return
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            raise TailraceError(
                f"an iterator still waits for its next record, and is left alone: split={self._split} "
                f"records={self._given}, does it wait for something that may never come?"
            )

    # -- in the reading thread

    def _read(self) -> None:
        running.label = self._label
        try:
            self._begin(self._values)
            self._fill_buffer()
            if self._closing:
                close_iterator(self._values)
        except BaseException as error:  # user code may raise anything; ``take`` raises it after the last value
            self._error = error
        finally:
            self._over = True
            self._wake()

    def _fill_buffer(self) -> None:
        buffer = self._buffer
        for value in self._values:
            buffer.append(value)
            waiting = len(buffer)
            if waiting == 1:  # the taker may have found nothing, and sleep
                self._wake()
            elif waiting >= MOST:
                self._wait_for_room()
            if self._closing:
                return

    def _wait_for_room(self) -> None:
        self._room.clear()
        self._full = True
        if len(self._buffer) >= MOST and not self._closing:  # else some were taken in the meantime
            self._room.wait()


def close_iterator(values: Iterator[Any]) -> None:
    """Run the ``finally`` blocks of a generator now, not when it is garbage-collected."""
    close = getattr(values, "close", None)
    if close is not None:
        close()


def _wake_nothing() -> None:
    """The default before ``wake_by``: there is nothing to wake."""
