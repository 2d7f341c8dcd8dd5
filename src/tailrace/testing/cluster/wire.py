"""A wire with delay, jitter and loss between a machine of the box and the bridge: packets pass through a process."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tailrace.errors import TailraceError
from tailrace.testing.cluster.leftovers import NAMESPACES
from tailrace.testing.namespaces import INTERFACE, Machine

SOURCE = Path(__file__).with_name("wire.c")


def compile_wire(folder: Path) -> Path:
    """The program, made in this folder."""
    program = folder / "wire"
    done = subprocess.run(["cc", "-O2", "-Wall", "-o", str(program), str(SOURCE)], capture_output=True, text=True)
    if done.returncode:
        raise TailraceError(f"the wire cannot be compiled: said={done.stderr.strip()!r}; is there a C compiler?")
    return program


class Wire:
    """It has made both interfaces of a machine when it is made itself, and takes them away when it is closed, or when
    this process ends."""

    def __init__(self, program: Path, machine: Machine) -> None:
        ends = (machine.name, INTERFACE), (machine.bridge or "", machine.port)
        words = [word for namespace, interface in ends for word in (str(NAMESPACES / namespace), interface)]
        self._process = subprocess.Popen(
            [str(program), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None and self._process.stderr is not None
        if self._process.stdout.readline() != "ready\n":
            said = self._process.stderr.read().strip()
            self.close()
            raise TailraceError(f"a wire cannot be made: machine={machine.name} said={said!r}; is there /dev/net/tun?")

    def set(self, delay_ms: float = 0.0, jitter_ms: float = 0.0, loss: float = 0.0) -> None:
        """Delay each packet, either way, by ``delay_ms`` and up to ``jitter_ms`` more; lose this share of them."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{delay_ms * 1000:.0f} {jitter_ms * 1000:.0f} {loss * 1e6:.0f}\n")
        self._process.stdin.flush()

    def close(self) -> None:
        for file in (self._process.stdin, self._process.stdout, self._process.stderr):
            if file is not None:
                file.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
