"""A call that does not return: it is named, the tasks beside it go on, and no task is ever run by two threads."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kit.neighbours import Worker
from kit.tasks import context_of, task_of
from tailrace.clock import SECOND_NS, system_clock
from tailrace.core.bundles import new_bundle
from tailrace.core.plan.planner import make_plan
from tailrace.core.tasks.deferred import AsyncTask
from tailrace.runtime.execution import stuck_calls
from tailrace.runtime.execution.async_runner import AsyncRunner
from tailrace.runtime.execution.call_sites import call_site_in
from tailrace.runtime.execution.runner import Runner
from tailrace.runtime.execution.stuck_calls import WARN_NS, StuckCalls
from tailrace.runtime.execution.task_host import TaskHost
from tailrace.sim.faults.topologies import SimSink, SimSource
from tailrace.testing.processes import wait_until
from tailrace.topology import Kind, Topology

TASKS = 3


def _same(value: Any) -> Any:
    return value


async def _same_later(value: Any) -> Any:
    return value


class Floor:
    """Tasks of one worker on one runner, and who looks after their calls."""

    def __init__(self, function: Callable[[Any], Any], concurrency: int = 1) -> None:
        topology = Topology("t")
        source = topology.source("s", SimSource("s", 5), tasks=1)
        stand_in: Any = _same_later if asyncio.iscoroutinefunction(function) else _same
        source.map("work", stand_in, tasks=TASKS).sink("out", SimSink(), tasks=1)
        plan = make_plan(topology, 1)
        context = context_of(plan, system_clock)
        self.said: list[str] = []
        self.errors: list[BaseException] = []
        self.runners: list[Runner] = []
        self.hosts: list[TaskHost] = []
        self.shared = Runner("shared", self.errors.append, self._isolate)
        self.runners.append(self.shared)
        self.calls = StuckCalls(self._detach, lambda topic, text: self.said.append(text))
        for number in range(1, 1 + TASKS):
            task = task_of(context, number, function)
            host = TaskHost(task, Worker(), Kind.AUTO)
            self.hosts.append(host)
            if isinstance(task, AsyncTask):
                self.runners.append(AsyncRunner(task.label, self.errors.append, host, task, concurrency))
            else:
                host.shared = True
                self.shared.adopt(host)
        for runner in tuple(self.runners):
            runner.start()

    def _new_runner(self, name: str) -> Runner:
        runner = Runner(name, self.errors.append)
        self.runners.append(runner)
        return runner

    def _isolate(self, host: TaskHost) -> None:
        host.shared = False
        own = self._new_runner(host.label)
        own.adopt(host)
        own.start()

    def _detach(self, host: TaskHost) -> None:
        assert host.runner is not None
        host.shared = False
        host.runner.detach(host, self._new_runner(host.label))

    def give(self, task: int, value: Any, number: int = 1) -> None:
        self.hosts[task].task.receive([new_bundle(number, 0, number, 1 << number % 64, [number], [value])])
        self.hosts[task].wake()

    def look(self, later_ns: int = 0) -> None:
        self.calls.look(self.hosts, system_clock() + later_ns)

    def close(self) -> None:
        for runner in self.runners:
            runner.stop()
        for runner in self.runners:
            runner.join(10)
        assert not self.errors, self.errors


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What calls wait for."""
    one = threading.Event()
    yield one
    one.set()


def _floor_with_a_stuck_call(gate: threading.Event, done: list[Any]) -> Floor:
    entered = threading.Event()

    def work(value: Any) -> Any:
        if value == "stuck":
            entered.set()
            gate.wait(60)
        done.append((value, threading.current_thread().name))
        return value

    floor = Floor(work)
    floor.give(1, "stuck")
    assert entered.wait(30)
    return floor


