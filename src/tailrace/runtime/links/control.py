"""The connection between a worker and the coordinator: authenticated, then pickled messages both ways, each sealed."""

from __future__ import annotations

import json
import pickle
import select
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tailrace.clock import system_clock
from tailrace.core.protocol.membership import ACCEPT, LinkSequence
from tailrace.core.protocol.messages import Address
from tailrace.errors import ProtocolError, Tampered
from tailrace.metrics.counters import TaskSnapshot
from tailrace.runtime.encryption.certificate import Certificate
from tailrace.runtime.encryption.connection import Connection
from tailrace.runtime.links.frames import MESSAGE, FrameReader, encode, frame
from tailrace.runtime.links.seals import Seals
from tailrace.runtime.listening import Ports, ports_of

LimitPlace = tuple[str, int, bytes, bytes | None]
"""Address and port of the driver's call limits, their secret, and the fingerprint of their certificate."""

A_COPY = "a copy of it is at work"
"""Why a second process for the same epoch is refused."""


@dataclass(frozen=True)
class Bootstrap:
    """The data that a host hands to a new worker process, in a way that others cannot read."""

    address: Address  # the coordinator's
    secret: bytes = field(repr=False)
    worker: int
    epoch: int
    limits: LimitPlace | None = field(default=None, repr=False)  # of the driver's call limits
    certificate: Certificate | None = field(default=None, repr=False)  # if everything is encrypted
    ports: Ports | None = None  # that the worker may listen on
    replaces: bool = False  # another process, which may not have left yet

    @property
    def fingerprint(self) -> bytes | None:
        """The digest by which the worker recognises other processes of the run, if everything is encrypted."""
        return None if self.certificate is None else self.certificate.fingerprint

    def to_json(self) -> str:
        """For a process that reads it from its standard input."""
        said = {
            "address": self.address,
            "secret": self.secret,
            "worker": self.worker,
            "epoch": self.epoch,
            "limits": self.limits,
            "certificate": self.certificate and (self.certificate.text, self.certificate.key),
            "ports": self.ports and str(self.ports),
            "replaces": self.replaces,
        }
        return json.dumps(said, default=bytes.hex)

    @classmethod
    def from_json(cls, text: str) -> Bootstrap:
        said = json.loads(text)
        address, port = said["address"]
        limits = said["limits"]
        if limits is not None:
            host, number, secret, fingerprint = limits
            limits = (host, number, bytes.fromhex(secret), fingerprint and bytes.fromhex(fingerprint))
        certificate = said["certificate"] and Certificate(*said["certificate"])
        who = (bytes.fromhex(said["secret"]), said["worker"], said["epoch"])
        return cls((address, port), *who, limits, certificate, ports_of(said["ports"]), said["replaces"])


@dataclass(frozen=True)
class Setup:
    """The data that a worker needs before it can open its tasks."""

    plan: bytes  # pickled by value
    options: Any
    job_id: str
    elapsed_ns: int  # since sources first began; 0 unless this is a restart
    first_epoch: int  # of this run


@dataclass(frozen=True)
class Ping:
    """The coordinator is alive."""


@dataclass(frozen=True)
class Metrics:
    """Snapshots of the counters of a worker's tasks."""

    snapshots: list[TaskSnapshot]
    cpu_seconds: float


@dataclass(frozen=True)
class LogLine:
    """A line that user code printed or logged."""

    label: str  # operator/task, or empty
    level: int  # of ``logging``; 0 for what was printed
    logger: str
    text: str


@dataclass(frozen=True)
class Logs:
    """Lines that a worker has logged or printed, and how many it had to drop."""

    lines: list[LogLine]
    dropped: int


@dataclass(frozen=True)
class Notice:
    """A message to the user, shown once per topic in a run, however many workers send it."""

    topic: str
    text: str


@dataclass(frozen=True)
class Opening:
    """Opening a task takes long."""

    label: str  # operator/task
    seconds: float


@dataclass(frozen=True)
class SinkCall:
    """A sink's task calls its driver side."""

    call: int
    operator: str
    task: int
    message: Any


@dataclass(frozen=True)
class SinkReply:
    """The answer of a sink's driver side to the ``SinkCall`` of this number."""

    call: int
    reply: Any
    error: Exception | None


SEND_TIMEOUT_S = 2
"""A peer that reads nothing for so long, with full buffers, counts as gone."""


class ControlConnection:
    """One end. Any thread may ``send``, which raises OSError once the connection is gone; one thread receives.

    A message that cannot be pickled, or is too large for a frame, raises in ``send``; the connection stays usable.
    """

    def __init__(self, connection: Connection, seals: Seals) -> None:
        connection.settimeout(None)
        self._socket = connection
        self.wait_for_peer(SEND_TIMEOUT_S)
        self._reader = FrameReader(seal=seals.receiving)
        self._seal = seals.sending
        self._sequence = LinkSequence()
        self._lock = threading.Lock()
        self._number = 0
        self.arrived_ns = system_clock()  # when bytes last arrived, whole messages or not

    def wait_for_peer(self, timeout_s: float) -> None:
        """Set how long ``send`` waits for a peer that reads nothing, before it fails."""
        timeout = struct.pack("ll", int(timeout_s), int(timeout_s % 1 * 1e6))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)

    def send(self, message: Any) -> None:
        payload = encode(message)
        with self._lock:
            framed = frame(MESSAGE, self._number + 1, payload, self._seal)
            self._number += 1  # only here: a message that is too large must leave no gap
            self._socket.sendall(framed)

    def receive(self) -> Iterator[Any]:
        """Yield messages until the connection ends. Raises ProtocolError on anything else."""
        while True:
            try:
                data = self._socket.recv(1 << 18)
            except Tampered:
                raise
            except OSError:
                return
            if not data:
                return
            self.arrived_ns = system_clock()
            for kind, number, payload in self._reader.feed(data):
                if kind != MESSAGE or self._sequence.check(number) != ACCEPT:
                    raise ProtocolError(f"not the next message: kind={kind} number={number}; is the peer Tailrace?")
                yield pickle.loads(payload)

    @property
    def waiting(self) -> bool:
        """Whether bytes have arrived that the receiving thread has not read yet."""
        poll = select.poll()  # select() cannot watch files above 1023
        try:
            poll.register(self._socket, select.POLLIN)
            return bool(poll.poll(0))
        except (OSError, ValueError):
            return False  # it is closed

    def close(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._socket.close()
