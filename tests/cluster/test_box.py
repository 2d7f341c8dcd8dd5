"""The box does what it says, touches nothing of this machine's own network, leaves nothing, also if it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.testing.cluster import Box, slowness
from tailrace.testing.cluster.box import BoxMachine
from tailrace.testing.cluster.leftovers import new_mark, remains, sweep
from tailrace.testing.processes import cpu_seconds, is_alive, wait_until

ANSWER = """\
import socket, sys
with socket.create_server((sys.argv[1], 7)) as listener:
    print("listening", flush=True)
    while True:
        connection, peer = listener.accept()
        with connection:
            connection.sendall(f"{socket.gethostname()} hears {peer[0]}".encode())
"""
ASK = """\
import socket, sys
with socket.create_connection((sys.argv[1], 7), timeout=float(sys.argv[2])) as connection:
    connection.settimeout(float(sys.argv[2]))
    print(connection.recv(100).decode())
"""
LONG_S, SHORT_S = 10.0, 0.5

KILLED = """\
import sys, time
from tailrace.testing.cluster import Box

with Box(hosts=1, spark=False) as box:
    box.hosts[0].slow(0.5)
    process = box.start(["sleep", "1000"], box.hosts[0])
    print(box.mark, process.pid, flush=True)
    time.sleep(1000)
"""


@pytest.fixture(scope="module")
def machines() -> Iterator[Box]:
    """Without Spark."""
    with Box(hosts=2, spark=False, wires=Path("/dev/net/tun").exists()) as box:
        for machine in box.hosts:
            process = box.start([sys.executable, "-c", ANSWER, machine.address], machine, stdout=subprocess.PIPE)
            assert process.stdout is not None and process.stdout.readline() == b"listening\n"
        yield box


def ask(box: Box, asker: BoxMachine, asked: BoxMachine, timeout_s: float = LONG_S) -> str:
    """What one machine answers to another; empty if nothing."""
    process = box.start(
        [sys.executable, "-c", ASK, asked.address, str(timeout_s)],
        asker,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    said, _ = process.communicate()
    return str(said.decode().strip())


def test_machines_have_names_and_addresses_of_their_own(machines: Box) -> None:
    one, other = machines.hosts
    assert ask(machines, one, other) == f"{other.name} hears {one.address}"
    assert len({machine.name for machine in (machines.driver, machines.master, one, other)}) == 4


def test_nothing_of_it_is_in_this_machines_network(machines: Box) -> None:
    interfaces = set(Path("/sys/class/net").iterdir())
    with Box(hosts=1, spark=False):
        assert set(Path("/sys/class/net").iterdir()) == interfaces


def test_a_machine_is_cut_off_and_healed(machines: Box) -> None:
    one, other = machines.hosts
    other.plug(False)
    assert ask(machines, one, other, SHORT_S) == ""
    other.plug(True)
    assert ask(machines, one, other)


def test_two_machines_are_cut_off_from_each_other_only(machines: Box) -> None:
    one, other = machines.hosts
    machines.cut_between(one, other, True)
    assert ask(machines, one, other, SHORT_S) == ask(machines, other, one, SHORT_S) == ""
    assert ask(machines, machines.driver, one) and ask(machines, machines.driver, other)
    machines.cut_between(one, other, False)
    assert ask(machines, one, other)


def test_packets_are_delayed_and_lost(machines: Box) -> None:
    if not Path("/dev/net/tun").exists():
        pytest.skip("no wires: there is no /dev/net/tun")
    one, other = machines.hosts
    other.delay(delay_ms=300)
    begun_s = time.monotonic()
    assert ask(machines, one, other)
    assert time.monotonic() - begun_s > 1.2, "there and back, for the connection and for the answer"
    other.delay(loss=1.0)
    assert ask(machines, one, other, SHORT_S) == ""
    other.delay()
    assert ask(machines, one, other)


@pytest.mark.parametrize("groups", [True, False])
def test_a_machine_is_slow(groups: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a control group, and where there are none by stopping its processes."""
    if not groups:
        monkeypatch.setattr(slowness, "group_roots", lambda: iter(()))
    with Box(hosts=1, spark=False) as box:
        assert_slow(box, box.hosts[0])


def assert_slow(machines: Box, host: BoxMachine) -> None:
    process = machines.start([sys.executable, "-c", "while True: pass"], host)
    host.slow(0.1)
    begun_s, before_s = time.monotonic(), cpu_seconds(process.pid)
    time.sleep(2)
    used_s = cpu_seconds(process.pid) - before_s
    passed_s = time.monotonic() - begun_s
    host.slow(None)
    process.kill()
    process.wait()
    assert used_s < 0.3 * passed_s


def test_what_a_killed_owner_left_is_swept_away() -> None:
    """And nothing of those who live."""
    with subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        mark, pid = owner.stdout.readline().split()
        sweep()
        assert len(remains(mark)) >= 4 and is_alive(int(pid))
        os.kill(owner.pid, signal.SIGKILL)
    assert remains(mark), "nobody has removed it yet"
    sweep()
    assert remains(mark) == [] and not is_alive(int(pid))


def test_nothing_stays(tmp_path: Path) -> None:
    with Box(hosts=2, spark=False) as box:
        host = box.hosts[0]
        host.slow(0.5)
        host.limit(mbit=10)
        pids = [box.start(["sleep", "1000"], machine).pid for machine in box.hosts]
        wait_until(lambda: pids[0] in host.pids(), 10, "the process")
        assert remains(box.mark)
    assert remains(box.mark) == [] and not any(map(is_alive, pids))
    assert remains(new_mark()) == []
