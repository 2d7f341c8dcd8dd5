"""A connected socket whose bytes are encrypted. It has the methods of a socket that links and peers use, and no others:
with a method that is not here, something could go out in clear.
"""

from __future__ import annotations

import socket
import ssl
import time
from typing import Any

from tailrace.errors import AuthenticationError
from tailrace.runtime.encryption.certificate import dialing, fingerprint_of
from tailrace.runtime.encryption.session import RECORD_BYTES, Data, TlsSession

CHUNK = 128 << 10
"""Bytes that are encrypted at once: about what the kernel's buffers take."""

READ_BYTES = 64 << 10
"""Bytes that are read at once. For much more, ``malloc`` asks the kernel for memory, which takes as long as a frame."""


class EncryptedConnection:
    """Behaves like the socket that it is made of, blocking or not. One thread may send while another receives.

    A ``recv`` of ``2 * RECORD_BYTES`` or more returns everything that has been decrypted, so that nothing waits here
    while an event loop waits for the socket. A smaller one may hold something back for the next.
    """

    def __init__(self, connection: socket.socket, session: TlsSession) -> None:
        self._socket = connection
        self._session = session
        self._decrypted = session.decrypt(b"")  # what came together with the end of the handshake
        self._encrypted: bytes | memoryview = b""  # what the socket has not taken yet
        self._taken = 0  # how much of the sender's data that is

    def recv(self, size: int) -> bytes:
        """Up to ``size`` bytes; none when the peer has closed. Raises Tampered, an OSError, if somebody added some."""
        while not self._decrypted:
            received = self._socket.recv(min(max(RECORD_BYTES, size - RECORD_BYTES), READ_BYTES))
            if not received:
                return b""
            self._decrypted = self._session.decrypt(received)
        data, self._decrypted = self._decrypted[:size], self._decrypted[size:]
        return data

    def send(self, data: Data) -> int:
        """Send the beginning of these bytes; return how many. After BlockingIOError none has been sent, as far as the
        caller need know: the next call must begin with the same bytes."""
        if not self._encrypted:
            chunk = data if len(data) <= CHUNK else memoryview(data)[:CHUNK]
            self._taken = len(chunk)
            self._encrypted = self._session.encrypt(chunk)
        sent = self._socket.send(self._encrypted)
        if sent < len(self._encrypted):
            self._encrypted = memoryview(self._encrypted)[sent:]
            raise BlockingIOError
        self._encrypted = b""
        return self._taken

    def sendall(self, data: Data) -> None:
        """Send everything. For sockets that block."""
        rest = memoryview(data)
        while rest:
            self._socket.sendall(self._session.encrypt(rest[:CHUNK]))
            rest = rest[CHUNK:]

    # -- of the socket

    @property
    def family(self) -> int:
        return self._socket.family

    def fileno(self) -> int:
        return self._socket.fileno()

    def getsockname(self) -> Any:
        return self._socket.getsockname()

    def getpeername(self) -> Any:
        return self._socket.getpeername()

    def setblocking(self, blocking: bool) -> None:
        self._socket.setblocking(blocking)

    def settimeout(self, timeout_s: float | None) -> None:
        self._socket.settimeout(timeout_s)

    def setsockopt(self, level: int, option: int, value: int | bytes) -> None:
        self._socket.setsockopt(level, option, value)

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        return self._socket.getsockopt(level, option, size)

    def shutdown(self, how: int) -> None:
        self._socket.shutdown(how)

    def close(self) -> None:
        """Close it, as a socket is closed: a peer takes the end of the bytes for the end, in TLS or not."""
        self._socket.close()

    def __enter__(self) -> EncryptedConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


Connection = socket.socket | EncryptedConnection
"""A connection, encrypted or not: the code that sends and receives through it need not know which."""


def detached(connection: Connection) -> tuple[socket.socket, TlsSession | None, bytes]:
    """For those who move bytes themselves, as asyncio does: the socket, the session of its encryption if it has one,
    and what was decrypted and not read."""
    if isinstance(connection, EncryptedConnection):
        return connection._socket, connection._session, connection._decrypted
    return connection, None, b""


def encrypted_by_dialer(connection: socket.socket, fingerprint: bytes, timeout_s: float) -> EncryptedConnection:
    """Encrypt a connection that was dialed. Raises AuthenticationError if the peer is not who it should be."""
    session = TlsSession(dialing(), dialed=True)
    _shake_hands(connection, session, timeout_s)
    found = fingerprint_of(session.peers_certificate)
    if found != fingerprint:
        raise AuthenticationError(
            f"the peer has another certificate: fingerprint={found.hex()[:16]} expected={fingerprint.hex()[:16]}; "
            "does somebody stand between, or listen on its port?"
        )
    return EncryptedConnection(connection, session)


def encrypted_by_acceptor(connection: socket.socket, context: ssl.SSLContext, timeout_s: float) -> EncryptedConnection:
    """Encrypt a connection that was accepted. The peer has proved nothing by that."""
    session = TlsSession(context, dialed=False)
    _shake_hands(connection, session, timeout_s)
    return EncryptedConnection(connection, session)


def _shake_hands(connection: socket.socket, session: TlsSession, timeout_s: float) -> None:
    """Whole or not at all, within this time: a peer could else say a byte now and then."""
    deadline_s = time.monotonic() + timeout_s
    received = b""
    while True:
        try:
            done = session.shake_hands(received)
        finally:
            answer = session.to_send()
            if answer:
                connection.sendall(answer)
        if done:
            break
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        connection.settimeout(left_s)
        received = connection.recv(RECORD_BYTES)
        if not received:
            raise AuthenticationError("connection closed: no encryption with the peer; is it of another run?")
    connection.settimeout(timeout_s)
