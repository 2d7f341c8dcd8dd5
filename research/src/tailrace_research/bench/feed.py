"""Gives lines to Spark's socket source, each when it is due, whatever becomes of the ones before: an open loop.

That source hands over a row as soon as it is there, while the rate source holds rows back until their second is full,
which would count against Spark.
"""

from __future__ import annotations

import socket
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress

HOST = "127.0.0.1"
TICK_S = 0.001  # how often it sends what is due


class Feed(threading.Thread):
    """Sends lines to the first client that connects.

    ``due_ns`` ascends, and counts from when the client has connected. ``line`` makes a line of its number and of when
    it is due by the monotonic clock, which all processes of a machine share.
    """

    def __init__(self, due_ns: Sequence[int], line: Callable[[int, int], str]) -> None:
        super().__init__(name="bench-feed", daemon=True)
        self._due_ns = due_ns
        self._line = line
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self.sent = threading.Event()
        """All lines have been sent."""

        self._cancelled = threading.Event()

    def run(self) -> None:
        try:
            peer, _ = self._listener.accept()
        except OSError:
            return  # closed before a client connected
        with peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                self._send(peer)
            except OSError:
                return  # the query has gone
            self.sent.set()
            self._cancelled.wait()  # the source takes the end of its connection for an error

    def _send(self, peer: socket.socket) -> None:
        started_ns = time.monotonic_ns()
        sent = 0
        while sent < len(self._due_ns) and not self._cancelled.wait(TICK_S):
            due = bisect_right(self._due_ns, time.monotonic_ns() - started_ns, lo=sent)
            lines = [self._line(number, started_ns + self._due_ns[number]) for number in range(sent, due)]
            peer.sendall("".join(f"{line}\n" for line in lines).encode())
            sent = due

    def close(self) -> None:
        """Send nothing more, and let the connection go."""
        self._cancelled.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for a client, unlike close
        self._listener.close()
