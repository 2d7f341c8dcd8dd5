"""A runner for a task of coroutines: an asyncio loop takes the same turns between its own steps.

As many calls run at once as the operator's ``concurrency`` allows. Results leave in the order in which calls finish.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from operator import itemgetter
from typing import Any

from tailrace.clock import SECOND_NS, system_clock
from tailrace.core.failures import CAUGHT
from tailrace.core.tasks.deferred import AsyncTask
from tailrace.core.tasks.open_bundle import Call
from tailrace.errors import shorten
from tailrace.runtime.current_task import running_call
from tailrace.runtime.execution.call_sites import CallSite
from tailrace.runtime.execution.ports import CallMaker
from tailrace.runtime.execution.runner import RunnableTask, Runner
from tailrace.runtime.execution.task_host import TaskHost
from tailrace.runtime.execution.task_loop import TaskLoop


class AsyncRunner(Runner):
    """Runs one AsyncTask.

    Args:
        name: of its thread.
        on_error: is called with what ended it.
        host: of the task.
        task: what it runs.
        concurrency: calls under way at once.
        loop: the event loop that the task was opened in, if it was. It is left open.
        maker: makes the calls; without it they are made directly.
    """

    def __init__(
        self,
        name: str,
        on_error: Callable[[BaseException], None],
        host: TaskHost,
        task: AsyncTask,
        concurrency: int,
        loop: TaskLoop | None = None,
        maker: CallMaker | None = None,
    ) -> None:
        super().__init__(name, on_error)
        self._task_loop = loop
        self._maker = maker
        self._task = task
        self._host = host
        self._concurrency = concurrency
        self._calls: dict[asyncio.Task[None], Call] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._over: asyncio.Future[None] | None = None
        self._label = task.label
        self.adopt(host)

    def _loop(self) -> None:
        if self._task_loop is None:
            asyncio.run(self._serve())
        else:
            self._task_loop.run(self._serve())

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        self._over = loop.create_future()
        loop.add_reader(self.fileno(), self._turn)
        self._turn()
        try:
            await self._over
        finally:
            loop.remove_reader(self.fileno())
            if self._timer is not None:
                self._timer.cancel()
            calls = tuple(self._calls)
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)

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
        return 0 if call is None else call[0]

    def call_site_of(self, host: RunnableTask) -> CallSite | None:
        call = self._oldest_call()
        operator, _, task = self._label.rpartition("/")
        return None if call is None else CallSite(operator, int(task), shorten(call[1]), "")

    def _oldest_call(self) -> tuple[int, Any] | None:
        """When the oldest call that is under way began, and its tuple. From any thread."""
        if self._maker is not None:
            return self._maker.oldest()
        started = [(call.started_ns, call.value) for call in tuple(self._calls.values()) if call.started_ns]
        return min(started, key=itemgetter(0), default=None)

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
            steps = self._run_call(call) if self._maker is None else self._make_call(self._maker, call)
            task = asyncio.ensure_future(steps)
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

    async def _make_call(self, maker: CallMaker, call: Call) -> None:
        running_call.set(self._label)
        call.started_ns = system_clock()
        if not maker.is_needed(call):
            self._task.left_over(call)
            return
        result, error = await maker.make(call)
        if error is None:
            self._task.finished(call, result)
        else:
            self._task.failed(call, error)

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
