"""The coordinator at work, without any worker: what it takes for a sign of life, and whom it takes in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tailrace.clock import SECOND_NS
from tailrace.core.plan.planner import make_plan
from tailrace.core.protocol.messages import Abandon, Alive, Command, Ready, Registered
from tailrace.runtime.connectors import from_iterable, to_list
from tailrace.runtime.driver import server as module
from tailrace.runtime.driver.checkpoint import Checkpoint
from tailrace.runtime.driver.server import CoordinatorServer
from tailrace.runtime.links.control import A_COPY
from tailrace.runtime.listening import LOOPBACK
from tailrace.runtime.options import RunSettings
from tailrace.topology import Topology


class NoHost:
    fails = 0
    started = 0

    def start(self, bootstrap: Any, exited: Any) -> None:
        if self.fails:
            self.fails -= 1
            raise OSError("Too many open files")
        self.started += 1

    def abandon(self, worker: int, epoch: int, silent: bool = False) -> None: ...
    def close(self) -> None: ...


@dataclass
class Line:
    """A worker's connection."""

    arrived_ns: int
    waiting: bool = False

    def send(self, message: Any) -> None: ...
    def close(self) -> None: ...


class Driver:
    """A server whose clock is turned by hand and whose thread does not run. Its one worker is ready."""

    def __init__(self, server: CoordinatorServer, turn: Callable[[int], None]) -> None:
        self.server = server
        self.turn_clock = turn
        self.now_ns = 1000 * SECOND_NS
        turn(self.now_ns)
        server._turned_ns = self.now_ns
        core = server._core
        core.start(self.now_ns)
        core.stored(self.now_ns)
        core.handle(Registered(0, 1, ("host", 4000), 1, "host"), self.now_ns)
        core.handle(Ready(0, 1), self.now_ns)
        self.line = Line(self.now_ns)
        server._connections._connections[0, 1] = self.line  # type: ignore[assignment]

    def tick(self, after_s: float) -> list[Command]:
        self.now_ns += int(after_s * SECOND_NS)
        self.turn_clock(self.now_ns)
        return self.server._tick()

    def lost(self, seconds: int) -> bool:
        """Whether the worker is declared dead while the driver judges ten times a second."""
        return any(isinstance(command, Abandon) for _ in range(10 * seconds) for command in self.tick(0.1))


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    topology = Topology("t")
    topology.source("s", from_iterable(range(3))).sink("out", to_list())
    plan = make_plan(topology, 1)
    checkpoint = Checkpoint(None, plan)
    server = CoordinatorServer(plan, RunSettings(workers=1), NoHost(), checkpoint, "run", LOOPBACK)
    now = [0]
    monkeypatch.setattr(module, "system_clock", lambda: now[0])
    yield Driver(server, lambda ns: now.__setitem__(0, ns))
    server._connections.stop_accepting()


def test_a_worker_of_which_nothing_comes_is_dead(driver: Driver) -> None:
    assert not driver.lost(3) and driver.lost(1)


def test_a_driver_that_stood_still_excuses_before_it_judges(driver: Driver) -> None:
    assert driver.tick(10) == [] and not driver.lost(3)
    assert driver.lost(1), "afterwards silence counts again"


def test_what_has_arrived_counts_though_it_waits_in_the_queue(driver: Driver) -> None:
    for _ in range(100):
        driver.line.arrived_ns = driver.now_ns
        driver.server._post(lambda: driver.server._core.handle(Alive(0, 1), 0))
        assert driver.tick(0.1) == []


def test_what_nobody_has_read_yet_has_arrived(driver: Driver) -> None:
    driver.line.waiting = True
    assert not driver.lost(10)
    driver.line.waiting = False
    assert driver.lost(4)


def test_a_worker_that_cannot_be_started_for_a_moment_is_tried_again(driver: Driver) -> None:
    server, host = driver.server, NoHost()
    server._host, host.fails = host, 3
    server._execute(server._core.exited(0, 1, "killed", driver.now_ns))
    for _ in range(30):
        driver.now_ns += SECOND_NS // 10
        driver.turn_clock(driver.now_ns)
        server._execute(server._start_again())
    assert (host.fails, host.started) == (0, 1)
    (_, _, text) = server._display._lines[-1]
    assert text == ("a worker cannot be started yet: worker=0 cause=Too many open files; are there too many processes?")


def test_of_two_copies_that_come_at_once_one_is_taken_in(driver: Driver) -> None:
    connections = driver.server._connections
    assert connections.admit(0, 1) is None
    assert connections.admit(0, 1) == f"epoch 1 of worker 0 is not expected: {A_COPY}"
    assert connections.admit(0, 2) == "epoch 2 of worker 0 is not expected: the newest is 1"
    assert connections.admit(7, 1) == "this run has no worker 7"
