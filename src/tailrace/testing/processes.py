"""Looks at processes from outside, for tests that kill real ones: whether they live, their ports, their memory.

Linux only: everything is read from ``/proc``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_LISTEN, _ESTABLISHED = "0A", "01"


def wait_until(condition: Callable[[], object], timeout_s: float = 30.0, what: str = "the condition") -> None:
    """Wait until ``condition()`` is true. Raises ``AssertionError`` after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited too long: timeout_s={timeout_s} for={what}"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether the process exists and is more than a zombie that waits to be reaped."""
    return _state(pid) not in ("", "Z", "X")


def is_stopped(pid: int) -> bool:
    """Whether a signal has suspended the process."""
    return _state(pid) == "T"


def processes_with(variable: str, value: str) -> list[int]:
    """Ids of the living processes that were started with this environment variable."""
    wanted = f"{variable}={value}".encode()
    found = []
    for pid in _pids():
        try:
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted in variables and is_alive(pid):
            found.append(pid)
    return found


def listening_ports(pid: int) -> list[int]:
    """TCP ports on which the process listens."""
    return [port for inode, state, port, _ in _connections() if state == _LISTEN and inode in _socket_files(pid)]


def own_connections_to(port: int) -> list[int]:
    """File numbers of this process's established TCP connections to a peer's port."""
    inodes = {inode for inode, state, _, remote in _connections() if state == _ESTABLISHED and remote == port}
    return [number for inode, number in _socket_files(os.getpid()).items() if inode in inodes]


def resident_bytes(pid: int) -> int:
    """Memory that the process holds in RAM; 0 if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


def cpu_seconds(pid: int) -> float:
    """Processor time that the process has used so far, to about 10 ms; 0 if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def _pids() -> Iterator[int]:
    return (int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal())


def _socket_files(pid: int) -> dict[str, int]:
    """Inode -> file number."""
    found: dict[str, int] = {}
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = str(entry.readlink())
            except OSError:  # closed meanwhile
                continue
            if target.startswith("socket:["):
                found[target[8:-1]] = int(entry.name)
    except OSError:
        pass
    return found


def _connections() -> Iterator[tuple[str, str, int, int]]:
    """(inode, state, local port, remote port) of every IPv4 connection of the machine."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        columns = line.split()
        yield columns[9], columns[3], int(columns[1].split(":")[1], 16), int(columns[2].split(":")[1], 16)
