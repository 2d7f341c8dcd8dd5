"""A worker whose driver cannot be trusted any more ends its process, also where that would be given back to Spark."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

import tailrace as tr
from kit.network.relays import Relay
from kit.runs import assert_same_rows, finish, received, restarts, same
from tailrace.runtime.driver.host import Exited, SubprocessHost
from tailrace.runtime.driver.run import HostedRun
from tailrace.runtime.links.control import Bootstrap
from tailrace.runtime.listening import LOOPBACK
from tailrace.runtime.options import RunSettings
from tailrace.testing.processes import wait_until

ROWS = 1_000
WORKERS = 2

TASK = """\
import os, pickle, sys, time
from tailrace.runtime.links.control import Bootstrap
from tailrace.spark.task import as_worker

as_worker(pickle.dumps(Bootstrap.from_json(sys.stdin.read())))
open(os.path.join(sys.argv[1], str(os.getpid())), "w").close()
time.sleep(60)
"""
"""What a Python of Spark does: it becomes a worker, and waits for the next task when it is given back."""


class ReusingHost(SubprocessHost):
    """Its workers run as in Spark, and worker 0 reaches the driver through a relay."""

    def __init__(self, folder: Path) -> None:
        script = folder / "task.py"
        script.write_text(TASK)
        super().__init__({worker: [sys.executable, str(script), str(folder)] for worker in range(WORKERS)})
        self.relay: Relay | None = None

    def start(self, bootstrap: Bootstrap, exited: Exited) -> None:
        if bootstrap.worker == 0:
            if self.relay is None:
                self.relay = Relay(bootstrap.address)
                self.relay.__enter__()
            bootstrap = replace(bootstrap, address=self.relay.address)
        super().start(bootstrap, exited)

    def close(self) -> None:
        super().close()
        if self.relay is not None:
            self.relay.__exit__(None, None, None)


@pytest.mark.parametrize("encrypt", [False, True])
def test_a_worker_that_hears_a_forged_message_ends_with_its_process(encrypt: bool, tmp_path: Path) -> None:
    """Its tasks and its heartbeat would go on otherwise, in an interpreter that runs something else by then."""
    out = tr.to_list()
    topology = tr.Topology("given-back")
    topology.source("numbers", tr.at_rate(range(ROWS), 500)).map("same", same, tasks=2).sink("out", out)
    host = ReusingHost(tmp_path)
    run = HostedRun(topology, RunSettings(workers=WORKERS, encrypt=encrypt), host, LOOPBACK)
    try:
        wait_until(lambda: received(run, "out") > 50 or not run.isActive, 60, "the first rows")
        victim = run.workerPids()[0]
        assert host.relay is not None
        host.relay.add_back(bytes(100))
        wait_until(lambda: run.workerPids().get(0, victim) != victim or not run.isActive, 30, "another worker")
        progress = finish(run)
    finally:
        if run.isActive:
            run.stop(timeout=1)
    assert_same_rows(out.values, range(ROWS))
    assert restarts(progress) == [1, 0]
    assert not (tmp_path / str(victim)).exists(), "its process was given back"
