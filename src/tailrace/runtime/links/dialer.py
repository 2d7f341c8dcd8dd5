"""Makes a worker's connections to others, with a ring in shared memory where both are on one machine.

Dialing may take long, so it is done in the background. A worker that cannot be reached is dialed again and again by one
thread, less and less often, while all other links to it wait for that one: otherwise they would occupy all dialing
threads. If it lasts, the user is told.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from tailrace.core.protocol.messages import Member
from tailrace.errors import ProtocolError, SegmentError
from tailrace.runtime.encryption.connection import Connection
from tailrace.runtime.links.auth import TIMEOUT_S, Contact, dial
from tailrace.runtime.links.channels import Channel, RingPart, offer_ring
from tailrace.runtime.links.link import OutLink
from tailrace.runtime.links.link_watch import LinkWatch, keep_alive

DIALERS = 8
RETRY_S = 0.05
LONGEST_RETRY_S = 1.0
"""The wait between two attempts to reach a worker: the first, and the longest. A mended cut goes unnoticed as long."""

SAY_AFTER_S = 4.0
SAY_AGAIN_S = 300.0
"""How long a worker cannot be reached before the user is told, and until the user is told again."""

LOOK_S = 1.0
"""How often all connections are looked at. A look at one takes a microsecond or two."""

Done = Callable[[Channel | None], None]


@dataclass(frozen=True)
class _Request:
    """A link that wants a connection."""

    link: OutLink
    done: Done


class Dialer:
    """Dials for one epoch of a worker, with encryption if there is a fingerprint to know its peers by.

    ``say_no_ring`` gets the reason if shared memory is not used where it could be; ``say_unreachable`` gets a
    worker that cannot be reached, and why.
    """

    def __init__(
        self,
        worker: int,
        epoch: int,
        host: str,
        secret: bytes,
        say_no_ring: Callable[[str], None],
        say_unreachable: Callable[[int, str], None],
        fingerprint: bytes | None = None,
    ) -> None:
        self.ring_job: str | None = None  # the job that rings are named after; None: offer no rings
        self.timeout_s = TIMEOUT_S  # after so long without an answer a connection counts as cut
        self._own = {"role": "link", "worker": worker, "epoch": epoch}
        self._host = host
        self._secret = secret
        self._fingerprint = fingerprint
        self._say_no_ring = say_no_ring
        self._say_unreachable = say_unreachable
        self._threads = ThreadPoolExecutor(DIALERS, thread_name_prefix="dial")
        self._watch = LinkWatch()
        self._looked_s = 0.0
        self._lock = threading.Lock()
        self._unreached: dict[Member, list[_Request]] = {}  # links that wait until one of them gets through
        self._closed = threading.Event()

    def connect(self, link: OutLink, member: Member, done: Done) -> None:
        """Make a channel in the background. ``done`` gets None if the link does not want it any more."""
        request = _Request(link, done)
        with self._lock:
            waiting = self._unreached.get(member)
            if waiting is not None:
                waiting.append(request)
                return
        self._submit(member, request)

    def ask(self, member: Member, hello: dict[str, Any]) -> tuple[Connection, dict[str, Any]]:
        """Connect, and return the connection with the peer's reply. Raises OSError or ProtocolError."""
        contact = self._contact(member, hello)
        return contact.connection, contact.said

    def end_cut_links(self) -> None:
        """End connections with workers that have not answered for too long. To be called regularly."""
        now_s = time.monotonic()
        if now_s - self._looked_s >= LOOK_S:
            self._looked_s = now_s
            self._watch.end_those_that_stand_still(self.timeout_s)

    def close(self) -> None:
        self._closed.set()
        self._threads.shutdown(wait=False, cancel_futures=True)  # Spark may go on using this process

    # -- attempts

    def _submit(self, member: Member, request: _Request) -> None:
        try:
            self._threads.submit(self._attempt, member, request)
        except RuntimeError:
            pass  # the worker is leaving

    def _attempt(self, member: Member, request: _Request) -> None:
        began_s = time.monotonic()
        try:
            channel = self._dial(member, request.link)
        except (OSError, ProtocolError) as error:
            with self._lock:
                waiting = self._unreached.get(member)
                if waiting is not None:
                    waiting.append(request)
                    return
                self._unreached[member] = [request]
            name, known = f"reach {request.link.worker}", (member, request.link.worker, began_s, error)
            threading.Thread(target=self._try_again, args=known, name=name, daemon=True).start()
        else:
            request.done(channel)

    def _try_again(self, member: Member, worker: int, since_s: float, error: Exception) -> None:
        """Dial until one link has got through, or no link wants this member any more. The others follow."""
        wait_s, say_at_s = RETRY_S, since_s + SAY_AFTER_S
        while True:
            now_s = time.monotonic()
            if now_s >= say_at_s:
                say_at_s = now_s + SAY_AGAIN_S
                self._say_unreachable(worker, _unreached(member, now_s - since_s, error))
            if self._closed.wait(wait_s):
                return
            wait_s = min(2 * wait_s, LONGEST_RETRY_S)
            request = self._next_request(member)
            if request is None:
                return
            try:
                channel = self._dial(member, request.link)
            except (OSError, ProtocolError) as again:
                error = again
            else:
                with self._lock:
                    others = self._unreached.pop(member)
                request.done(channel)
                for other in others:
                    if other is not request:
                        self._submit(member, other)
                return

    def _next_request(self, member: Member) -> _Request | None:
        """One of the requests for this member that still stand; None if there are none."""
        with self._lock:
            waiting = self._unreached[member]
            given_up = [request for request in waiting if request.link.member != member]
            waiting[:] = [request for request in waiting if request.link.member == member]
            if not waiting:
                del self._unreached[member]
            request = waiting[0] if waiting else None
        for one in given_up:
            one.done(None)
        return request

    # -- one connection

    def _dial(self, member: Member, link: OutLink) -> Channel:
        hello = {"kind": link.kind, "target": link.target}
        ring = self._offer(link.kind) if member.address[0] == self._host and link.kind != "cancels" else None
        if ring is None:
            return self._over_tcp(member, link, self._contact(member, hello))
        offer = {"ring": ring.segment.path.name, "nonce": ring.segment.nonce.hex()}
        try:
            contact = self._contact(member, {**hello, **offer})
        except BaseException:
            ring.withdraw()
            ring.close()
            raise
        ring.withdraw()
        if contact.said.get("ring"):
            return Channel(contact.connection, ring)
        ring.close()
        self._say_no_ring(str(contact.said.get("why_no_ring")))
        return self._over_tcp(member, link, contact)

    def _over_tcp(self, member: Member, link: OutLink, contact: Contact) -> Channel:
        keep_alive(contact.connection, self.timeout_s)
        self._watch.add(link.worker, member.epoch, contact.connection)
        return Channel(contact.connection, seals=contact.link_seals)

    def _contact(self, member: Member, hello: dict[str, Any]) -> Contact:
        hello = {**self._own, "to_epoch": member.epoch, **hello}
        return dial(member.address, self._secret, hello, self._fingerprint)

    def _offer(self, kind: str) -> RingPart | None:
        if self.ring_job is None:
            return None
        try:
            return offer_ring(self.ring_job, kind)
        except SegmentError as error:
            self._say_no_ring(str(error))
            return None


def _unreached(member: Member, seconds: float, error: Exception) -> str:
    host, port = member.address
    why = f"{type(error).__name__}: {error}"
    return f"address={host}:{port} for={seconds:.0f}s cause={why}; does a firewall keep workers from each other?"
