"""The two ways of a client to what grants: a connection to the driver, or a limit of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Protocol

from tailrace.calls.limit import Limit
from tailrace.calls.limits.messages import Reply, Request
from tailrace.calls.limits.shared import SharedLimit
from tailrace.clock import SECOND_NS, system_clock
from tailrace.errors import ProtocolError
from tailrace.runtime.calls.limit_messages import MAX_BYTES, REPLY, REQUEST, decode_reply, encode_request
from tailrace.runtime.calls.limit_server import BEAT_S, LimitAddress
from tailrace.runtime.encryption.connection import detached
from tailrace.runtime.encryption.session import TlsSession
from tailrace.runtime.links.auth import Contact, dial
from tailrace.runtime.links.frames import FrameReader, frame
from tailrace.runtime.links.seals import Seals

PATIENCE_S = 5.0
"""How long calls wait for a driver that says nothing, or cannot be reached, before the task goes on without it."""

Replied = Callable[[Reply], None]


class Link(Protocol):
    """Takes requests. Replies come by a function that it was given."""

    def send(self, request: Request) -> None: ...

    def close(self) -> None: ...


async def connect(
    server: LimitAddress, hello: dict[str, object], replied: Replied, lost: Callable[[Link], None]
) -> RemoteLink:
    """Connect to the driver's server, and hear from it. Raises as ``dial`` does."""
    contact = await _dial(server, hello)
    contact.connection.setblocking(False)
    sock, session, early = detached(contact.connection)
    factory = partial(RemoteLink, contact.seals, replied, lost, session)
    _, link = await asyncio.get_running_loop().create_connection(factory, sock=sock)
    link.take(early)
    try:
        await link.heard
        if link.ended:  # in the same moment: no one would notice it later
            raise ConnectionResetError("the driver has said no more than that it is there")
    except BaseException:
        link.close()
        raise
    return link


async def _dial(server: LimitAddress, hello: dict[str, object]) -> Contact:
    """``dial`` in a thread that nothing waits for at the end: it may take as long as a network lets it."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[Contact] = loop.create_future()

    def tell(contact: Contact | None, error: Exception | None) -> None:
        if found.done():  # it was cancelled
            if contact is not None:
                contact.connection.close()
        elif error is not None:
            found.set_exception(error)
        elif contact is not None:
            found.set_result(contact)

    def run() -> None:
        contact, error = None, None
        try:
            contact = dial((server.host, server.port), server.secret, hello, server.fingerprint)
        except Exception as caught:
            error = caught
        try:
            loop.call_soon_threadsafe(tell, contact, error)
        except RuntimeError:  # the loop is closed
            if contact is not None:
                contact.connection.close()

    threading.Thread(target=run, name="tailrace-limit-dial", daemon=True).start()
    return await found


class RemoteLink(asyncio.Protocol):
    """A connection to the driver's server."""

    def __init__(
        self, seals: Seals, replied: Replied, lost: Callable[[Link], None], session: TlsSession | None = None
    ) -> None:
        self._replied, self._lost = replied, lost
        self._session = session
        self._reader = FrameReader(MAX_BYTES, seals.receiving)
        self._seal = seals.sending
        self._sent = 0
        self._received = 0
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self.heard: asyncio.Future[tuple[int, int]] = self._loop.create_future()  # when a reply was sent, and came
        self._heard_s = self._loop.time()
        self._watch: asyncio.TimerHandle | None = None
        self.ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._look()

    def _look(self) -> None:
        """Give a connection up on which nothing is heard: the driver may be stopped, or cut off without a word."""
        assert self._transport is not None
        if self._loop.time() - self._heard_s > PATIENCE_S:
            self._transport.abort()
        else:
            self._watch = self._loop.call_later(BEAT_S, self._look)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._heard_s = self._loop.time()
        try:
            self.take(data if self._session is None else self._session.decrypt(data))
        except OSError:  # what came was not sent by the driver
            self._transport.abort()

    def take(self, data: bytes) -> None:
        """Process what the driver said."""
        assert self._transport is not None
        try:
            for kind, number, payload in self._reader.feed(data):
                self._received += 1
                if kind != REPLY or number != self._received:
                    raise ProtocolError(f"not the next reply: kind={kind} number={number}; is the peer Tailrace?")
                reply = decode_reply(payload)
                if self.heard.done():
                    self._replied(reply)
                else:  # it only says that the driver is there, and what time it is
                    self.heard.set_result((reply.now_ns, system_clock()))
        except ProtocolError:
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.ended = True
        if self._watch is not None:
            self._watch.cancel()
        if not self.heard.done():
            self.heard.set_exception(ConnectionResetError("the driver says nothing"))
            self.heard.exception()  # no one awaits it if connecting was cancelled, and asyncio would report that
        self._lost(self)

    def send(self, request: Request) -> None:
        assert self._transport is not None
        self._sent += 1
        data = frame(REQUEST, self._sent, encode_request(request), self._seal)
        self._transport.write(data if self._session is None else self._session.encrypt(data))

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()


class LocalLink:
    """A limit of this task alone."""

    def __init__(self, limit: Limit, in_use: int, replied: Replied) -> None:
        self._shared = SharedLimit(limit, system_clock())
        self._shared.join(0, in_use, system_clock())
        self._loop = asyncio.get_running_loop()
        self._replied = replied
        self._timer: asyncio.TimerHandle | None = None

    def send(self, request: Request) -> None:
        self._shared.handle(0, request, system_clock())
        self._step()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _step(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        replies = self._shared.step(system_clock())
        next_ns = self._shared.next_ns
        if next_ns is not None:
            self._timer = self._loop.call_later(max(0, next_ns - system_clock()) / SECOND_NS, self._step)
        for _, reply in replies:
            self._replied(reply)
