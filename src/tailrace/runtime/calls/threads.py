"""Threads for plain functions that wait, and may hang.

A function in a thread cannot be cancelled. If its result is no longer wanted, its thread is *given up*: the result is
dropped, and the thread is counted until the function returns. After that it is used again.

Threads are daemons, because a thread that hangs must not keep its process from ending.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from tailrace.clock import SECOND_NS, system_clock
from tailrace.errors import shorten
from tailrace.runtime.calls.figures import Figures

Answer = tuple[Any, BaseException | None]
"""What a function returned, or what it raised."""


@dataclass(slots=True, eq=False)
class _Job:
    function: Callable[..., Any]
    args: tuple[Any, ...]
    context: Context
    over: asyncio.Future[None]
    started_ns: int = field(default_factory=system_clock)
    answer: Answer = (None, None)


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

    async def run(self, function: Callable[..., Any], args: tuple[Any, ...], timeout_s: float | None) -> Answer:
        """Call a function in a thread. If this is cancelled, the thread is given up.

        Raises:
            TimeoutError: the function has not returned in time, or could not be started. Its own errors are returned.
        """
        job: _Job | None = None
        try:
            async with asyncio.timeout(timeout_s):
                while len(self._given_up) >= self._most_given_up:
                    await self._returned.wait()
                job = self._start(function, args)
                await job.over
        except TimeoutError:
            raise self._none_free() if job is None else self._late(timeout_s) from None
        finally:
            if job is not None and job.over.cancelled():
                self._given_up[job] = None
                self._figures.given_up_threads = len(self._given_up)
        return job.answer

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
        oldest = next(iter(self._given_up))
        age_s = (system_clock() - oldest.started_ns) / SECOND_NS
        return TimeoutError(
            f"no thread is free, because calls that were given up have not returned: given_up={len(self._given_up)} "
            f"oldest_s={age_s:.1f} arguments={shorten(oldest.args)}: does the function hang with these?"
        )

    def _work(self) -> None:
        """In a thread."""
        while (job := self._jobs.get()) is not None:
            if not job.over.cancelled():
                try:
                    job.answer = job.context.run(job.function, *job.args), None
                except BaseException as error:
                    job.answer = None, error
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
        for _ in range(self._threads):
            self._jobs.put(None)
