"""Threads for plain functions that wait, and may hang.

A function in a thread cannot be cancelled. If its result is no longer wanted, its thread is *given up*: the result is
dropped, and the thread is counted until the function returns. After that it is used again.

Threads are daemons, because a thread that hangs must not keep its process from ending. What is left of tasks that have
ended is counted too, as a process may run one task after the other.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from tailrace.clock import SECOND_NS, system_clock
from tailrace.errors import TailraceError, shorten
from tailrace.runtime.calls.figures import Figures

logger = logging.getLogger("tailrace")

WARN_S = 10.0
"""Calls that wait so long for a free thread are reported, and again whenever the time has doubled."""

MOST_LEFT = 500
"""Threads that hang in a process after their tasks have ended. A Python process of Spark that has as many fails its
next task, and ends with it."""

Answer = tuple[Any, BaseException | None]
"""The value that a function returned, or the error that it raised."""


@dataclass(slots=True, eq=False)
class _Job:
    function: Callable[..., Any]
    args: tuple[Any, ...]
    context: Context
    over: asyncio.Future[None]
    started_ns: int = field(default_factory=system_clock)
    answer: Answer = (None, None)
    thread: int | None = None  # its identity, once the function runs
    returned: bool = False

    def __str__(self) -> str:
        age_s = (system_clock() - self.started_ns) / SECOND_NS
        return f"oldest_s={age_s:.1f} arguments={shorten(self.args)}{self._line()}"

    def _line(self) -> str:
        """Where the user's function is: of its frames the one that was called first."""
        line, frame = "", sys._current_frames().get(self.thread or 0)
        while frame is not None and frame.f_code is not CallThreads._work.__code__:
            if not frame.f_globals.get("__name__", "").startswith("tailrace."):
                line = f" at={frame.f_code.co_filename}:{frame.f_lineno}"
            frame = frame.f_back
        return line


_left: dict[_Job, None] = {}
"""Functions that were given up and had not returned when their tasks ended, the oldest first."""

_left_lock = threading.Lock()  # for it, and for ``returned``


class CallThreads:
    """Runs plain functions for the coroutines of one event loop. It is made, used and closed in that loop.

    Law: there are at most as many threads as functions that are waited for at once, and ``most_given_up``.
    """

    def __init__(self, name: str, most_given_up: int, figures: Figures) -> None:
        self._name = name
        self._most_given_up = most_given_up
        self._figures = figures
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads = 0
        self._free = 0  # threads that wait for a job, or are about to
        self._given_up: dict[_Job, None] = {}  # oldest first
        self._returned = asyncio.Event()  # set for a moment when a function that was given up returns
        self._waiting = 0  # calls that wait for a free thread
        self._warning: asyncio.TimerHandle | None = None
        with _left_lock:
            if len(_left) >= MOST_LEFT:
                raise TailraceError(
                    f"too many functions that were given up have not returned, of earlier tasks of this process: "
                    f"threads={len(_left)} {next(iter(_left))}: has what they call a time limit of its own?"
                )

    async def run(self, function: Callable[..., Any], args: tuple[Any, ...], timeout_s: float | None) -> Answer:
        """Call a function in a thread. If this is cancelled, the thread is given up.

        Raises:
            TimeoutError: the function has not returned in time, or could not be started. Its own errors are returned.
        """
        job: _Job | None = None
        try:
            async with asyncio.timeout(timeout_s):
                if self._is_full:
                    await self._until_one_returns()
                job = self._start(function, args)
                await job.over
        except TimeoutError:
            raise self._none_free() if job is None else self._late(timeout_s) from None
        finally:
            if job is not None and job.over.cancelled():
                self._given_up[job] = None
                self._figures.given_up_threads = len(self._given_up)
        return job.answer

    @property
    def _is_full(self) -> bool:
        return len(self._given_up) >= self._most_given_up

    async def _until_one_returns(self) -> None:
        self._waiting += 1
        if self._warning is None:
            self._warning = self._loop.call_later(WARN_S, self._warn, WARN_S)
        try:
            while self._is_full:
                await self._returned.wait()
        finally:
            self._waiting -= 1

    def _warn(self, waited_s: float) -> None:
        self._warning = None
        if self._waiting and self._is_full:
            logger.warning(
                "calls wait for a thread, because as many that were given up have not returned: function=%s "
                "given_up=%d waited_s=%.0f %s: has what it calls a time limit of its own?",
                *(self._name, len(self._given_up), waited_s, str(next(iter(self._given_up)))),
            )
            self._warning = self._loop.call_later(waited_s, self._warn, 2 * waited_s)

    def _start(self, function: Callable[..., Any], args: tuple[Any, ...]) -> _Job:
        job = _Job(function, args, copy_context(), self._loop.create_future())
        if self._free:
            self._free -= 1
        else:
            self._threads += 1
            threading.Thread(target=self._work, name=f"{self._name}-{self._threads}", daemon=True).start()
        self._jobs.put(job)
        return job

    def _late(self, timeout_s: float | None) -> TimeoutError:
        return TimeoutError(
            f"a plain function was given up because it did not return in time: timeout_s={timeout_s}; "
            "its result is dropped, and its thread goes on: has what it calls a time limit of its own?"
        )

    def _none_free(self) -> TimeoutError:
        return TimeoutError(
            f"no thread is free, because calls that were given up have not returned: given_up={len(self._given_up)} "
            f"{next(iter(self._given_up))}: does the function hang with these?"
        )

    def _work(self) -> None:
        """In a thread."""
        while (job := self._jobs.get()) is not None:
            job.thread = threading.get_ident()
            if not job.over.cancelled():
                try:
                    job.answer = job.context.run(job.function, *job.args), None
                except BaseException as error:
                    job.answer = None, error
            with _left_lock:
                job.returned, job.thread = True, None
                _left.pop(job, None)
            try:
                self._loop.call_soon_threadsafe(self._ended, job)
            except RuntimeError:
                return  # the loop is closed
            del job  # a thread that waits keeps no tuple alive

    def _ended(self, job: _Job) -> None:
        self._free += 1
        if job in self._given_up:
            del self._given_up[job]
            self._figures.given_up_threads = len(self._given_up)
            self._returned.set()
            self._returned.clear()
        elif not job.over.done():
            job.over.set_result(None)

    def close(self) -> None:
        """End the threads: at once, or when what they run returns."""
        if self._warning is not None:
            self._warning.cancel()
        with _left_lock:
            _left.update((job, None) for job in self._given_up if not job.returned)
        for _ in range(self._threads):
            self._jobs.put(None)
