"""Runs that are given as many ports as they have processes: a worker's port may be taken when its successor comes."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tailrace as tr
from kit.network.ports import HERE, free_ports
from kit.runs import assert_same_rows, finish, progress_now, received, restarts, running, same
from tailrace.runtime.driver.host import SubprocessHost
from tailrace.runtime.driver.run import HostedRun
from tailrace.runtime.listening import LOOPBACK
from tailrace.runtime.options import RunSettings
from tailrace.testing.processes import is_alive, listening_ports, wait_until

ROWS = 1_500
WORKERS = 2

IMPATIENT = """\
from tailrace.runtime import listening
listening.FREE_S = 0.2
from tailrace.runtime.__main__ import main
main()
"""
"""A worker that waits for a port for less than ten seconds."""


def topology(out: Any) -> tr.Topology:
    topology = tr.Topology("exact-ports")
    topology.source("numbers", tr.at_rate(range(ROWS), 500)).map("same", same, tasks=2).sink("out", out)
    return topology


def test_a_stopped_worker_is_replaced_although_it_has_its_port() -> None:
    out = tr.to_list()
    ports = str(free_ports(WORKERS + 1))
    with running(topology(out), workers=WORKERS, port=ports, heartbeat_timeout_s=1.0) as run:
        wait_until(lambda: received(run, "out") > 100, 30, "some rows")
        victim = run.workerPids()[1]
        os.kill(victim, signal.SIGSTOP)
        progress = finish(run)
    assert_same_rows(out.values, range(ROWS))
    assert restarts(progress) == [0, 1]
    assert not is_alive(victim)


def test_a_successor_without_a_port_is_started_once_more_and_the_run_goes_on(tmp_path: Path) -> None:
    script = tmp_path / "impatient.py"
    script.write_text(IMPATIENT)
    out = tr.to_list()
    host = SubprocessHost({worker: [sys.executable, str(script)] for worker in range(WORKERS)})
    settings = RunSettings(workers=WORKERS, port=str(free_ports(WORKERS + 1)))
    run = HostedRun(topology(out), settings, host, LOOPBACK)
    try:
        wait_until(lambda: received(run, "out") > 100 or not run.isActive, 30, "some rows")
        victim = run.workerPids()[1]
        (port,) = listening_ports(victim)
        os.kill(victim, signal.SIGKILL)
        with taken(port):
            wait_until(lambda: restarts(progress_now(run))[1] > 1 or not run.isActive, 30, "a successor's failure")
        progress = finish(run)
    finally:
        if run.isActive:
            run.stop(timeout=1)
    assert_same_rows(out.values, range(ROWS))
    assert restarts(progress)[1] > 1


@contextmanager
def taken(port: int) -> Iterator[None]:
    """A stranger listens on the port, from the moment on that it is free."""
    deadline_s = time.monotonic() + 10
    while True:
        try:
            listener = socket.create_server((HERE, port))
            break
        except OSError:
            assert time.monotonic() < deadline_s, "the port was never free"
    with listener:
        yield
