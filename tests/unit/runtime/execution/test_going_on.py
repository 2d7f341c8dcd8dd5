"""A task that has a runner to itself goes straight on with what is queued, unless something could matter before."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from kit.neighbours import Stepped, Worker
from kit.tasks import context_of, plan_of, task_of
from tailrace.clock import SECOND_NS, system_clock
from tailrace.core.bundles import new_bundle
from tailrace.runtime.execution import task_host
from tailrace.runtime.execution.sender import Sender
from tailrace.runtime.execution.task_host import SLICE_NS, STRAIGHT_ON, TaskHost
from tailrace.topology import Kind

LONG_S = 2 * SLICE_NS / SECOND_NS


class Desk:
    """One task of a filter that keeps nothing, and a runner whose turns the test takes."""

    def __init__(self, body: Callable[[Any], Any]) -> None:
        plan = plan_of(lambda source: source.filter("work", body, tasks=1))
        context = context_of(plan, system_clock)
        self.host = TaskHost(task_of(context), Worker(), Kind.AUTO)
        self.runner = Stepped("work/0")
        self.runner.adopt(self.host)

    def put(self, tuples: int) -> None:
        self.host.task.receive([new_bundle(n, 0, n, n, [n], [n]) for n in range(1, tuples + 1)])


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may stretch the calls of a turn beyond the time that a turn may take."""
    monkeypatch.setattr(task_host, "STRAIGHT_ON_NS", 60 * SECOND_NS)


def test_long_calls_follow_each_other_in_one_turn() -> None:
    called: list[int] = []
    desk = Desk(lambda value: called.append(value) or time.sleep(LONG_S))
    desk.put(STRAIGHT_ON + 3)
    desk.runner.step(1)
    assert called == list(range(1, STRAIGHT_ON + 1)), "in order, and no more before links are read"
    desk.runner.step(1)
    assert len(called) == STRAIGHT_ON + 3


def test_not_for_longer_than_links_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_host, "STRAIGHT_ON_NS", SLICE_NS)
    called: list[int] = []
    desk = Desk(lambda value: called.append(value) or time.sleep(LONG_S))
    desk.put(3)
    for turn in (1, 2, 3):
        desk.runner.step(1)
        assert len(called) == turn


def test_on_a_shared_runner_others_have_their_turn() -> None:
    called: list[int] = []
    desk = Desk(lambda value: called.append(value) or time.sleep(LONG_S))
    desk.host.shared = True
    desk.put(3)
    desk.runner.step(1)
    assert called == [1]


def test_a_message_comes_before_the_next_call() -> None:
    happened: list[Any] = []

    def body(value: int) -> None:
        happened.append(value)
        if value == 1:
            desk.host.post(lambda: happened.append("message"))
        time.sleep(LONG_S)

    desk = Desk(body)
    desk.put(3)
    desk.runner.step(2)
    assert happened == [1, "message", 2, 3]


def test_coroutines_that_wait_to_be_started_cost_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[Sender] = []
    flush = Sender.flush
    monkeypatch.setattr(Sender, "flush", lambda self: (flushed.append(self), flush(self))[1])

    async def body(value: int) -> bool:
        return False

    desk = Desk(body)
    desk.put(3)
    desk.runner.step(1)
    assert len(flushed) == 1
