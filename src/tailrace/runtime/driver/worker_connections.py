"""The coordinator's connections to its workers: admission, and the messages that arrive with their times.

Each connection has a reader thread, which only hands messages on.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from tailrace.core.protocol.worker_deaths import BROKEN_CONNECTION
from tailrace.errors import ProtocolError
from tailrace.runtime.links.acceptor import Acceptor, Serve
from tailrace.runtime.links.auth import Contact, accept, answer
from tailrace.runtime.links.control import A_COPY, ControlConnection

LAST_MESSAGES_S = 1.0
"""How long the exit of a process is held back until its last messages have been read."""

EXIT_REPORT_S = 0.05
"""How long a closed connection is held back. The host, which knows how the process ended, should report first."""

Place = tuple[int, int]
"""(worker, epoch)"""

Expected = Callable[[int], int | None]
"""Returns the current epoch of a worker; None if there is no such worker."""

OnMessage = Callable[[int, int, Any], None]
"""Called with (worker, epoch, message) in the reader thread. An exception marks the message as unreadable."""

Ended = Callable[[int, int, str], None]
"""Called with (worker, epoch, reason) when a connection has ended."""

Unreadable = Callable[[int, Exception], None]
"""Called with (worker, error) if a message cannot be read."""


class WorkerConnections:
    """Accepts and serves the workers of one run. Connections are answered from ``start`` on."""

    def __init__(
        self,
        listener: socket.socket,
        secret: bytes,
        expected: Expected,
        on_message: OnMessage,
        ended: Ended,
        unreadable: Unreadable,
        encryption: ssl.SSLContext | None = None,
    ) -> None:
        self._secret = secret
        self._encryption = encryption
        self._expected, self._on_message, self._ended, self._unreadable = expected, on_message, ended, unreadable
        self._acceptor = Acceptor(listener, self._greet, "tailrace")
        self._connections: dict[Place, ControlConnection] = {}
        self._admitted: set[Place] = set()  # have a connection, or are about to get one
        self._admitting = threading.Lock()
        self._read_to_end: dict[Place, threading.Event] = {}  # set when a connection has been read to its end

    def start(self) -> None:
        self._acceptor.start()

    def stop_accepting(self) -> None:
        """Refuse new connections. Those that exist stay open."""
        self._acceptor.close()

    def close(self) -> None:
        for control in tuple(self._connections.values()):
            control.close()

    def send(self, worker: int, epoch: int, message: Any) -> None:
        control = self._connections.get((worker, epoch))
        if control is not None:
            try:
                control.send(message)
            except OSError:
                control.close()  # its reader thread reports the worker

    def send_all(self, message: Any) -> None:
        for worker, epoch in tuple(self._connections):
            self.send(worker, epoch, message)

    def arrivals(self) -> list[tuple[Place, int]]:
        """When bytes last arrived from each worker."""
        return [(place, control.arrived_ns) for place, control in tuple(self._connections.items())]

    def waiting(self, place: Place) -> bool:
        """Whether bytes have arrived from a worker that its reader thread has not read yet."""
        control = self._connections.get(place)
        return control is not None and control.waiting

    def await_last_messages(self, worker: int, epoch: int) -> None:
        """Wait, for ``LAST_MESSAGES_S`` at most, until all messages of a process that has exited have been read."""
        read_to_end = self._read_to_end.get((worker, epoch))
        if read_to_end is not None:
            read_to_end.wait(LAST_MESSAGES_S)

    # -- in threads of their own

    def _greet(self, connection: socket.socket) -> Serve | None:
        """The handshake with a worker. Returns the function that serves the connection, or None if it was refused."""
        place: Place | None = None
        try:
            contact = accept(connection, self._secret, self._encryption)
            hello = contact.said
            worker, epoch = hello.get("worker"), hello.get("epoch")
            if hello.get("role") != "worker" or not isinstance(worker, int) or not isinstance(epoch, int):
                raise ProtocolError("not a worker")
            why_not = self.admit(worker, epoch)
            place = (worker, epoch) if why_not is None else None
            answer(contact, why_not)
        except (OSError, ProtocolError):
            connection.close()
            if place is not None:
                self._admitted.discard(place)
            return None
        return None if place is None else partial(self._serve, *place, contact)

    def admit(self, worker: int, epoch: int) -> str | None:
        """Admit this process for its epoch; return None, or the reason for a refusal.

        Atomic, because Spark may start two copies of a worker that connect at the same time.
        """
        with self._admitting:
            why_not = self._why_not(worker, epoch)
            if why_not is None:
                self._admitted.add((worker, epoch))
            return why_not

    def _why_not(self, worker: int, epoch: int) -> str | None:
        current = self._expected(worker)
        if current is None:
            return f"this run has no worker {worker}"
        if (worker, epoch) in self._admitted:
            return f"epoch {epoch} of worker {worker} is not expected: {A_COPY}"
        if epoch != current:
            return f"epoch {epoch} of worker {worker} is not expected: the newest is {current}"
        return None

    def _serve(self, worker: int, epoch: int, contact: Contact) -> None:
        """Read one worker's connection to its end."""
        control = self._connections[worker, epoch] = ControlConnection(contact.connection, contact.seals)
        read_to_end = self._read_to_end[worker, epoch] = threading.Event()
        why = "its connection ended"
        try:
            for message in control.receive():
                self._on_message(worker, epoch, message)
        except ProtocolError as error:
            why = f"{BROKEN_CONNECTION}: {error}"
        except Exception as error:
            self._unreadable(worker, error)
        self._connections.pop((worker, epoch), None)
        self._admitted.discard((worker, epoch))
        control.close()
        read_to_end.set()
        time.sleep(EXIT_REPORT_S)
        self._ended(worker, epoch, why)
