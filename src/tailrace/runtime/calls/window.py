"""A sliding window of calls over an iterator of batches. It does not stop at the end of a batch.

Three threads take part. A *reader* takes batches from the source and waits while enough rows are there. The *loop*
makes the calls, at most ``concurrency`` at once. The thread that asks for results gets those that are ready.

Law: at most ``concurrency + buffer`` rows have been started whose results were not taken; at most two batches wait to
be started; closing cancels all calls, and none starts afterwards.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from tailrace.runtime.calls.outcome import Outcome

FULL = 500
"""Results that are handed over without waiting for more: at this size the cost of a batch is small beside its rows."""

LINGER_S = 0.02
"""How long a few results wait for more. Each batch costs Spark about half a millisecond."""

BUFFER = 2 * FULL
"""Results that may wait to be taken, so that calls go on while a batch is written."""

ORDERED_BUFFER = 10_000
"""The same where order is kept: results wait behind the slowest call. At 64 calls of 10 ms it hides one of 1.5 s."""

CLOSE_S = 10.0
"""How long closing waits for calls that were cancelled. One that ignores that is left behind."""


class Calling(Protocol):
    """Makes calls in one event loop, as ``Caller`` does."""

    async def call(self, args: tuple[Any, ...], key: bytes | None = None) -> Outcome: ...

    async def close(self) -> None: ...


class Called(NamedTuple):
    """A call that has ended."""

    row: int  # its number in the source, from 0
    args: tuple[Any, ...]
    outcome: Outcome


class Window:
    """Calls for all rows of a source.

    Args:
        source: batches of rows; a row is the tuple of arguments of its call. It is used in a thread of its own.
        open_caller: makes the caller, inside the event loop of the window.
        concurrency: calls under way at once.
        ordered: whether results come in the order of the rows.
        key_of: what identifies a call in the journal, given its arguments. None: it is neither looked up nor kept.
    """

    def __init__(
        self,
        source: Iterator[Sequence[tuple[Any, ...]]],
        open_caller: Callable[[], Awaitable[Calling]],
        *,
        concurrency: int,
        ordered: bool,
        key_of: Callable[[tuple[Any, ...]], bytes | None] | None = None,
        buffer: int | None = None,
    ) -> None:
        self._source = source
        self._open_caller = open_caller
        self._concurrency = concurrency
        self._ordered = ordered
        self._key_of = key_of
        self._most = concurrency + (buffer or (ORDERED_BUFFER if ordered else BUFFER))

        # Of the loop's thread.
        self._rows: deque[tuple[Any, ...]] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._started = 0
        self._taken = 0
        self._read_all = False
        self._early: dict[int, Called] = {}  # ended before one that comes first
        self._next = 0  # the row whose result comes next, where order is kept
        self._main: asyncio.Task[None] | None = None

        # Between threads.
        self._ready = threading.Condition()
        self._results: list[Called] = []
        self._ended = False
        self._failure: BaseException | None = None
        self._wanted = threading.Semaphore(2)  # batches that the reader may have read and that are not used up
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def results(self) -> Generator[list[Called], None, None]:
        """Results as they become ready, some at a time. Closing this iterator cancels all calls."""
        looping = threading.Thread(target=self._run, name="tailrace-calls", daemon=True)
        looping.start()
        try:
            while taken := self._take():
                yield taken
            if self._failure is not None:
                raise self._failure
        finally:
            self._close()
            with self._ready:
                self._ready.wait_for(lambda: self._ended, CLOSE_S)

    # -- the thread that asks

    def _take(self) -> list[Called]:
        with self._ready:
            self._ready.wait_for(lambda: self._results or self._ended)
            self._ready.wait_for(lambda: len(self._results) >= FULL or self._ended, LINGER_S)
            if self._failure is not None:
                return []
            taken, self._results = self._results, []
        if taken and not self._ended:
            self._in_loop(self._make_room, len(taken))
        return taken

    def _close(self) -> None:
        self._closed = True
        self._wanted.release()
        self._in_loop(self._cancel)

    def _in_loop(self, function: Callable[..., None], *arguments: Any) -> None:
        try:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            pass  # the loop has ended

    # -- the reader

    def _read(self) -> None:
        error: BaseException | None = None
        try:
            while True:
                self._wanted.acquire()
                if self._closed:
                    return
                batch = next(self._source, None)
                if batch is None:
                    break
                if len(batch):
                    self._in_loop(self._feed, batch)
                else:
                    self._wanted.release()
        except BaseException as raised:
            error = raised
        self._in_loop(self._end_of_rows, error)

    # -- the loop

    def _run(self) -> None:
        try:
            asyncio.run(self._until_ended())
        except BaseException as error:
            self._end(error)

    async def _until_ended(self) -> None:
        """Make all calls and say so, before the loop closes: that waits for threads of ``asyncio.to_thread``, which may
        hang."""
        try:
            await self._all_calls()
        except asyncio.CancelledError:
            self._end(None)
        except BaseException as error:
            self._end(error)
        else:
            self._end(None)

    def _end(self, error: BaseException | None) -> None:
        with self._ready:
            if error is not None and not self._ended:
                self._failure = error
            self._ended = True
            self._ready.notify_all()

    async def _all_calls(self) -> None:
        self._loop, self._main = asyncio.get_running_loop(), asyncio.current_task()
        if self._closed:
            return
        caller = await self._open_caller()
        try:
            threading.Thread(target=self._read, name="tailrace-rows", daemon=True).start()
            async with asyncio.TaskGroup() as calls:
                for _ in range(self._concurrency):
                    calls.create_task(self._call_rows(caller))
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            await caller.close()

    async def _call_rows(self, caller: Calling) -> None:
        key_of = self._key_of
        while True:
            while not self._rows or self._started - self._taken >= self._most:
                if self._read_all and not self._rows:
                    self._wake(len(self._idle))
                    return
                waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._idle.append(waiting)
                await waiting
            args = self._rows.popleft()
            if args is END_OF_BATCH:
                self._wanted.release()
                continue
            row = self._started
            self._started += 1
            outcome = await caller.call(args, key_of(args) if key_of is not None else None)
            self._finish(Called(row, args, outcome))

    def _finish(self, called: Called) -> None:
        if not self._ordered:
            self._hand_over([called])
            return
        self._early[called.row] = called
        ready = []
        while (first := self._early.pop(self._next, None)) is not None:
            ready.append(first)
            self._next += 1
        if ready:
            self._hand_over(ready)

    def _hand_over(self, ready: list[Called]) -> None:
        with self._ready:
            before = len(self._results)
            self._results += ready
            if before == 0 or before < FULL <= len(self._results):
                self._ready.notify()

    def _feed(self, batch: Sequence[tuple[Any, ...]]) -> None:
        self._rows.extend(batch)
        self._rows.append(END_OF_BATCH)
        self._wake(len(batch))

    def _end_of_rows(self, error: BaseException | None) -> None:
        self._read_all = True
        if error is not None:
            self._failure = error
            self._cancel()
        self._wake(len(self._idle))

    def _make_room(self, taken: int) -> None:
        self._taken += taken
        self._wake(taken)

    def _wake(self, most: int) -> None:
        for _ in range(min(most, len(self._idle))):
            waiting = self._idle.popleft()
            if not waiting.done():
                waiting.set_result(None)

    def _cancel(self) -> None:
        if self._main is not None:
            self._main.cancel()


END_OF_BATCH: tuple[Any, ...] = ("end of batch",)
"""Follows the rows of a batch. When it comes up, the reader may take another."""
