"""Several machines on one, for tests: Linux network namespaces joined by a bridge, each with an address of its own.

They share processors, files and shared memory, but not the loopback interface: their traffic goes through the kernel's
network stack, where it can be slowed down or cut. Needs Linux, root, and iproute2.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from types import TracebackType

from tailrace.errors import TailraceError


def why_no_namespaces() -> str | None:
    """The reason why this process cannot make namespaces; ``None`` if it can."""
    if os.geteuid() != 0:
        return "it takes root"
    missing = [tool for tool in ("ip", "tc", "bridge") if shutil.which(tool) is None]
    if missing:
        return f"iproute2 is not installed: missing={','.join(missing)}"
    try:
        with Namespaces(1) as network:
            network.machines[0].limit(1)
    except TailraceError as error:
        return str(error)
    return None


@dataclass(frozen=True)
class Machine:
    """One namespace."""

    name: str
    address: str
    port: str  # its interface at the bridge

    @property
    def prefix(self) -> list[str]:
        """The beginning of a command line that is to run there."""
        return ["ip", "netns", "exec", self.name]

    def limit(self, mbit: float, latency_ms: float = 50.0) -> None:
        """Limit what leaves this machine. Packets that would wait longer than ``latency_ms`` are dropped."""
        rate = ("rate", f"{round(mbit * 1000)}kbit", "burst", "16kb", "latency", f"{latency_ms:g}ms")
        _run("tc", "-n", self.name, "qdisc", "replace", "dev", "eth0", "root", "tbf", *rate)

    def plug(self, plugged: bool) -> None:
        """Connect this machine to the network or cut it off. Packets are lost without an error."""
        _run("ip", "link", "set", self.port, "up" if plugged else "down")

    def isolate(self, isolated: bool) -> None:
        """Cut this machine off from other isolated machines, but not from the host."""
        _run("bridge", "link", "set", "dev", self.port, "isolated", "on" if isolated else "off")


class Namespaces:
    """A context with ``machines`` machines on one network with the host. It removes them all at its end."""

    def __init__(self, machines: int) -> None:
        mark, net = os.getpid() % 10_000, f"10.213.{os.getpid() % 250}"
        self.address = f"{net}.1"  # of the host, on their network
        self._bridge = f"trb{mark}"
        self.machines = [Machine(f"tailrace-{mark}-{n}", f"{net}.{n + 2}", f"trv{mark}-{n}") for n in range(machines)]

    def __enter__(self) -> Namespaces:
        try:
            _run("ip", "link", "add", self._bridge, "type", "bridge")
            _run("ip", "addr", "add", f"{self.address}/24", "dev", self._bridge)
            _run("ip", "link", "set", self._bridge, "up")
            for machine in self.machines:
                self._add(machine)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def _add(self, machine: Machine) -> None:
        inside = ("ip", "-n", machine.name)
        _run("ip", "netns", "add", machine.name)
        _run("ip", "link", "add", machine.port, "type", "veth", "peer", "name", "eth0", "netns", machine.name)
        _run("ip", "link", "set", machine.port, "master", self._bridge, "up")
        _run(*inside, "addr", "add", f"{machine.address}/24", "dev", "eth0")
        _run(*inside, "link", "set", "lo", "up")
        _run(*inside, "link", "set", "eth0", "up")

    def _remove(self) -> None:
        for machine in self.machines:
            subprocess.run(["ip", "netns", "del", machine.name], capture_output=True)
            subprocess.run(["ip", "link", "del", machine.port], capture_output=True)
        subprocess.run(["ip", "link", "del", self._bridge], capture_output=True)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise TailraceError(f"namespaces cannot be made: command={' '.join(command)!r} said={done.stderr.strip()!r}")
