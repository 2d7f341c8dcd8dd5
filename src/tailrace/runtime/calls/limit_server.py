"""The limits of a driver process: one thread that clients of all runs and queries connect to.

It starts when the first limit is used, and lives as long as the process. Connections are authenticated, then sealed.
A client that sends what is no request, asks for too much, or does not read, is disconnected; others do not notice.
"""

from __future__ import annotations

import logging
import os
import selectors
import socket
import ssl
import threading
from collections import deque
from dataclasses import dataclass, field
from functools import cached_property, partial

from tailrace.calls.limit import Limit
from tailrace.calls.limits.declared import alike, check_alike
from tailrace.calls.limits.messages import Reply
from tailrace.calls.limits.shared import SharedLimit
from tailrace.clock import SECOND_NS, system_clock
from tailrace.errors import OptionError, ProtocolError
from tailrace.runtime.calls.limit_messages import (
    MAX_BYTES,
    MOST_WANTS,
    REPLY,
    REQUEST,
    decode_request,
    encode_reply,
)
from tailrace.runtime.encryption.certificate import Certificate, accepting, make_certificate
from tailrace.runtime.links.acceptor import Acceptor
from tailrace.runtime.links.auth import Contact, accept, answer, new_secret
from tailrace.runtime.links.frames import FrameReader, frame
from tailrace.runtime.listening import LOOPBACK, Place, Ports, listen

logger = logging.getLogger("tailrace")

ROLE = "limit"
BACKLOG = 256
READ_BYTES = 1 << 16

MOST_UNSENT = 1 << 16
"""Bytes that a client may leave unread, besides the kernel's buffers: about a thousand replies."""

BEAT_S = 1.0
"""How often each client hears from the server, so that it notices when the driver is stopped or cut off."""

LONG_PAUSE_S = 10.0
"""A service that refuses most calls, and asks for a longer pause than this, is reported to the user."""


@dataclass(frozen=True)
class LimitAddress:
    """Where the limits of a driver are, and the secret that its clients must know. It is sent to workers and tasks."""

    host: str
    port: int
    secret: bytes = field(repr=False)
    fingerprint: bytes | None = None  # of the certificate, if connections are encrypted


def limit_address(
    *limits: Limit, place: Place = LOOPBACK, ports: Ports | None = None, encrypt: bool = False
) -> LimitAddress:
    """Where the clients of this process's limits connect to. Starts the server if there is none.

    Raises OptionError if one of the limits is in use, or is given twice, with other numbers.

    Args:
        limits: those that will be used.
        place: the address to listen on, and the one that clients connect to.
        ports: those that it may listen on.
        encrypt: whether its connections are encrypted.

    Example:
        >>> limit_address(tr.limit("geocoder", per_s=50)).host
        '127.0.0.1'
    """
    global _server
    with _starting:
        if _server is None or not _server.serves_this_process:
            _server = LimitServer()
        server = _server
        fingerprint = server.certificate.fingerprint if encrypt else None
    server.check(limits)
    return LimitAddress(place.address, server.listen(place.bind, ports, encrypt), server.secret, fingerprint)


_server: LimitServer | None = None
_starting = threading.Lock()


class _Connection:
    """One client's connection. Only the server's thread uses it."""

    def __init__(self, number: int, contact: Contact, shared: SharedLimit) -> None:
        self.number = number
        self.shared = shared
        self.socket = contact.connection
        self.socket.setblocking(False)
        self.reader = FrameReader(MAX_BYTES, contact.seals.receiving)
        self._seal = contact.seals.sending
        self._sent = 0
        self._received = 0
        self.unsent = bytearray()

    def received(self, number: int, kind: int) -> None:
        self._received += 1
        if kind != REQUEST or number != self._received:
            raise ProtocolError(f"not the next request: kind={kind} number={number}; is the peer Tailrace?")

    def send(self, reply: Reply) -> None:
        self._sent += 1
        self.unsent += frame(REPLY, self._sent, encode_reply(reply), self._seal)
        self.flush()
        if len(self.unsent) > MOST_UNSENT:
            raise ProtocolError("a client of a limit does not read; is it stopped?")

    def flush(self) -> None:
        if self.unsent:
            try:
                del self.unsent[: self.socket.send(self.unsent)]
            except BlockingIOError:
                pass


