"""What a worker shall not run any more, as other workers tell it, on a connection from each source task.

A thread each reads them: runners may be in the middle of a long call, which what is cancelled waits behind. If a
connection breaks nothing is lost that anybody waits for.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence

from tailrace.core.hedging.cancelled import CancelledEmissions
from tailrace.core.protocol.membership import ACCEPT, LinkSequence
from tailrace.errors import ProtocolError
from tailrace.runtime.links.frames import CANCELS, FrameReader, decode_numbers
from tailrace.runtime.links.seals import Seals

RECEIVE_BYTES = 4096


class Cancellations:
    """Of one worker. Any thread may cancel; all tasks look into ``emissions``."""

    def __init__(self) -> None:
        self.emissions = CancelledEmissions()
        self._lock = threading.Lock()
        self._lines: set[socket.socket] = set()

    def cancel(self, emissions: Sequence[int]) -> None:
        with self._lock:
            self.emissions.add(emissions)

    def listen(self, connection: socket.socket, seals: Seals | None) -> None:
        """Returns when the connection ends."""
        connection.settimeout(None)
        self._lines.add(connection)
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
        self._lines.discard(connection)
        connection.close()

    def close(self) -> None:
        """Let the threads go: Spark may go on using this process."""
        for line in tuple(self._lines):
            try:
                line.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
