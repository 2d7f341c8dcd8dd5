"""Two workers are cut from each other, and both reach the driver: it is noticed, told, mended, and ends exact."""

from __future__ import annotations

import logging

import pytest

import tailrace as tr
from kit.runs import assert_same_rows, await_recovery, finish, received, restarts, same
from tailrace.runtime.driver.host import SubprocessHost
from tailrace.runtime.driver.run import HostedRun
from tailrace.runtime.listening import Place
from tailrace.runtime.options import RunSettings
from tailrace.testing.namespaces import Namespaces, why_no_namespaces
from tailrace.testing.processes import wait_until

ROWS = 2_000
NO_NAMESPACES = why_no_namespaces()

pytestmark = pytest.mark.skipif(NO_NAMESPACES is not None, reason=f"no network namespaces: {NO_NAMESPACES}")


def test_a_way_that_is_cut_is_noticed_and_mended(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "tailrace")
    out = tr.to_list()
    topology = tr.Topology("cut")
    topology.source("numbers", tr.at_rate(range(ROWS), 400)).map("same", same).sink("out", out)
    with Namespaces(2) as network:
        host = SubprocessHost({worker: machine.prefix for worker, machine in enumerate(network.machines)})
        options = RunSettings(workers=2, heartbeat_timeout_s=1.5)
        run = HostedRun(topology, options, host, Place(network.address, network.address))
        try:
            wait_until(lambda: received(run, "out") > 100, 60, "the first rows")
            for machine in network.machines:
                machine.isolate(True)
            await_recovery(run)
            wait_until(lambda: "cannot reach worker" in caplog.text, 60, "the user to be told")
            for machine in network.machines:
                machine.isolate(False)
            progress = finish(run)
        finally:
            run.stop(timeout=5)
    assert_same_rows(out.values, list(range(ROWS)))
    assert restarts(progress) == [0, 0], "both workers were there all the time"
    assert progress["recoveries"] <= 4, "of a cut, each end notices what it has lost, and that is all"
    worker, other = network.machines
    assert f"address={worker.address}:" in caplog.text or f"address={other.address}:" in caplog.text
    assert "does a firewall keep workers from each other?" in caplog.text
