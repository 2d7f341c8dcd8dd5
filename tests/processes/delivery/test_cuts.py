"""A connection between two workers breaks in the middle of a frame: nobody dies, and nothing is lost or doubled."""

from __future__ import annotations

import os
import socket
from collections import Counter
from pathlib import Path

import pytest

import tailrace as tr
from kit.runs import assert_same_rows, finish, homes, restarts, running
from tailrace.testing.processes import listening_ports, own_connections_to, wait_until

ROWS = 400
BYTES = 200_000
"""A tuple that is larger than the kernel's buffers of a link, so that a cut nearly always hits a frame."""


class CutTheLinks:
    """At some tuples, shuts down a connection of its own process to the worker whose port is in a file."""

    def __init__(self, ports: Path, cut_at: frozenset[int], how: int) -> None:
        self.ports, self.cut_at, self.how = ports, cut_at, how

    def __call__(self, number: int) -> tuple[int, bytes]:
        if number in self.cut_at:
            marker = self.ports.with_name(f"cut-{number}")
            if not marker.exists():  # a tuple that is emitted again must not cut again
                cut = self._cut()
                marker.write_text(str(cut))
        return number, bytes([number % 256]) * BYTES

    def _cut(self) -> int:
        numbers = [number for port in self.ports.read_text().split() for number in own_connections_to(int(port))]
        for number in numbers:
            with socket.socket(fileno=os.dup(number)) as connection:
                connection.shutdown(self.how)
        return len(numbers)


def check(value: tuple[int, bytes]) -> tuple[int, int, bool]:
    number, data = value
    return number, len(data), data == bytes([number % 256]) * BYTES


@pytest.mark.parametrize(
    ("how", "ring"),
    [(socket.SHUT_RDWR, False), (socket.SHUT_WR, False), (socket.SHUT_RD, False), (socket.SHUT_RDWR, True)],
)
def test_cut_in_mid_frame(how: int, ring: bool, tmp_path: Path) -> None:
    ports = tmp_path / "ports"
    ports.write_text("")
    cut_at = frozenset({50, 150, 300})
    out = tr.to_list()
    topology = tr.Topology("cuts")
    numbers = topology.source("numbers", tr.at_rate(range(ROWS), 200))
    large = numbers.map("large", CutTheLinks(ports, cut_at, how), tasks=1)
    large.map("check", check, tasks=2).sink("out", out)
    large_at, check_at = homes(topology, 3, "large")[0], homes(topology, 3, "check")
    with running(topology, workers=3, ring=ring) as run:
        pids = run.workerPids()
        others = {worker for worker in check_at if worker != large_at}
        assert others
        ports.write_text(" ".join(str(port) for worker in others for port in listening_ports(pids[worker])))
        progress = finish(run)
    cuts = [int((tmp_path / f"cut-{number}").read_text()) for number in sorted(cut_at)]
    assert sum(cut > 0 for cut in cuts) >= 2, f"hardly anything was cut: {cuts}"
    assert_same_rows(out.values, [(number, BYTES, True) for number in range(ROWS)])
    assert progress["recoveries"] >= 1
    assert restarts(progress) == [0, 0, 0], "no worker may die of a cut link"
    assert Counter(run["state"] for run in progress["workers"]) == {"stopped": 3}


@pytest.mark.parametrize("ring", [True, False])
def test_cut_of_the_acks(ring: bool, tmp_path: Path) -> None:
    """What was acknowledged on a broken link is asked for again, and dropped as a duplicate."""
    ports = tmp_path / "ports"
    ports.write_text("")
    out = tr.to_list()
    topology = tr.Topology("ack-cuts")
    numbers = topology.source("numbers", tr.at_rate(range(2000), 1000))
    numbers.map("far", CutAcks(ports, 700)).sink("out", out)
    source = homes(topology, 2, "numbers")[0]
    assert homes(topology, 2, "far") != [source]
    with running(topology, workers=2, ring=ring) as run:
        ports.write_text(" ".join(map(str, listening_ports(run.workerPids()[source]))))
        progress = finish(run)
    wait_until((tmp_path / "cut").exists, 1)
    assert_same_rows(out.values, range(2000))
    assert progress["recoveries"] >= 1 and restarts(progress) == [0, 0]


def test_cut_of_the_credits(tmp_path: Path) -> None:
    """A task whose credits were lost on their way gets tuples again."""
    ports = tmp_path / "ports"
    ports.write_text("")
    out = tr.to_list()
    topology = tr.Topology("credit-cuts")
    numbers = topology.source("numbers", tr.at_rate(range(2000), 1000))
    numbers.map("far", CutAcks(ports, 700), tasks=2, grouping=tr.pull()).map("label", Label, grouping=tr.local()).sink(
        "out", out
    )
    source = homes(topology, 3, "numbers")[0]
    assert source not in homes(topology, 3, "far")
    with running(topology, workers=3) as run:
        ports.write_text(" ".join(map(str, listening_ports(run.workerPids()[source]))))
        progress = finish(run)
    wait_until((tmp_path / "cut").exists, 1)
    assert_same_rows((number for number, _ in out.values), range(2000))
    assert {task for number, task in out.values if number > 1800} == {0, 1}, "one of the tasks gets nothing any more"
    assert progress["recoveries"] >= 1 and restarts(progress) == [0, 0, 0]


class Label:
    """Says which task a tuple came to."""

    def open(self, context: tr.Context) -> None:
        self.task = context.task

    def process(self, number: int) -> tuple[int, int]:
        return number, self.task


class CutAcks:
    def __init__(self, ports: Path, at: int) -> None:
        self.ports, self.at = ports, at

    def __call__(self, number: int) -> int:
        marker = self.ports.with_name("cut")
        if number == self.at and not marker.exists():
            numbers = own_connections_to(int(self.ports.read_text()))
            for one in numbers:
                with socket.socket(fileno=os.dup(one)) as connection:
                    connection.shutdown(socket.SHUT_RDWR)
            if numbers:
                marker.touch()
        return number
