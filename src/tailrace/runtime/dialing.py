"""Dialing: how a worker gets connections to others, through shared memory where both are on one machine.

Dialing may take long, so it is done in the background. Who was not reached is dialed again when it is next asked for.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tailrace.core.messages import Member
from tailrace.errors import ProtocolError, SegmentError
from tailrace.runtime.auth import Contact, dial
from tailrace.runtime.channels import Channel, RingPart, offer_ring
from tailrace.runtime.links import OutLink

DIALERS = 8
RETRY_S = 0.05


class Dialer:
    """Of one epoch of a worker. ``say_no_ring`` is told why shared memory is not used where it could be."""

    def __init__(self, worker: int, epoch: int, host: str, secret: bytes, say_no_ring: Callable[[str], None]) -> None:
        self.rings_of: str | None = None  # the job that rings are named after; None: none are offered
        self._own = {"role": "link", "worker": worker, "epoch": epoch}
        self._host = host
        self._secret = secret
        self._say_no_ring = say_no_ring
        self._threads = ThreadPoolExecutor(DIALERS, thread_name_prefix="dial")

    def connect(self, link: OutLink, member: Member, done: Callable[[Channel | None], None]) -> None:
        """Make a channel in the background; None if that failed."""

        def attempt() -> None:
            try:
                channel = self._dial(member, link)
            except (OSError, ProtocolError):
                time.sleep(RETRY_S)
                done(None)
            else:
                done(channel)

        try:
            self._threads.submit(attempt)
        except RuntimeError:
            pass  # we are leaving

    def ask(self, member: Member, hello: dict[str, Any]) -> tuple[socket.socket, dict[str, Any]]:
        """A connection, and what the other has to say about it."""
        contact = self._contact(member, hello)
        return contact.connection, contact.said

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)  # Spark may go on using this process

    def _dial(self, member: Member, link: OutLink) -> Channel:
        hello = {"kind": link.kind, "target": link.target}
        ring = self._offer(link.kind) if member.address[0] == self._host and link.kind != "cancels" else None
        if ring is None:
            contact = self._contact(member, hello)
            return Channel(contact.connection, seals=contact.link_seals)
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
        return Channel(contact.connection, seals=contact.link_seals)

    def _contact(self, member: Member, hello: dict[str, Any]) -> Contact:
        return dial(member.address, self._secret, {**self._own, "to_epoch": member.epoch, **hello})

    def _offer(self, kind: str) -> RingPart | None:
        if self.rings_of is None:
            return None
        try:
            return offer_ring(self.rings_of, kind)
        except SegmentError as error:
            self._say_no_ring(str(error))
            return None