class LimitServer:
    """Serves all limits of a process by name."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self.secret = new_secret()
        self._limits: dict[str, SharedLimit] = {}
        self._users: dict[str, int] = {}  # clients that are connected, or about to be, by name of their limit
        self._lock = threading.Lock()  # for the two above
        self._listeners: dict[tuple[str, Ports | None, bool], tuple[int, Acceptor]] = {}
        self._new: deque[tuple[Contact, SharedLimit, int]] = deque()
        self._selector = selectors.DefaultSelector()
        self._bell, self._ringer = socket.socketpair()
        self._bell.setblocking(False)
        self._ringer.setblocking(False)
        self._selector.register(self._bell, selectors.EVENT_READ, None)
        self._connections: dict[SharedLimit, dict[int, _Connection]] = {}
        self._warned_ns: dict[SharedLimit, int] = {}
        self._numbers = 0
        self._beat_ns = 0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="tailrace-limits", daemon=True)
        self._thread.start()

    # -- from any thread

    @property
    def serves_this_process(self) -> bool:
        """False after a fork, which no thread survives, and after the server was closed."""
        return self._pid == os.getpid() and self._thread.is_alive()

    def check(self, limits: tuple[Limit, ...]) -> None:
        """Raise OptionError if two of these limits, or one of them and one in use, have one name and differ."""
        with self._lock:
            live = [self._limits[name].limit for name, users in self._users.items() if users]
        seen = {limit.name: limit for limit in live}
        for limit in limits:
            check_alike(seen.setdefault(limit.name, limit), limit)

    @cached_property
    def certificate(self) -> Certificate:
        """It lasts as long as the secret does. Raises OptionError if it cannot be made."""
        return make_certificate()

    def listen(self, bind: str, ports: Ports | None = None, encrypt: bool = False) -> int:
        """Listen on this address too. Returns the port."""
        key = (bind, ports, encrypt)
        with self._lock:
            if key not in self._listeners:
                encryption = accepting(self.certificate) if encrypt else None
                listener = listen(bind, ports, BACKLOG)
                acceptor = Acceptor(listener, partial(self._greet, encryption), "tailrace-limits")
                self._listeners[key] = (listener.getsockname()[1], acceptor)
                acceptor.start()
            return self._listeners[key][0]

    def close(self) -> None:
        """End the thread and all connections."""
        self._closed = True
        self._ring()
        self._thread.join()

    def _ring(self) -> None:
        try:
            self._ringer.send(b"\0")
        except OSError:
            pass  # it has been rung already, or the server is closed

    # -- in a thread of the acceptor

    def _greet(self, encryption: ssl.SSLContext | None, connection: socket.socket) -> None:
        """The handshake with a client. A stranger, or a client with another declaration, is refused."""
        try:
            contact = accept(connection, self.secret, encryption)
        except (OSError, ProtocolError):
            return
        shared: SharedLimit | None = None
        try:
            limit, in_use = _read_hello(contact)
            shared = self._join(limit)
            answer(contact, None)
        except OptionError as error:
            self._refuse(contact, str(error))
        except (OSError, ProtocolError) as error:
            if shared is not None:
                self._forget(shared)
            self._refuse(contact, str(error))
        else:
            self._new.append((contact, shared, in_use))
            self._ring()

    def _refuse(self, contact: Contact, why_not: str) -> None:
        try:
            answer(contact, why_not)
        except OSError:
            contact.connection.close()

    def _join(self, limit: Limit) -> SharedLimit:
        """The limit of this name. One that has no clients may be declared with other numbers."""
        with self._lock:
            shared = self._limits.get(limit.name)
            if shared is not None and self._users[limit.name]:
                check_alike(shared.limit, limit)
            elif shared is None or not alike(shared.limit, limit):
                shared = self._limits[limit.name] = SharedLimit(limit, system_clock())
                self._users[limit.name] = 0
            self._users[limit.name] += 1
            return shared

    def _forget(self, shared: SharedLimit) -> None:
        with self._lock:
            self._users[shared.limit.name] -= 1

    # -- the server's own thread

    def _run(self) -> None:
        try:
            while not self._closed:
                self._turn()
        except Exception:  # a bug here must not leave clients waiting: they go on by themselves when they are cut off
            logger.exception("the server of limits has failed: each task keeps its part of its limit from now on")
        finally:
            self._end()

    def _turn(self) -> None:
        for key, events in self._selector.select(self._timeout_s()):
            if key.data is None:
                self._bell.recv(READ_BYTES)
            elif events & selectors.EVENT_READ:
                self._read(key.data)
            else:
                self._write(key.data)
        while self._new:
            self._admit(*self._new.popleft())
        self._step_all()

    def _end(self) -> None:
        self._closed = True
        with self._lock:
            for _, acceptor in self._listeners.values():
                acceptor.close()
        for contact, *_ in self._new:
            contact.connection.close()
        for connections in self._connections.values():
            for connection in connections.values():
                connection.socket.close()
        self._selector.close()
        self._bell.close()
        self._ringer.close()

    def _timeout_s(self) -> float | None:
        if not self._connections:
            return None
        due_ns = [shared.next_ns for shared in self._connections if shared.next_ns is not None]
        return max(0, min([self._beat_ns, *due_ns]) - system_clock()) / SECOND_NS

    def _admit(self, contact: Contact, shared: SharedLimit, in_use: int) -> None:
        self._numbers += 1
        connection = _Connection(self._numbers, contact, shared)
        self._connections.setdefault(shared, {})[connection.number] = connection
        shared.join(connection.number, in_use, system_clock())
        self._selector.register(connection.socket, selectors.EVENT_READ, connection)

    def _read(self, connection: _Connection) -> None:
        shared = connection.shared
        try:
            data = connection.socket.recv(READ_BYTES)
            if not data:
                self._drop(connection)
                return
            for kind, number, payload in connection.reader.feed(data):
                connection.received(number, kind)
                request = decode_request(payload)
                if shared.waiting(connection.number) + len(request.wants) > MOST_WANTS:
                    raise ProtocolError(f"a client waits for too many grants: limit={shared.limit.name}")
                now_ns = system_clock()
                shared.handle(connection.number, request, now_ns)
                if request.throttled:
                    self._warn_of_pause(shared, now_ns)
        except BlockingIOError:
            pass
        except (OSError, ProtocolError):
            self._drop(connection)

    def _write(self, connection: _Connection) -> None:
        try:
            connection.flush()
            if not connection.unsent:
                self._selector.modify(connection.socket, selectors.EVENT_READ, connection)
        except OSError:
            self._drop(connection)

    def _step_all(self) -> None:
        now_ns = system_clock()
        beat = now_ns >= self._beat_ns
        if beat:
            self._beat_ns = now_ns + int(BEAT_S * SECOND_NS)
        for shared, connections in list(self._connections.items()):
            for number, reply in shared.step(system_clock(), beat):
                connection = connections[number]
                try:
                    connection.send(reply)
                    if connection.unsent:
                        both = selectors.EVENT_READ | selectors.EVENT_WRITE
                        self._selector.modify(connection.socket, both, connection)
                except (OSError, ProtocolError):
                    self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        connections = self._connections.get(connection.shared, {})
        if connections.pop(connection.number, None) is None:
            return
        if not connections:
            del self._connections[connection.shared]
        self._selector.unregister(connection.socket)
        connection.socket.close()
        connection.shared.leave(connection.number, system_clock())
        self._forget(connection.shared)

    def _warn_of_pause(self, shared: SharedLimit, now_ns: int) -> None:
        pause_s = (shared.paused_until_ns - now_ns) / SECOND_NS
        if pause_s > LONG_PAUSE_S and now_ns >= self._warned_ns.get(shared, 0):
            self._warned_ns[shared] = shared.paused_until_ns
            logger.warning(
                "a limit pauses, as the service refuses most calls and asks for it: limit=%s seconds=%.0f",
                *(shared.limit.name, pause_s),
            )


def _read_hello(contact: Contact) -> tuple[Limit, int]:
    """The limit that a client wants to share, and how many calls it has under way."""
    said = contact.said
    name, in_use = said.get("limit"), said.get("in_use")
    rates = [said.get("per_s"), said.get("per_minute")]
    concurrency = said.get("concurrency")
    if said.get("role") != ROLE or not isinstance(name, str) or not isinstance(in_use, int) or in_use < 0:
        raise ProtocolError("not a client of a limit")
    if not all(rate is None or (isinstance(rate, int | float) and rate > 0) for rate in rates):
        raise ProtocolError("not a limit")
    if concurrency is not None and not (isinstance(concurrency, int) and concurrency > 0):
        raise ProtocolError("not a limit")
    return Limit(name, rates[0], rates[1], concurrency), in_use
