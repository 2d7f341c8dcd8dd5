"""Encrypted runs: who stands between their processes reads nothing and adds nothing, and kills leave them exact."""

from __future__ import annotations

import pickle
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import tailrace as tr
from kit.network.relays import Relay
from kit.runs import (
    assert_same_rows,
    await_recovery,
    coordinator,
    finish,
    homes,
    kill,
    received,
    restarts,
    running,
    same,
)
from tailrace.runtime.driver.host import Exited, SubprocessHost
from tailrace.runtime.driver.run import HostedRun
from tailrace.runtime.links.control import Bootstrap
from tailrace.runtime.links.frames import BUNDLES, MESSAGE, frame
from tailrace.runtime.listening import WORKER_ADDRESS, WORKER_BIND, Place, Ports
from tailrace.runtime.options import RunSettings
from tailrace.testing.namespaces import Namespaces, why_no_namespaces
from tailrace.testing.processes import listening_ports, wait_until

ROWS = 1_500
WORKERS = 2
MARKER = "no-stranger-may-read-this"
NO_NAMESPACES = why_no_namespaces()

on_two_machines = pytest.mark.skipif(NO_NAMESPACES is not None, reason=f"no network namespaces: {NO_NAMESPACES}")


def mark(number: int) -> str:
    return f"{MARKER} {number}"


def topology(out: Any) -> tr.Topology:
    """Marked tuples go from one worker to the other, and marked rows to the driver."""
    topology = tr.Topology("encrypted")
    topology.source("numbers", tr.at_rate(range(ROWS), 500)).map("mark", mark).map("same", same).sink("out", out)
    assert homes(topology, WORKERS, "mark") != homes(topology, WORKERS, "same")
    return topology


EXPECTED = [mark(number) for number in range(ROWS)]


@pytest.mark.parametrize(("ring", "victim"), [(False, 0), (True, 1)])
def test_a_worker_is_killed(ring: bool, victim: int) -> None:
    """Through shared memory, TLS guards no more than how a link begins, and that it has ended."""
    out = tr.to_list()
    with running(topology(out), workers=WORKERS, encrypt=True, ring=ring) as run:
        wait_until(lambda: received(run, "out") > 200, 30, "some rows")
        kill(run, victim)
        finish(run)
    assert_same_rows(out.values, EXPECTED)


def test_limits_and_techniques_of_an_encrypted_run() -> None:
    """Every kind of link: bundles, acks, feedback, cancels, the words of an uplink; and the limits of the driver."""
    rows: list[int] = []
    topology = tr.Topology("all-kinds")
    numbers = topology.source("numbers", tr.at_rate(range(ROWS), 500))
    calls = tr.Calls(limit=tr.limit("encrypted-api", per_s=5000))
    called = numbers.map("called", same, tasks=2, calls=calls, grouping=tr.pull())
    called.map("more", same, tasks=2).sink("out", tr.to_list(rows))
    tail = tr.Tail(hedge=tr.fixed_timeout(20), send=tr.lbf())
    options: dict[str, Any] = {"link_mbps": 100, "link_scope": "node", "tail": tail, "ring": False}
    with running(topology, workers=WORKERS, encrypt=True, **options) as run:
        progress = finish(run)
    assert_same_rows(rows, range(ROWS))
    assert restarts(progress) == [0, 0] and progress["recoveries"] == 0


def test_without_the_package_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.x509", None)
    with pytest.raises(tr.OptionError, match="encryption needs the package cryptography on the driver"):
        topology(tr.to_list()).run(workers=WORKERS, encrypt=True)


