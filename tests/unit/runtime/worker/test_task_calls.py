"""Tasks whose operator has ``calls``, as a worker opens, runs and closes them, without the rest of the worker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tailrace as tr
from kit.neighbours import Worker
from kit.tasks import context_of
from tailrace.clock import SECOND_NS, system_clock
from tailrace.core.assembly import assemble
from tailrace.core.bundles import new_bundle
from tailrace.core.plan.planner import make_plan
from tailrace.core.tasks.deferred import AsyncTask
from tailrace.runtime.calls.ports import LimitClient, Permit
from tailrace.runtime.execution.async_runner import AsyncRunner
from tailrace.runtime.execution.stuck_calls import WARN_NS, StuckCalls
from tailrace.runtime.execution.task_host import TaskHost
from tailrace.runtime.worker.opening import Opener
from tailrace.sim.faults.topologies import SimSink, SimSource
from tailrace.testing.processes import wait_until
from tailrace.topology import Kind, Topology

LEADER = 1  # the task of the operator: the source has one task, number 0


GATE = threading.Event()


def waits(value: Any) -> Any:
    GATE.wait(60)
    return value


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What calls wait for."""
    GATE.clear()
    yield GATE
    GATE.set()


class OpenTask:
    """One task of an operator with ``calls``, opened and running."""

    def __init__(self, body: Any, calls: tr.Calls, **hooks: Any) -> None:
        topology = Topology("t")
        source = topology.source("s", SimSource("s", 5), tasks=1)
        source.map("work", body, calls=calls).sink("out", SimSink(), tasks=1)
        self.plan = make_plan(topology, 1)
        self.opener = Opener(self.plan, 0, 1, "job", 0, 1, lambda *message: None, **hooks)
        bodies = self.opener.open(LEADER, (LEADER,), {})
        task = assemble(LEADER, bodies, context_of(self.plan, system_clock))
        assert isinstance(task, AsyncTask)
        self.task = task
        self.host = TaskHost(task, Worker(), Kind.AUTO)
        self.errors: list[BaseException] = []
        maker = self.opener.calls[LEADER]
        self.task.count_calls = maker.count
        loop = self.opener.loops[LEADER]
        self.runner = AsyncRunner("work/0", self.errors.append, self.host, task, calls.concurrency, loop, maker)
        self.runner.start()

    def give(self, number: int, *values: Any) -> None:
        lineages = [number * 100 + index for index in range(len(values))]
        self.task.receive([new_bundle(number, 0, number, 1 << number, lineages, list(values))])
        self.host.wake()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        wait_until(condition, 30, what)

    @property
    def counters(self) -> Any:
        self.task.show()
        return self.task.counters[0]

    def close(self) -> list[str]:
        self.runner.stop()
        self.runner.join(10)
        return self.opener.close()


class Limit:
    """Grants everything."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.acquired = 0
        self.closed = False

    async def acquire(self, cost: float) -> Permit:
        assert asyncio.get_running_loop() is self.loop
        self.acquired += 1
        return self

    def release(self, used: float | None = None) -> None:
        pass

    def try_acquire(self, cost: float) -> Permit | None:
        return None

    def throttled(self, retry_after_s: float) -> None:
        pass

    async def close(self) -> None:
        assert asyncio.get_running_loop() is self.loop
        self.closed = True


def test_a_limit_is_opened_used_and_closed_in_the_loop_of_the_task() -> None:
    opened: list[Limit] = []

    def open_limit(limit: tr.Limit) -> LimitClient:
        assert limit.name == "api"
        opened.append(Limit())
        return opened[0]

    task = OpenTask(str, tr.Calls(limit=tr.limit("api", per_s=50)), open_limit=open_limit)
    task.give(1, "a", "b", "c")
    task.until(lambda: task.counters.calls == 3, "the calls")
    assert task.close() == []
    assert [(limit.acquired, limit.closed) for limit in opened] == [(3, True)]
    assert not task.errors


def test_a_call_that_hangs_in_a_thread_is_named_and_then_given_up_at_the_end(gate: threading.Event) -> None:
    task = OpenTask(waits, tr.Calls(concurrency=4))
    said: list[str] = []
    calls = StuckCalls(lambda host: None, lambda topic, text: said.append(text))
    task.give(1, {"id": 7})
    task.until(lambda: bool(task.host.oldest_call_ns), "the call")
    calls.look([task.host], system_clock() + WARN_NS)
    assert said == [
        "a call has not returned for 10 s: operator=work task=0 tuple={'id': 7}; "
        "does it wait for something that never comes?"
    ]
    assert task.close() == []  # it does not wait for the thread
    assert task.counters.given_up_threads == 1


def test_a_call_within_its_time_limit_is_not_named(gate: threading.Event) -> None:
    task = OpenTask(waits, tr.Calls(timeout_s=3_600.0))
    task.give(1, 7)
    task.until(lambda: bool(task.runner._calls), "the call")
    assert task.host.oldest_call_ns == 0
    gate.set()
    task.until(lambda: task.counters.calls == 1, "the end of the call")
    task.close()


def test_to_wait_for_a_limit_is_no_work() -> None:
    class Slow(Limit):
        async def acquire(self, cost: float) -> Permit:
            await asyncio.sleep(0.3)
            return await super().acquire(cost)

    task = OpenTask(str, tr.Calls(limit=tr.limit("api", per_s=5)), open_limit=lambda limit: Slow())
    task.give(1, 7)
    task.until(lambda: task.counters.calls == 1, "the call")
    task.task.settle()
    assert task.counters.limit_wait_ns >= 0.3 * SECOND_NS
    assert task.counters.busy_ns < task.counters.limit_wait_ns
    task.close()


def test_an_error_of_a_limit_ends_the_runner() -> None:
    class Broken(Limit):
        async def acquire(self, cost: float) -> Permit:
            raise tr.OptionError("another limit has this name")

    task = OpenTask(str, tr.Calls(limit=tr.limit("api", per_s=5), on_error="skip"), open_limit=lambda limit: Broken())
    task.give(1, 7)
    task.until(lambda: bool(task.errors), "the error")
    assert [str(error) for error in task.errors] == ["another limit has this name"]
    task.close()


@pytest.mark.parametrize("kind", ["open", "close"])
def test_a_coroutine_left_by_open_is_cancelled_at_the_end(kind: str) -> None:
    ended: list[str] = []

    class Session:
        async def open(self, context: tr.Context) -> None:
            self.left = asyncio.ensure_future(self.beat())

        async def beat(self) -> None:
            try:
                await asyncio.sleep(3_600)
            finally:
                ended.append("beat")

        async def process(self, value: int) -> int:
            return value

        if kind == "close":

            async def close(self) -> None:
                ended.append("close")

    task = OpenTask(Session, tr.Calls())
    task.give(1, 7)
    task.until(lambda: task.counters.calls == 1, "the call")
    assert task.close() == []
    assert ended == (["close", "beat"] if kind == "close" else ["beat"])
