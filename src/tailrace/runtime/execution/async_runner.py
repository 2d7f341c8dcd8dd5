"""A runner for a task of coroutines: an asyncio loop takes the same turns between its own steps.

As many calls run at once as the operator's ``concurrency`` allows. Results leave in the order in which calls finish.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tailrace.clock import SECOND_NS, system_clock
from tailrace.core.failures import CAUGHT
from tailrace.core.tasks.deferred import AsyncTask
from tailrace.core.tasks.open_bundle import Call
from tailrace.errors import shorten
from tailrace.runtime.current_task import running_call
from tailrace.runtime.execution.call_sites import CallSite
from tailrace.runtime.execution.runner import RunnableTask, Runner
from tailrace.runtime.execution.task_host import TaskHost


class AsyncRunner(Runner):
    """Runs one AsyncTask."""

    def __init__(
        self, name: str, on_error: Callable[[BaseException], None], host: TaskHost, task: AsyncTask, concurrency: int
    ) -> None:
        super().__init__(name, on_error)
        self._task = task
        self._host = host
        self._concurrency = concurrency
        self._calls: dict[asyncio.Task[None], Call] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._over: asyncio.Future[None] | None = None
        self._label = task.label
        self.adopt(host)

    def _loop(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        self._over = loop.create_future()
        loop.add_reader(self.fileno(), self._turn)
        self._turn()
        try:
            await self._over
        finally:
            loop.remove_reader(self.fileno())
            for call in self._calls:
                call.cancel()

    def _turn(self) -> None:
        assert self._over is not None
        if self._over.done():
            return
        try:
            self.awake()
            self.turn(wait=False)
            self._start_calls()
            self._arrange_next_turn()
        except BaseException as error:
            self._over.set_exception(error)
        if self.stopped and not self._over.done():
            self._over.set_result(None)

    def oldest_call_ns(self, host: RunnableTask) -> int:
        call = self._oldest_call()
        return 0 if call is None else call.started_ns

    def call_site_of(self, host: RunnableTask) -> CallSite | None:
        call = self._oldest_call()
        operator, _, task = self._label.rpartition("/")
        return None if call is None else CallSite(operator, int(task), shorten(call.value), "")

    def _oldest_call(self) -> Call | None:
        """The oldest call that is under way. From any thread."""
        started = [call for call in tuple(self._calls.values()) if call.started_ns]
        return min(started, key=lambda call: call.started_ns, default=None)

    @property
    def idle(self) -> bool:
        return super().idle and self._may_start

    @property
    def _may_start(self) -> bool:
        return len(self._calls) < self._concurrency and not self._host.held_back

    def _start_calls(self) -> None:
        while self._may_start:
            call = self._task.next_call()
            if call is None:
                return
            task = asyncio.ensure_future(self._run_call(call))
            self._calls[task] = call
            task.add_done_callback(self._ended)

    async def _run_call(self, call: Call) -> None:
        running_call.set(self._label)
        call.started_ns = system_clock()
        result: Any = None
        try:
            result = await self._task.function(call.value)
        except CAUGHT as error:
            if self._over is None or self._over.done():
                raise  # the runner is being closed
            self._task.failed(call, error)
        else:
            self._task.finished(call, result)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._calls.pop(task, None)
        assert self._over is not None
        if not task.cancelled() and task.exception() is not None and not self._over.done():
            error = task.exception()
            assert error is not None
            self._over.set_exception(error)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(0, self._turn)

    def _arrange_next_turn(self) -> None:
        """Schedule it for when the host wants one. A call that ends, a file, or the bell brings it forward."""
        if self._timer is not None:
            self._timer.cancel()
        able = self._may_start
        self._host.set_able(able)
        sleep_ns = 0 if not self.prepare_sleep() or (able and self._task.queue) else self.sleep_ns
        self._timer = asyncio.get_running_loop().call_later(max(0, sleep_ns) / SECOND_NS, self._turn)
