"""Both sides of every connection prove that they know the run's secret before anything else is said.

Each sends a fresh random challenge and answers the other's with a keyed hash over both challenges and its own role,
so that an answer can be neither replayed nor reflected. The bytes are of fixed size until both are convinced. What
follows carries seals, so that one on the way who relays the answers can add nothing: the hello and the reply to it, all
that worker and coordinator say, and all frames of links that leave the machine. It is not encrypted: the secret keeps
strangers out, it does not hide tuples from who can read the network.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import secrets
import socket
import struct
from dataclasses import dataclass
from typing import Any

from tailrace.errors import AuthenticationError, ProtocolError, Refused
from tailrace.runtime.links.link_watch import KEEP_ALIVE_S, keep_alive
from tailrace.runtime.links.seals import SEAL_BYTES, Seal, Seals, seals_of

MAGIC = b"tailrac2"
CHALLENGE = 32
DIGEST = 32
MAX_HELLO = 4096
GREETING = b"greeting"
"""Sealed with a hello and a reply, which no frame begins with."""

TIMEOUT_S = 5.0
"""For a whole handshake. It needs two round trips and no thought."""


def new_secret() -> bytes:
    return secrets.token_bytes(32)


def _answer(secret: bytes, role: bytes, dialer: bytes, acceptor: bytes) -> bytes:
    return hmac.digest(secret, MAGIC + role + dialer + acceptor, "sha256")


@dataclass(frozen=True)
class Contact:
    """An authenticated connection, at either end."""

    connection: socket.socket
    seals: Seals
    near: bool  # it does not leave this machine, as both ends see it
    said: dict[str, Any]  # the peer's hello, or its reply to ours

    @property
    def link_seals(self) -> Seals | None:
        """For frames of a link. Within a machine they need none: who can change them there can do anything."""
        return None if self.near else self.seals


def dial(address: tuple[str, int], secret: bytes, hello: dict[str, Any]) -> Contact:
    """Connect, authenticate, say who we are. Raises ProtocolError if refused and OSError if nobody answers."""
    connection = socket.create_connection(address, timeout=TIMEOUT_S)
    try:
        tune(connection)
        near = stays_here(connection)
        seals = _prove_as_dialer(connection, secret)
        _send_json(connection, seals.sending, {**hello, "near": near})
        reply = _receive_json(connection, seals.receiving)
        if not reply.get("ok"):
            raise Refused(f"refused by {address[0]}:{address[1]}: {reply.get('why')}")
    except BaseException:
        connection.close()
        raise
    return Contact(connection, seals, near, reply)


def accept(connection: socket.socket, secret: bytes) -> Contact:
    """The other side. ``answer`` must follow. Closes the connection if it is no peer."""
    try:
        connection.settimeout(TIMEOUT_S)
        tune(connection)
        seals = _prove_as_acceptor(connection, secret)
        hello = _receive_json(connection, seals.receiving)
        near = hello.pop("near", False) is True
        if near and not stays_here(connection):
            raise ProtocolError("a peer elsewhere takes this for a connection within its machine; who relays it?")
        return Contact(connection, seals, near, hello)
    except BaseException:
        connection.close()
        raise


def answer(contact: Contact, why_not: str | None, **more: Any) -> None:
    """Take the peer in, or say why not and hang up."""
    _send_json(contact.connection, contact.seals.sending, {"ok": why_not is None, "why": why_not, **more})
    if why_not is not None:
        contact.connection.close()


def stays_here(connection: socket.socket) -> bool:
    """Whether both ends are on this machine: on loopback, or at one address, which nobody else can send from."""
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return True
    own, peer = connection.getsockname()[0], connection.getpeername()[0]
    return bool(own == peer or ipaddress.ip_address(peer).is_loopback)


def _prove_as_dialer(connection: socket.socket, secret: bytes) -> Seals:
    own = secrets.token_bytes(CHALLENGE)
    connection.sendall(MAGIC + own)
    greeting = receive_exactly(connection, len(MAGIC) + CHALLENGE + DIGEST)
    other, proof = greeting[len(MAGIC) : -DIGEST], greeting[-DIGEST:]
    if greeting[: len(MAGIC)] != MAGIC or not hmac.compare_digest(proof, _answer(secret, b"accept", own, other)):
        raise AuthenticationError("the peer does not know the run's secret; does something else listen on its port?")
    connection.sendall(_answer(secret, b"dial", own, other))
    return seals_of(secret, (own, other), dialed=True)


def _prove_as_acceptor(connection: socket.socket, secret: bytes) -> Seals:
    greeting = receive_exactly(connection, len(MAGIC) + CHALLENGE)
    if greeting[: len(MAGIC)] != MAGIC:
        raise AuthenticationError("the peer does not speak our protocol; is it of another run or version?")
    other, own = greeting[len(MAGIC) :], secrets.token_bytes(CHALLENGE)
    connection.sendall(MAGIC + own + _answer(secret, b"accept", other, own))
    if not hmac.compare_digest(receive_exactly(connection, DIGEST), _answer(secret, b"dial", other, own)):
        raise AuthenticationError("the peer does not know the run's secret; is it of another run?")
    return seals_of(secret, (other, own), dialed=False)


def _send_json(connection: socket.socket, seal: Seal, value: dict[str, Any]) -> None:
    data = json.dumps(value).encode()
    connection.sendall(struct.pack("<I", len(data)) + data + seal.of(GREETING, data))


def _receive_json(connection: socket.socket, seal: Seal) -> dict[str, Any]:
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


def receive_exactly(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            raise ProtocolError(f"connection closed: received={len(data)} expected={count}; does it know the secret?")
        data += piece
    return bytes(data)


def close_listener(listener: socket.socket) -> None:
    """Closing alone does not wake the thread that accepts."""
    try:
        listener.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    listener.close()


BUFFER_BYTES = 128 << 10
"""Of the kernel, on each side of a link: what is queued there is latency, and no policy can reorder it."""


def tune(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    keep_alive(connection, KEEP_ALIVE_S)
