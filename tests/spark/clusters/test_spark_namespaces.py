"""A cluster whose machines share no loopback: tuples, acks, feedback and cancels go over a network that may be cut."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import tailrace as tr
from kit.runs import durable, finish, kill
from kit.spark import Sessions, running_on, standalone_cluster
from tailrace.testing.namespaces import Namespaces, why_no_namespaces
from tailrace.testing.processes import wait_until

ROWS = 4_000
NO_NAMESPACES = why_no_namespaces()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.skipif(NO_NAMESPACES is not None, reason=f"no network namespaces: {NO_NAMESPACES}"),
]


@pytest.fixture(scope="module")
def network() -> Iterator[Namespaces]:
    with Namespaces(2) as network:
        yield network


@pytest.fixture(scope="module")
def url(sessions: Sessions, network: Namespaces, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    hosts = {machine.address: machine.prefix for machine in network.machines}
    folder = tmp_path_factory.mktemp("cluster")
    with standalone_cluster(sessions, folder, network.address, hosts) as (url, _):
        yield url


def sometimes_late(number: int) -> int:
    time.sleep(0.08 if random.random() < 0.02 else 0.001)
    return number


def row(number: int) -> dict[str, int]:
    return {"n": number}


def topology(grouping: object) -> tuple[tr.Topology, list[dict[str, int]]]:
    topology = tr.Topology("far")
    numbers = topology.source("numbers", tr.at_rate(range(ROWS), 800))
    rows: list[dict[str, int]] = []
    late = numbers.map("late", sometimes_late, tasks=6, kind="blocking", grouping=grouping)
    late.map("row", row, tasks=4, grouping=tr.fields(abs)).sink("out", tr.to_list(rows))
    return topology, rows


@pytest.mark.parametrize(
    "grouping", [pytest.param(tr.pull(), id="pull"), pytest.param(tr.shuffle(), id="shuffle", marks=pytest.mark.soak)]
)
def test_a_machine_is_cut_off_and_a_worker_killed(
    grouping: object, url: str, sessions: Sessions, network: Namespaces
) -> None:
    conf = {"spark_executor_memory": "512m", "spark_executor_cores": "2"}
    conf |= {"spark_driver_host": network.address, "spark_driver_bindAddress": network.address}
    spark = sessions.get(url, **conf)
    far, rows = topology(grouping)
    machine = network.machines[0]
    machine.limit(mbit=50)
    with running_on(spark, far, workers=3, tail=tr.Tail(hedge=tr.fixed_timeout(30))) as run:
        networks = {Path(f"/proc/{pid}/ns/net").readlink() for pid in run.workerPids().values()}
        assert len(networks - {Path("/proc/self/ns/net").readlink()}) == 2, "workers are on both machines"
        wait_until(lambda: durable(run) > ROWS // 5, 60, "a fifth")
        machine.plug(False)
        time.sleep(1.0)
        machine.plug(True)
        wait_until(lambda: durable(run) > ROWS // 2, 60, "half of it")
        kill(run, 1)
        progress = finish(run, 120)
    assert progress["recoveries"] >= 1 and progress["replay"]["hedges"] > 0
    assert sorted(entry["n"] for entry in rows) == list(range(ROWS))
