"""An iterator that may wait for its records is read by a thread of its own, which hands over what it gets at once.

Read by the thread that runs the tasks, it would stop them all while it waits, and keep back what it has given. What
lies in memory needs no thread, and gets none.
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
"""Values that are read ahead. The thread waits then, and goes on when half of them have been taken."""

LATER_NS = 1 << 62
"""When it is worth asking one who says by himself when something is there."""

PAUSE_NS = 100 * MILLISECOND_NS
"""An iterator that has given nothing for so long waits for something."""

CLOSE_S = 0.2
"""How long an iterator that is to be closed may take to give its next value. Beyond, it is left alone."""

_NEVER_WAIT: tuple[Iterable[Any], ...] = ([], (), range(0), "", b"", {}, set(), count())
IN_MEMORY = tuple(type(iter(one)) for one in _NEVER_WAIT)
"""Iterators that never wait."""


class Values(Protocol):
    """What a reader takes its values from."""

    def take(self, limit: int) -> list[Any]: ...

    @property
    def ended(self) -> bool:
        """All values have been taken."""
        ...

    @property
    def waits(self) -> bool:
        """There is none to be taken now. Who has called ``wake_by`` will hear of the next."""
        ...

    @property
    def may_follow(self) -> bool:
        """Whether a value may be there at any moment."""
        ...

    def wake_by(self, wake: Callable[[], None]) -> None: ...

    def close(self) -> None: ...


def values_of(iterator: Iterator[Any], split: str, begin: Callable[[Iterator[Any]], None]) -> Values:
    """``begin`` passes over what was read before, and may take as long as the iterator does."""
    if isinstance(iterator, IN_MEMORY):
        begin(iterator)
        return InMemory(iterator)
    return ReadAhead(iterator, split, begin)


class InMemory:
    """Values that are there."""

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
    """Values that a thread reads. It begins when somebody wants one."""

    def __init__(self, values: Iterable[Any], split: str, begin: Callable[[Iterator[Any]], None]) -> None:
        self._values = iter(values)
        self._split = split
        self._begin = begin
        self._buffer: deque[Any] = deque()
        self._room = threading.Event()
        self._full = False  # the thread waits for room
        self._given = 0
        self._given_ns = 0  # when values were last taken
        self._over = False  # the thread has ended, and puts nothing more into the buffer
        self._error: BaseException | None = None
        self._closing = False
        self._thread: threading.Thread | None = None
        self._wake: Callable[[], None] = _nobody
        self._label = running.label

    # -- from the thread that runs the source

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
        return self._over and not self._buffer  # in this order: nothing is put in once it is over

    @property
    def waits(self) -> bool:
        return self._thread is not None and not self._buffer and not self._over

    @property
    def may_follow(self) -> bool:
        return not self.ended and system_clock() - self._given_ns < PAUSE_NS

    def wake_by(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def close(self) -> None:
        """Raises if the iterator still waits. Its thread does not keep the process from ending."""
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

    # -- from the thread that reads

    def _read(self) -> None:
        running.label = self._label
        try:
            self._begin(self._values)
            self._pass_on()
            if self._closing:
                close_iterator(self._values)
        except BaseException as error:  # the user's code may raise anything; who takes the last value hears of it
            self._error = error
        finally:
            self._over = True
            self._wake()

    def _pass_on(self) -> None:
        buffer = self._buffer
        for value in self._values:
            buffer.append(value)
            waiting = len(buffer)
            if waiting == 1:  # whoever found nothing before may sleep
                self._wake()
            elif waiting >= MOST:
                self._wait_for_room()
            if self._closing:
                return

    def _wait_for_room(self) -> None:
        self._room.clear()
        self._full = True
        if len(self._buffer) >= MOST and not self._closing:  # else somebody has taken some since
            self._room.wait()


def close_iterator(values: Iterator[Any]) -> None:
    """Run the ``finally`` of a generator now rather than whenever it is collected."""
    close = getattr(values, "close", None)
    if close is not None:
        close()


def _nobody() -> None:
    """Nobody sleeps."""
