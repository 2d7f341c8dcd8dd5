"""Finds connections that are cut, not closed: the kernel would keep one for a quarter of an hour before it gives up.

The kernel probes idle connections itself. On a busy one it retransmits the same bytes again and again, and this module
reads that from its statistics. The kernel's own time limit (``TCP_USER_TIMEOUT``) would not do: it also ends
connections to a receiver that answers but has no room, such as a task in a long call, and each end would be a recovery.
"""

from __future__ import annotations

import socket
import struct
import threading
from dataclasses import dataclass

from tailrace.runtime.encryption.connection import Connection

KEEP_ALIVE_S = 15.0
"""The timeout where no heartbeat is known. Both ends of a control connection hear of each other more often."""

PROBES = 3

_INFO = struct.Struct("=8B13I")
"""The beginning of Linux's ``tcp_info``."""
_RETRANSMITS, _PROBES, _UNACKED, _LAST_ACK_MS = 2, 3, 12, 20


def keep_alive(connection: Connection, timeout_s: float) -> None:
    """Have the kernel end an idle connection whose peer has not answered probes for twice this long."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, round(timeout_s)))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, round(timeout_s / PROBES)))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)


@dataclass(frozen=True)
class Progress:
    """The state of a connection, as the kernel sees it."""

    retransmits: int  # how often the same bytes were sent again, in a row
    probes: int  # unanswered probes of a closed window
    unacked: int
    last_ack_ms: int  # since the peer's kernel last answered

    def stands_still(self, timeout_s: float) -> bool:
        """Whether the peer's kernel owes an answer, and has given none for this long."""
        return (self.retransmits + self.probes > 1) and self.last_ack_ms > timeout_s * 1000


def progress_of(connection: Connection) -> Progress | None:
    """None where the kernel has no such statistics."""
    if not hasattr(socket, "TCP_INFO"):
        return None
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size)
    if len(info) < _INFO.size:
        return None
    fields = _INFO.unpack(info)
    return Progress(fields[_RETRANSMITS], fields[_PROBES], fields[_UNACKED], fields[_LAST_ACK_MS])


class LinkWatch:
    """Watches the connections that a worker has dialed. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connections: dict[tuple[int, int], list[Connection]] = {}  # by worker and epoch

    def add(self, worker: int, epoch: int, connection: Connection) -> None:
        with self._lock:
            known = self._connections.setdefault((worker, epoch), [])
            known[:] = [one for one in known if one.fileno() >= 0]
            known.append(connection)

    def end_those_that_stand_still(self, timeout_s: float) -> list[int]:
        """If one connection with a worker stands still, the way to it is cut: end all connections with it.

        They end together, so that it is one loss, and one recovery. Returns those workers.
        """
        with self._lock:
            alive = {
                peer: [one for one in connections if one.fileno() >= 0]
                for peer, connections in self._connections.items()
            }
            self._connections = {peer: connections for peer, connections in alive.items() if connections}
            cut = {
                peer: connections
                for peer, connections in self._connections.items()
                if any(_stands_still(connection, timeout_s) for connection in connections)
            }
            for peer in cut:
                del self._connections[peer]
        for connections in cut.values():
            for connection in connections:
                _end(connection)
        return [worker for worker, _ in cut]


def _stands_still(connection: Connection, timeout_s: float) -> bool:
    try:
        progress = progress_of(connection)
    except OSError:
        return False  # the connection has been closed meanwhile
    return progress is not None and progress.stands_still(timeout_s)


def _end(connection: Connection) -> None:
    """End both directions: threads that wait for the connection are woken, and find that it is over."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