@pytest.fixture
def port() -> Iterator[int]:
    """One that is taken. Its neighbours most likely are not."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


def test_processes_listen_on_the_ports_that_were_asked_for(port: int) -> None:
    ports = range(port, port + 30) if port < 65_000 else range(port - 30, port + 1)
    out = tr.to_list()
    with running(topology(out), workers=WORKERS, port=f"{ports[0]}-{ports[-1]}") as run:
        taken = [
            coordinator(run).address[1],
            *(one for pid in run.workerPids().values() for one in listening_ports(pid)),
        ]
        finish(run)
    assert_same_rows(out.values, EXPECTED)
    assert len(set(taken)) == 1 + WORKERS and set(taken) <= set(ports) - {port}


def test_a_driver_without_a_port_is_refused(port: int) -> None:
    with pytest.raises(tr.OptionError, match=f"no port is free: address=127.0.0.1 port={port};"):
        topology(tr.to_list()).run(workers=WORKERS, port=port)


def test_workers_without_a_port_end_the_run_and_it_says_why() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    run = topology(tr.to_list()).run(workers=1, port=port)  # the driver takes it
    with pytest.raises(tr.OptionError, match=f"no port is free: address=127.0.0.1 port={port};"):
        run.awaitTermination(60)


# -- with somebody in the middle


@dataclass
class Middle:
    """Relays between all processes of a run."""

    run: HostedRun
    control: Relay
    links: list[Relay]


class RelayedHost(SubprocessHost):
    """Workers that reach the driver, and each other, through relays."""

    def __init__(self, network: Namespaces, stack: ExitStack) -> None:
        variables = [
            ("env", f"{WORKER_ADDRESS}={network.address}", f"{WORKER_BIND}={machine.address}")
            for machine in network.machines
        ]
        prefixes = [[*machine.prefix, *variable] for machine, variable in zip(network.machines, variables, strict=True)]
        super().__init__(dict(enumerate(prefixes)))
        self.control: Relay | None = None
        self._network, self._stack = network, stack
        here = (network.address, 0)
        self.links = [stack.enter_context(Relay((machine.address, 0), here)) for machine in network.machines]
        for relay in self.links:
            relay.target = (relay.target[0], relay.address[1])

    def start(self, bootstrap: Bootstrap, exited: Exited) -> None:
        if self.control is None:
            self.control = self._stack.enter_context(Relay(bootstrap.address, (self._network.address, 0)))
        port = self.links[bootstrap.worker].address[1]
        super().start(replace(bootstrap, address=self.control.address, ports=Ports(port, port)), exited)


@contextmanager
def in_the_middle(topology: tr.Topology, *, encrypt: bool) -> Iterator[Middle]:
    with Namespaces(WORKERS) as network, ExitStack() as stack:
        host = RelayedHost(network, stack)
        options = RunSettings(workers=WORKERS, encrypt=encrypt, ring=False)
        run = HostedRun(topology, options, host, Place(network.address, network.address))
        try:
            wait_until(lambda: received(run, "out") > 100 or not run.isActive, 60, "the first rows")
            assert host.control is not None and run.isActive, run.exception()
            yield Middle(run, host.control, host.links)
        finally:
            if run.isActive:
                run.stop(timeout=5)


@on_two_machines
@pytest.mark.parametrize("encrypt", [False, True])
def test_who_reads_on_the_way_finds_tuples_only_where_they_go_in_clear(encrypt: bool) -> None:
    out = tr.to_list()
    with in_the_middle(topology(out), encrypt=encrypt) as middle:
        kill(middle.run, 1)
        finish(middle.run)
        assert_same_rows(out.values, EXPECTED)
        readable = [MARKER.encode() in relay.seen for relay in (middle.control, *middle.links)]
        assert all(len(relay.seen) > 10_000 for relay in (middle.control, *middle.links)), "nothing came by"
    assert readable[0] is not encrypt and any(readable[1:]) is not encrypt


class Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@on_two_machines
@pytest.mark.parametrize("where", ["links", "control"])
def test_who_adds_a_frame_on_the_way_ends_connections_and_gets_nothing_executed(where: str, tmp_path: Path) -> None:
    """It has relayed the proofs of both ends, and stands between them ever since."""
    out = tr.to_list()
    bomb = tmp_path / "bomb"
    with in_the_middle(topology(out), encrypt=True) as middle:
        relays, kind = ([middle.control], MESSAGE) if where == "control" else (middle.links, BUNDLES)
        made = [relay.connections for relay in relays]
        for relay in relays:
            relay.add(frame(kind, 1, pickle.dumps(Bomb(bomb))))
        await_recovery(middle.run)
        progress = finish(middle.run)
        assert all(relay.connections > before for relay, before in zip(relays, made, strict=True)), "they were refused"
    assert_same_rows(out.values, EXPECTED)
    assert not bomb.exists()
    if where == "links":
        assert restarts(progress) == [0, 0]