def test_the_tasks_beside_a_call_that_does_not_return_go_on_in_another_thread(gate: threading.Event) -> None:
    done: list[Any] = []
    floor = _floor_with_a_stuck_call(gate, done)
    for task in range(TASKS):
        floor.give(task, task)
    time.sleep(0.05)
    assert done == [], "they share a thread, so this test shows nothing otherwise"
    floor.look(later_ns=SECOND_NS // 2)
    assert floor.hosts[1].shared, "a call of half a second is left alone"
    floor.look(later_ns=2 * SECOND_NS)
    wait_until(lambda: len(done) == 2, 30, "the others")
    assert {value for value, _ in done} == {0, 2}
    assert floor.hosts[1].runner is not floor.shared and not floor.hosts[1].shared
    gate.set()
    wait_until(lambda: len(done) == 4, 30, "the call to return")
    floor.give(1, "again")
    floor.give(0, "again")
    wait_until(lambda: len(done) == 6, 30, "both to go on")
    by_thread = dict(done)
    assert by_thread["stuck"] == by_thread[1], "its thread stays with it"
    floor.close()


@pytest.mark.parametrize("busy_since_ns", [0, 3 * SECOND_NS], ids=["idle", "in another call"])
def test_a_call_that_returns_while_it_is_looked_at_is_left_alone(busy_since_ns: int) -> None:
    """``look`` finds an old call; when it has the runner's lock that call is over."""
    detached: list[Any] = []
    runner = SimpleNamespace(run_lock=threading.Lock(), call_site_of=lambda host: None)
    host: Any = SimpleNamespace(label="work/0", shared=True, oldest_call_ns=1, runner=runner)
    host.busy_since_ns, host.snapshot_while_busy = busy_since_ns, lambda now_ns: None
    StuckCalls(detached.append, lambda topic, text: None).look([host], 3 * SECOND_NS + 1)
    assert not detached and not runner.run_lock.locked()


def test_a_stuck_task_is_shown_as_busy(gate: threading.Event) -> None:
    floor = _floor_with_a_stuck_call(gate, [])
    floor.give(1, "waits")
    floor.look(later_ns=5 * SECOND_NS)
    before = floor.hosts[1].snapshots[0]
    floor.look(later_ns=7 * SECOND_NS)
    after = floor.hosts[1].snapshots[0]
    assert before.queued == 1 and before.busy_ns > 4 * SECOND_NS
    assert after.busy_ns - before.busy_ns == after.at_ns - before.at_ns
    assert after.sequence > before.sequence
    gate.set()
    floor.close()


def test_a_call_that_does_not_return_is_named_rarely_and_again_when_the_run_drains(gate: threading.Event) -> None:
    floor = _floor_with_a_stuck_call(gate, [])
    for later_ns in range(0, 100 * SECOND_NS, SECOND_NS // 4):
        floor.look(later_ns)
    assert len(floor.said) == 4, "after 10, 20, 40 and 80 seconds"
    text = floor.said[0]
    assert text.startswith("a call has not returned for 10 s: operator=work task=1 tuple='stuck' at=")
    assert text.endswith("; does it wait for something that never comes?")
    assert "threading.py:" in text, "where it stands"
    floor.calls.draining = True
    floor.look(100 * SECOND_NS)
    assert floor.said[4].startswith("a call has not returned for 100 s, and the run cannot end before it does: ")
    gate.set()
    floor.close()


def test_a_coroutine_that_never_ends_is_named() -> None:
    started, events = threading.Event(), []

    async def wait(value: Any) -> Any:
        events.append((asyncio.get_running_loop(), asyncio.Event()))
        started.set()
        await events[0][1].wait()
        return value

    floor = Floor(wait)
    floor.give(2, {"id": 7})
    assert started.wait(30)
    floor.look(later_ns=WARN_NS)
    assert floor.said == [
        "a call has not returned for 10 s: operator=work task=2 tuple={'id': 7}; "
        "does it wait for something that never comes?"
    ]
    loop, event = events[0]
    loop.call_soon_threadsafe(event.set)
    wait_until(lambda: not floor.hosts[2].oldest_call_ns, 30, "the end of the call")
    floor.close()


def test_a_source_that_waits_for_records_is_not_named() -> None:
    here = threading.Event()
    thread = threading.Thread(target=here.wait, args=(60,))
    thread.start()
    assert call_site_in(thread.ident, "s/0") is None
    here.set()
    thread.join()
    assert call_site_in(thread.ident, "s/0") is None, "it is gone"


@pytest.mark.parametrize("seed", range(12))
def test_no_task_is_run_by_two_threads_and_nothing_is_lost(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls take about as long as it takes to be left behind, so that both happen at one moment again and again."""
    monkeypatch.setattr(stuck_calls, "DETACH_NS", 1_000_000)
    rng = Random(seed)
    inside = [threading.Lock() for _ in range(TASKS)]
    ran: Counter[Any] = Counter()

    def work(value: Any) -> Any:
        task, number, seconds = value
        assert inside[task].acquire(blocking=False), "two threads work on one task"
        time.sleep(seconds)
        ran[task, number] += 1
        inside[task].release()
        return value

    floor = Floor(work)
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            floor.look()

    looking = threading.Thread(target=look)
    looking.start()
    given = []
    for number in range(15 * TASKS):  # more would hold them back, as nothing that they send is taken
        task = number % TASKS
        given.append((task, number))
        floor.give(task, (task, number, rng.choice([0, 0, 0.0008, 0.001, 0.0012])), number)
        if rng.random() < 0.3:
            time.sleep(0.001)
    wait_until(lambda: len(ran) == len(given) or floor.errors, 30, "all to be run")
    assert not floor.errors, floor.errors
    over.set()
    looking.join()
    assert ran == Counter(given)
    assert any(not host.shared for host in floor.hosts), "none was left behind, so this test shows nothing"
    floor.close()


def test_who_is_not_in_a_call_is_not_left_behind() -> None:
    """What looks like a long call may have ended since: the run lock says so."""
    host = SimpleNamespace(
        shared=True, oldest_call_ns=1, busy_since_ns=1, label="work/0", snapshot_while_busy=lambda now_ns: None
    )
    host.runner = SimpleNamespace(run_lock=threading.Lock(), call_site_of=lambda host: None)
    left: list[Any] = []
    calls = StuckCalls(left.append, lambda topic, text: None)
    host.runner.run_lock.acquire()
    calls.look([cast(TaskHost, host)], 5 * SECOND_NS)
    assert left == [], "its thread has the lock"
    host.runner.run_lock.release()
    calls.look([cast(TaskHost, host)], 5 * SECOND_NS)
    assert left == [host] and not host.runner.run_lock.locked()
