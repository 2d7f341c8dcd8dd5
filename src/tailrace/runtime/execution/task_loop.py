"""An event loop that outlives the threads that run it: a task is opened, run and closed in one."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from tailrace.errors import TailraceError
from tailrace.runtime.current_task import running_call

CLOSE_S = 1.0
"""Seconds that coroutines have to end when the loop is closed."""


class TaskLoop:
    """The event loop of one task. One thread at a time may run it."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._loop = asyncio.new_event_loop()

    def run(self, steps: Coroutine[Any, Any, Any]) -> Any:
        """Run this coroutine to its end, and whatever else is in the loop meanwhile."""
        if self._loop.is_running():
            steps.close()
            raise TailraceError("its event loop is busy, because a call has not returned")
        return self._loop.run_until_complete(self._labelled(steps))

    async def _labelled(self, steps: Coroutine[Any, Any, Any]) -> Any:
        running_call.set(self._label)
        return await steps

    def close(self) -> None:
        """Cancel what is left in the loop, and close it."""
        if self._loop.is_running():
            return  # a call holds it, which has been reported
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        if left:
            self.run(_ended(left))
        self.run(self._loop.shutdown_asyncgens())
        self._loop.close()


async def _ended(tasks: set[asyncio.Task[Any]]) -> None:
    await asyncio.wait(tasks, timeout=CLOSE_S)
