"""Both sides of every connection prove that they know the run's secret before anything else is said.

Each sends a fresh random challenge and answers the other's with a keyed hash over both challenges and its own role,
so that an answer can be neither replayed nor reflected. The bytes are of fixed size until both are convinced. What
follows is not encrypted: the secret keeps strangers out, it does not hide tuples from who can read the network.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import struct
from typing import Any

from tailrace.errors import AuthenticationError, ProtocolError, Refused

MAGIC = b"tailrac1"
CHALLENGE = 32
DIGEST = 32
MAX_HELLO = 4096
TIMEOUT_S = 5.0
"""For a whole handshake. It needs two round trips and no thought."""


def new_secret() -> bytes:
    return secrets.token_bytes(32)


def _answer(secret: bytes, role: bytes, dialer: bytes, acceptor: bytes) -> bytes:
    return hmac.digest(secret, MAGIC + role + dialer + acceptor, "sha256")


def dial(address: tuple[str, int], secret: bytes, hello: dict[str, Any]) -> socket.socket:
    """Connect, authenticate, say who we are. Raises ProtocolError if refused and OSError if nobody answers."""
    return dial_and_hear(address, secret, hello)[0]


def dial_and_hear(
    address: tuple[str, int], secret: bytes, hello: dict[str, Any]
) -> tuple[socket.socket, dict[str, Any]]:
    """The same, with the peer's answer."""
    connection = socket.create_connection(address, timeout=TIMEOUT_S)
    try:
        tune(connection)
        _prove_as_dialer(connection, secret)
        _send_json(connection, hello)
        reply = _receive_json(connection)
        if not reply.get("ok"):
            raise Refused(f"refused by {address[0]}:{address[1]}: {reply.get('why')}")
    except BaseException:
        connection.close()
        raise
    return connection, reply


def accept(connection: socket.socket, secret: bytes) -> dict[str, Any]:
    """The other side. Returns the peer's hello; ``answer`` must follow. Closes the connection if it is no peer."""
    try:
        connection.settimeout(TIMEOUT_S)
        tune(connection)
        _prove_as_acceptor(connection, secret)
        return _receive_json(connection)
    except BaseException:
        connection.close()
        raise


def answer(connection: socket.socket, why_not: str | None, **more: Any) -> None:
    """Take the peer in, or say why not and hang up."""
    _send_json(connection, {"ok": why_not is None, "why": why_not, **more})
    if why_not is not None:
        connection.close()


def _prove_as_dialer(connection: socket.socket, secret: bytes) -> None:
    own = secrets.token_bytes(CHALLENGE)
    connection.sendall(MAGIC + own)
    greeting = receive_exactly(connection, len(MAGIC) + CHALLENGE + DIGEST)
    other, proof = greeting[len(MAGIC) : -DIGEST], greeting[-DIGEST:]
    if greeting[: len(MAGIC)] != MAGIC or not hmac.compare_digest(proof, _answer(secret, b"accept", own, other)):
        raise AuthenticationError("the peer does not know the run's secret; does something else listen on its port?")
    connection.sendall(_answer(secret, b"dial", own, other))


def _prove_as_acceptor(connection: socket.socket, secret: bytes) -> None:
    greeting = receive_exactly(connection, len(MAGIC) + CHALLENGE)
    if greeting[: len(MAGIC)] != MAGIC:
        raise AuthenticationError("the peer does not speak our protocol; is it of another run or version?")
    other, own = greeting[len(MAGIC) :], secrets.token_bytes(CHALLENGE)
    connection.sendall(MAGIC + own + _answer(secret, b"accept", other, own))
    if not hmac.compare_digest(receive_exactly(connection, DIGEST), _answer(secret, b"dial", other, own)):
        raise AuthenticationError("the peer does not know the run's secret; is it of another run?")


def _send_json(connection: socket.socket, value: dict[str, Any]) -> None:
    data = json.dumps(value).encode()
    connection.sendall(struct.pack("<I", len(data)) + data)


def _receive_json(connection: socket.socket) -> dict[str, Any]:
    (length,) = struct.unpack("<I", receive_exactly(connection, 4))
    if length > MAX_HELLO:
        raise ProtocolError(f"hello too large: bytes={length} limit={MAX_HELLO}; is the peer Tailrace?")
    try:
        value = json.loads(receive_exactly(connection, length))
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
