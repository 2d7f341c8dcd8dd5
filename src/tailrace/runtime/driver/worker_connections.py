"""The coordinator's connections to its workers: who is taken in, what arrives, and when it did.

Each is listened to by a thread of its own, which only hands on what it hears.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from tailrace.core.protocol.worker_deaths import BROKEN_LINE
from tailrace.errors import ProtocolError
from tailrace.runtime.links.acceptor import Acceptor, Serve
from tailrace.runtime.links.auth import Contact, accept, answer
from tailrace.runtime.links.control import A_COPY, ControlConnection

LAST_WORDS_S = 1.0
"""How long the end of a process waits for what it said last to be read."""

EXIT_NEWS_S = 0.05
"""When a process ends so does its connection; the host, which knows how it ended, gets so long to say it first."""

Place = tuple[int, int]
"""Worker and epoch."""

Expected = Callable[[int], int | None]
"""The epoch of a worker that counts; None if there is no such worker."""

Hear = Callable[[int, int, Any], None]
"""(worker, epoch, message), in the thread that listens. Raises what makes the message unreadable."""

Ended = Callable[[int, int, str], None]
"""(worker, epoch, why)"""

Unreadable = Callable[[int, Exception], None]
"""(worker, error)"""


class WorkerConnections:
    """Workers that connect are answered from ``start`` on."""

    def __init__(
        self,
        listener: socket.socket,
        secret: bytes,
        expected: Expected,
        hear: Hear,
        ended: Ended,
        unreadable: Unreadable,
    ) -> None:
        self._secret = secret
        self._expected, self._hear, self._ended, self._unreadable = expected, hear, ended, unreadable
        self._acceptor = Acceptor(listener, self._greet, "tailrace")
        self._lines: dict[Place, ControlConnection] = {}
        self._admitted: set[Place] = set()  # those that have a connection, or soon will
        self._admitting = threading.Lock()
        self._heard_out: dict[Place, threading.Event] = {}  # set once a connection has been read to its end

    def start(self) -> None:
        self._acceptor.start()

    def close_door(self) -> None:
        """No more are taken in."""
        self._acceptor.close()

    def close(self) -> None:
        for line in tuple(self._lines.values()):
            line.close()

    def send(self, worker: int, epoch: int, message: Any) -> None:
        line = self._lines.get((worker, epoch))
        if line is not None:
            try:
                line.send(message)
            except OSError:
                line.close()  # its reader will report the worker

    def send_all(self, message: Any) -> None:
        for worker, epoch in tuple(self._lines):
            self.send(worker, epoch, message)

    def arrivals(self) -> list[tuple[Place, int]]:
        """When bytes of each worker last came."""
        return [(place, line.arrived_ns) for place, line in tuple(self._lines.items())]

    def waiting(self, place: Place) -> bool:
        """Whether something of a worker has come that its thread has not got to yet."""
        line = self._lines.get(place)
        return line is not None and line.waiting

    def hear_out(self, worker: int, epoch: int) -> None:
        """Wait for the last words of a process that is gone: they may still be on their way."""
        heard_out = self._heard_out.get((worker, epoch))
        if heard_out is not None:
            heard_out.wait(LAST_WORDS_S)

    # -- the threads

    def _greet(self, connection: socket.socket) -> Serve | None:
        """The handshake with a worker. Returns what listens to it, if it is taken in."""
        place: Place | None = None
        try:
            contact = accept(connection, self._secret)
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
        return None if place is None else partial(self._listen, *place, contact)

    def admit(self, worker: int, epoch: int) -> str | None:
        """Take this process in for its epoch, or say why not: one step, as two copies may come at once."""
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

    def _listen(self, worker: int, epoch: int, contact: Contact) -> None:
        """One worker's connection, to its last byte."""
        line = self._lines[worker, epoch] = ControlConnection(contact.connection, contact.seals)
        heard_out = self._heard_out[worker, epoch] = threading.Event()
        why = "its connection ended"
        try:
            for message in line.receive():
                self._hear(worker, epoch, message)
        except ProtocolError as error:
            why = f"{BROKEN_LINE}: {error}"
        except Exception as error:
            self._unreadable(worker, error)
        self._lines.pop((worker, epoch), None)
        self._admitted.discard((worker, epoch))
        line.close()
        heard_out.set()
        time.sleep(EXIT_NEWS_S)
        self._ended(worker, epoch, why)
