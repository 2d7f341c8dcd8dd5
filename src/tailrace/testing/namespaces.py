"""Several machines on one, for tests: Linux network namespaces joined by a bridge, each with an address of its own.

They share processors, files and shared memory, but not the loopback interface: their traffic goes through the kernel's
network stack, where it can be slowed down or cut. Needs Linux, root, and iproute2.

The bridge belongs to this machine's own network, so that the test itself can talk to them. ``EnclosedNamespaces`` have
it in a namespace besides: nothing of theirs is in this machine's network, and any number of them go on side by side.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

from tailrace.errors import TailraceError

INTERFACE = "eth0"
BRIDGE = "bridge"


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
    bridge: str | None = None  # the namespace of the bridge, if that is not this machine's own network
    host_name: str | None = None  # that processes there are told, if it is not this machine's

    @property
    def prefix(self) -> list[str]:
        """The beginning of a command line that is to run there. The process that is started becomes the command."""
        there = ["ip", "netns", "exec", self.name]
        if self.host_name is None:
            return there
        return [*there, "unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"', self.host_name]

    def pids(self) -> list[int]:
        """All processes there."""
        return [int(pid) for pid in _run("ip", "netns", "pids", self.name).split()]

    def limit(self, mbit: float, latency_ms: float = 50.0) -> None:
        """Limit what leaves this machine. Packets that would wait longer than ``latency_ms`` are dropped."""
        rate = ("rate", f"{round(mbit * 1000)}kbit", "burst", "16kb", "latency", f"{latency_ms:g}ms")
        _run("tc", "-n", self.name, "qdisc", "replace", "dev", INTERFACE, "root", "tbf", *rate)

    def plug(self, plugged: bool) -> None:
        """Connect this machine to the network or cut it off. Packets are lost without an error."""
        _run(*_at("ip", self.bridge), "link", "set", self.port, "up" if plugged else "down")

    def isolate(self, isolated: bool) -> None:
        """Cut this machine off from other isolated machines, but not from the host."""
        _run(*_at("bridge", self.bridge), "link", "set", "dev", self.port, "isolated", "on" if isolated else "off")


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
        _run("ip", "link", "add", machine.port, "type", "veth", "peer", "name", INTERFACE, "netns", machine.name)
        _run("ip", "link", "set", machine.port, "master", self._bridge, "up")
        _run(*inside, "addr", "add", f"{machine.address}/24", "dev", INTERFACE)
        _run(*inside, "link", "set", "lo", "up")
        _run(*inside, "link", "set", INTERFACE, "up")

    def _remove(self) -> None:
        for machine in self.machines:
            subprocess.run(["ip", "netns", "del", machine.name], capture_output=True)
            subprocess.run(["ip", "link", "del", machine.port], capture_output=True)
        subprocess.run(["ip", "link", "del", self._bridge], capture_output=True)


class EnclosedNamespaces:
    """A context with a machine for each host name, on a network that nothing else is on. It removes all at its end,
    once no process is left there.

    ``mark`` begins the names of its namespaces. Without ``joined`` machines have no interface yet: something else puts
    an ``eth0`` into them, and their ports into the bridge.
    """

    def __init__(self, host_names: Sequence[str], mark: str, net: str = "10.213.0", joined: bool = True) -> None:
        self.bridge = f"{mark}-{BRIDGE}"
        self.machines = [
            Machine(f"{mark}-{name}", f"{net}.{number}", f"to-{name}", self.bridge, name)
            for number, name in enumerate(host_names, 2)
        ]
        self._joined = joined

    def __enter__(self) -> EnclosedNamespaces:
        try:
            _run("ip", "netns", "add", self.bridge)
            _run("ip", "-n", self.bridge, "link", "add", BRIDGE, "type", "bridge")
            _run("ip", "-n", self.bridge, "link", "set", BRIDGE, "up")
            for machine in self.machines:
                _run("ip", "netns", "add", machine.name)
                _run("ip", "-n", machine.name, "link", "set", "lo", "up")
                if self._joined:
                    pair = ("link", "add", machine.port, "type", "veth", "peer", "name", INTERFACE)
                    _run("ip", "-n", self.bridge, *pair, "netns", machine.name)
                    self.join(machine)
        except BaseException:
            self._remove()
            raise
        return self

    def join(self, machine: Machine) -> None:
        """Plug a machine whose two interfaces exist into the bridge."""
        _run("ip", "-n", self.bridge, "link", "set", machine.port, "master", BRIDGE, "up")
        _run("ip", "-n", machine.name, "addr", "add", f"{machine.address}/24", "dev", INTERFACE)
        _run("ip", "-n", machine.name, "link", "set", INTERFACE, "up")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        for name in [*(machine.name for machine in self.machines), self.bridge]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def _at(tool: str, namespace: str | None) -> list[str]:
    """The beginning of a command of iproute2 that is about the network of a namespace, or this machine's own."""
    return [tool] if namespace is None else [tool, "-n", namespace]


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise TailraceError(f"namespaces cannot be made: command={' '.join(command)!r} said={done.stderr.strip()!r}")
    return done.stdout
