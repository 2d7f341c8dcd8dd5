"""The runners of a worker: one that tasks with short calls share, and one for each task whose calls may be long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from tailrace.core.plan.plan import Plan
from tailrace.core.tasks.deferred import AsyncTask
from tailrace.runtime.execution.async_runner import AsyncRunner
from tailrace.runtime.execution.runner import RunnableTask, Runner
from tailrace.runtime.execution.task_host import TaskHost
from tailrace.runtime.worker.opening import Opener
from tailrace.topology import Kind


class Runners:
    """``on_error`` is called, in the thread of a runner, with what ended it."""

    def __init__(self, on_error: Callable[[BaseException], None]) -> None:
        self._on_error = on_error
        self.shared = Runner("shared", on_error, self._isolate)
        self._runners: list[Runner] = []

    def new(self, name: str) -> Runner:
        """A runner that is yet to be started."""
        runner = Runner(name, self._on_error)
        self._runners.append(runner)
        return runner

    def start(self, hosts: Iterable[TaskHost], plan: Plan, opener: Opener) -> None:
        """Give each host its runner, and start all runners. ``opener`` has opened their tasks."""
        self._runners.append(self.shared)
        for host in hosts:
            task = host.task
            if isinstance(task, AsyncTask):
                concurrency = plan.operators[plan.operator_of[task.number]].operator.options["concurrency"]
                loop, calls = opener.loops.get(task.number), opener.calls.get(task.number)
                if calls is not None:
                    task.count_calls = calls.count
                self._runners.append(AsyncRunner(task.label, self._on_error, host, task, concurrency, loop, calls))
            elif host.kind is Kind.BLOCKING:
                self.new(task.label).adopt(host)
            else:
                host.shared = True
                self.shared.adopt(host)
        for runner in self._runners:
            runner.start()

    def for_send_loop(self, hosts: Iterable[TaskHost]) -> Runner:
        """The shared runner, unless tasks stay there whose calls may be long."""
        if not any(host.kind is Kind.CPU for host in hosts):
            return self.shared
        own = self.new("send")
        own.start()
        return own

    def detach(self, host: TaskHost) -> None:
        """A call of this host does not return: have the others of its runner go on. The caller holds the run lock."""
        assert host.runner is not None
        if host.shared_input is not None:
            host.shared_input.request_own_runners()
            host.wants_own_runner = False
        host.runner.detach(host, self._own_runner(host))

    def _isolate(self, host: RunnableTask) -> None:
        """Give this host, which the shared runner has let go, a runner of its own."""
        own = self._own_runner(host)
        own.adopt(host)
        own.start()

    def _own_runner(self, host: RunnableTask) -> Runner:
        host.leave_shared_runner()
        return self.new(host.label)

    def stop(self, timeout_s: float) -> None:
        """Stop all runners, and wait for them. One in a call that does not return is left alone after the timeout."""
        for runner in self._runners:
            runner.stop()
        deadline = time.monotonic() + timeout_s
        for runner in self._runners:
            runner.join(max(0.05, deadline - time.monotonic()))
