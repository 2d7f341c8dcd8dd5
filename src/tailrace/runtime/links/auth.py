"""Both sides of every connection prove that they know the run's secret before anything else is said.

Each sends a fresh random challenge and answers the other's with a keyed hash over both challenges and its own role,
so that an answer can be neither replayed nor reflected. The bytes are of fixed size until both are convinced.
Everything after that carries seals, so that an attacker who relays the answers can add nothing: the hello and its
reply, all messages between worker and coordinator, and all frames of links that leave the machine. That hides nothing
from those who can read the network. Where a run is encrypted, all of this happens inside TLS: the dialer says nothing
before it has seen the run's certificate, and the proof still has to follow.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import secrets
import socket
import ssl
import struct
from dataclasses import dataclass
from typing import Any

from tailrace.errors import AuthenticationError, ProtocolError, Refused
from tailrace.runtime.encryption.connection import (
    Connection,
    EncryptedConnection,
    encrypted_by_acceptor,
    encrypted_by_dialer,
)
from tailrace.runtime.links.link_watch import KEEP_ALIVE_S, keep_alive
from tailrace.runtime.links.seals import SEAL_BYTES, Seal, Seals, seals_of

MAGIC = b"tailrac2"
CHALLENGE = 32
DIGEST = 32
MAX_HELLO = 4096
GREETING = b"greeting"
"""Part of the seal of a hello and of a reply. No frame begins with it, so none can pass for either."""

TIMEOUT_S = 5.0
"""The deadline of a whole handshake, which needs two round trips and hardly any computing."""


def new_secret() -> bytes:
    """A secret for one run."""
    return secrets.token_bytes(32)


def _answer(secret: bytes, role: bytes, dialer: bytes, acceptor: bytes) -> bytes:
    return hmac.digest(secret, MAGIC + role + dialer + acceptor, "sha256")


@dataclass(frozen=True)
class Contact:
    """An authenticated connection, at either end."""

    connection: Connection
    seals: Seals
    same_machine: bool  # both ends agree that it does not leave this machine
    said: dict[str, Any]  # the peer's hello, or its reply to ours

    @property
    def link_seals(self) -> Seals | None:
        """Seals for link frames; None where TLS has its own, and within a machine, where an attacker who can change
        frames can do anything."""
        return None if self.same_machine or isinstance(self.connection, EncryptedConnection) else self.seals


def dial(address: tuple[str, int], secret: bytes, hello: dict[str, Any], fingerprint: bytes | None = None) -> Contact:
    """Connect, authenticate, send the hello. Raises ProtocolError if refused, and OSError if there is no answer.

    ``fingerprint``: of the run's certificate, if the connection is to be encrypted.
    """
    dialed = socket.create_connection(address, timeout=TIMEOUT_S)
    connection: Connection = dialed
    try:
        tune(dialed)
        if fingerprint is not None:
            connection = encrypted_by_dialer(dialed, fingerprint, TIMEOUT_S)
        same_machine = stays_here(connection)
        seals = _prove_as_dialer(connection, secret)
        _send_json(connection, seals.sending, {**hello, "near": same_machine})
        reply = _receive_json(connection, seals.receiving)
        if not reply.get("ok"):
            raise Refused(f"refused by {address[0]}:{address[1]}: {reply.get('why')}")
    except BaseException:
        connection.close()
        raise
    return Contact(connection, seals, same_machine, reply)


def accept(accepted: socket.socket, secret: bytes, encryption: ssl.SSLContext | None = None) -> Contact:
    """The acceptor's side of ``dial``. ``answer`` must follow. Raises, and closes the connection, if it is no peer.

    With ``encryption`` nothing is said or heard in clear: go on with the connection of the contact.
    """
    connection: Connection = accepted
    try:
        accepted.settimeout(TIMEOUT_S)
        tune(accepted)
        if encryption is not None:
            connection = encrypted_by_acceptor(accepted, encryption, TIMEOUT_S)
        seals = _prove_as_acceptor(connection, secret)
        hello = _receive_json(connection, seals.receiving)
        same_machine = hello.pop("near", False) is True
        if same_machine and not stays_here(connection):
            raise ProtocolError("a peer elsewhere takes this for a connection within its machine; who relays it?")
        return Contact(connection, seals, same_machine, hello)
    except BaseException:
        connection.close()
        raise


def answer(contact: Contact, why_not: str | None, **more: Any) -> None:
    """Admit the peer, or tell it why not and close the connection."""
    _send_json(contact.connection, contact.seals.sending, {"ok": why_not is None, "why": why_not, **more})
    if why_not is not None:
        contact.connection.close()


def stays_here(connection: Connection) -> bool:
    """Whether both ends are on this machine: on loopback, or at one address, which no other machine can send from."""
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return True
    own, peer = connection.getsockname()[0], connection.getpeername()[0]
    return bool(own == peer or ipaddress.ip_address(peer).is_loopback)


def _prove_as_dialer(connection: Connection, secret: bytes) -> Seals:
    own = secrets.token_bytes(CHALLENGE)
    connection.sendall(MAGIC + own)
    greeting = receive_exactly(connection, len(MAGIC) + CHALLENGE + DIGEST)
    other, proof = greeting[len(MAGIC) : -DIGEST], greeting[-DIGEST:]
    if greeting[: len(MAGIC)] != MAGIC or not hmac.compare_digest(proof, _answer(secret, b"accept", own, other)):
        raise AuthenticationError("the peer does not know the run's secret; does something else listen on its port?")
    connection.sendall(_answer(secret, b"dial", own, other))
    return seals_of(secret, (own, other), dialed=True)


def _prove_as_acceptor(connection: Connection, secret: bytes) -> Seals:
    greeting = receive_exactly(connection, len(MAGIC) + CHALLENGE)
    if greeting[: len(MAGIC)] != MAGIC:
        raise AuthenticationError("the peer does not speak our protocol; is it of another run or version?")
    other, own = greeting[len(MAGIC) :], secrets.token_bytes(CHALLENGE)
    connection.sendall(MAGIC + own + _answer(secret, b"accept", other, own))
    if not hmac.compare_digest(receive_exactly(connection, DIGEST), _answer(secret, b"dial", other, own)):
        raise AuthenticationError("the peer does not know the run's secret; is it of another run?")
    return seals_of(secret, (other, own), dialed=False)


def _send_json(connection: Connection, seal: Seal, value: dict[str, Any]) -> None:
    data = json.dumps(value).encode()
    connection.sendall(struct.pack("<I", len(data)) + data + seal.of(GREETING, data))


def _receive_json(connection: Connection, seal: Seal) -> dict[str, Any]:
    (length,) = struct.unpack("<I", receive_exactly(connection, 4))
    if length > MAX_HELLO:
        raise ProtocolError(f"hello too large: bytes={length} limit={MAX_HELLO}; is the peer Tailrace?")
    data = receive_exactly(connection, length)
    seal.check(receive_exactly(connection, SEAL_BYTES), GREETING, data)
    try:
        value = json.loads(data)
    except ValueError as error:
        raise ProtocolError(f"hello is not JSON: {error}; is the peer Tailrace?") from error
    if not isinstance(value, dict):
        raise ProtocolError(f"hello is not an object: type={type(value).__name__}; is the peer Tailrace?")
    return value


def receive_exactly(connection: Connection, count: int) -> bytes:
    """Receive so many bytes. Raises ProtocolError if the connection ends before."""
    data = bytearray()
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            raise ProtocolError(f"connection closed: received={len(data)} expected={count}; does it know the secret?")
        data += piece
    return bytes(data)


def close_listener(listener: socket.socket) -> None:
    """Close it, and wake the thread that accepts, which closing alone does not."""
    try:
        listener.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    listener.close()


BUFFER_BYTES = 128 << 10
"""The kernel's buffers on each side of a link. Bytes that wait there are latency, and no policy can reorder them."""


def tune(connection: socket.socket) -> None:
    """Set the options that all connections of a run have: no delay, small buffers, keep-alives."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    keep_alive(connection, KEEP_ALIVE_S)
