"""Emissions that a worker shall run no more of, as sources in other workers announce them, each on a connection.

A thread reads each connection, because runners may be in a long call, with cancelled tuples queued behind it. If a
connection breaks nothing is lost that needs recovery.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence

from tailrace.core.hedging.cancelled import CancelledEmissions
from tailrace.core.protocol.membership import ACCEPT, LinkSequence
from tailrace.errors import ProtocolError
from tailrace.runtime.encryption.connection import Connection
from tailrace.runtime.links.frames import CANCELS, FrameReader, decode_numbers
from tailrace.runtime.links.seals import Seals

RECEIVE_BYTES = 4096


class Cancellations:
    """The cancelled emissions of one worker. Any thread may cancel; all tasks look into ``emissions``."""

    def __init__(self) -> None:
        self.emissions = CancelledEmissions()
        self._lock = threading.Lock()
        self._connections: set[Connection] = set()

    def cancel(self, emissions: Sequence[int]) -> None:
        with self._lock:
            self.emissions.add(emissions)

    def listen(self, connection: Connection, seals: Seals | None) -> None:
        """Process what comes on a connection. Returns when it ends."""
        connection.settimeout(None)
        self._connections.add(connection)
        reader = FrameReader(seal=None if seals is None else seals.receiving)
        sequence = LinkSequence()
        try:
            while data := connection.recv(RECEIVE_BYTES):
                for kind, number, payload in reader.feed(data):
                    if kind != CANCELS or sequence.check(number) != ACCEPT:
                        raise ProtocolError(f"not the next frame: kind={kind} expected={CANCELS} number={number}")
                    self.cancel(decode_numbers(payload))
        except (OSError, ProtocolError):
            pass
        self._connections.discard(connection)
        connection.close()

    def close(self) -> None:
        """End the threads: Spark may go on using this process."""
        for connection in tuple(self._connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
