"""Accepts the links of a worker: a peer says what its connection is for, and the part concerned takes it over."""

from __future__ import annotations

import socket
from functools import partial
from typing import Any, Protocol

from tailrace.core.tasks.base import Task
from tailrace.errors import ProtocolError, SegmentError
from tailrace.runtime.execution.task_host import TaskHost
from tailrace.runtime.links.acceptor import Acceptor, Serve
from tailrace.runtime.links.auth import Contact, accept, answer
from tailrace.runtime.links.cancellations import Cancellations
from tailrace.runtime.links.channels import Channel, RingPart, take_ring
from tailrace.runtime.links.link_watch import KEEP_ALIVE_S, keep_alive
from tailrace.runtime.send_order.node_uplinks import KIND as LINK
from tailrace.runtime.send_order.node_uplinks import NodeUplinks
from tailrace.runtime.shared_queues.node_queues import KIND as QUEUE
from tailrace.runtime.shared_queues.pools import Pools

CANCELS = "cancels"
KINDS = ("bundles", "acks", "feedback", CANCELS, QUEUE, LINK)
BACKLOG = 128


class House(Protocol):
    """A worker, as far as peers connect to it."""

    epoch: int
    pools: Pools | None
    node_links: NodeUplinks | None
    cancelling: Cancellations

    def counts(self, worker: int, epoch: int) -> bool:
        """Whether this is a member, and not one that has been replaced."""
        ...

    def find(self, task: int) -> TaskHost | None:
        """The host of a task, if it is here."""
        ...


class LinkAcceptor:
    """Opens as soon as it is there, and answers from when it is told to."""

    def __init__(self, house: House, host: str, secret: bytes) -> None:
        self._house = house
        self._secret = secret
        self.patience_s = KEEP_ALIVE_S  # longer than the dialer of a link, who shall be the first to notice a cut
        self._listener = socket.create_server((host, 0), backlog=BACKLOG)
        self.address = (host, int(self._listener.getsockname()[1]))
        self._acceptor = Acceptor(self._listener, self._welcome, "welcome")

    def start(self) -> None:
        self._acceptor.start()

    def close(self) -> None:
        self._acceptor.close()

    def _welcome(self, connection: socket.socket) -> Serve | None:
        try:
            contact = accept(connection, self._secret)
            hello = contact.said
            why_not, host = self._judge(hello)
            if hello.get("kind") == QUEUE:
                self._hand_queue(contact, why_not)
                return None
            if hello.get("kind") == LINK:
                self._hand_link(contact, why_not)
                return None
            ring, why_no_ring = _take_offer(hello) if why_not is None else (None, None)
            answer(contact, why_not, ring=ring is not None, why_no_ring=why_no_ring)
            keep_alive(connection, self.patience_s)
        except (OSError, ProtocolError):
            connection.close()
            return None
        if why_not is None and hello["kind"] == CANCELS:
            return partial(self._house.cancelling.listen, connection, contact.link_seals)
        if host is not None:
            kind, worker, epoch = hello["kind"], hello["worker"], hello["epoch"]
            channel = Channel(connection, ring, contact.link_seals)
            shared = host.shared_input
            if shared is not None and kind == "bundles":
                shared.take_link(channel, worker, epoch)  # at once: the task may be in a call
            else:
                host.post(lambda: host.take_link(channel, kind, worker, epoch))
        return None

    def _hand_queue(self, contact: Contact, why_not: str | None) -> None:
        pools = self._house.pools
        offer = pools.offer(contact.said) if why_not is None and pools is not None else None
        if pools is None or offer is None:
            answer(contact, why_not or "no such queue here")
            return
        answer(contact, None, **offer)
        pools.offered(contact.said, contact.connection)

    def _hand_link(self, contact: Contact, why_not: str | None) -> None:
        links = self._house.node_links
        offer = links.offer(contact.said) if why_not is None and links is not None else None
        answer(contact, why_not or (None if offer else "no such link here"), **(offer or {}))
        contact.connection.close()

    def _judge(self, hello: dict[str, Any]) -> tuple[str | None, TaskHost | None]:
        """Why not, or who wants it."""
        numbers = [hello.get("worker"), hello.get("epoch"), hello.get("target")]
        known = hello.get("role") == "link" and hello.get("kind") in KINDS
        if not known or not all(isinstance(number, int) for number in numbers):
            return "not a link", None
        worker, epoch, target = (int(number or 0) for number in numbers)
        if hello.get("to_epoch") != self._house.epoch:
            return f"meant for epoch {hello.get('to_epoch')}, this is {self._house.epoch}", None
        if not self._house.counts(worker, epoch):
            return f"epoch {epoch} of worker {worker} has been replaced", None
        if hello["kind"] in (CANCELS, QUEUE, LINK):
            return None, None
        host = self._house.find(target)
        if host is None or not _takes(host.task, hello["kind"]):
            return "no such task here", None
        return None, host


def _take_offer(hello: dict[str, Any]) -> tuple[RingPart | None, str | None]:
    """The ring that a peer offers, or why we do not take it."""
    if "ring" not in hello:
        return None, None
    try:
        return take_ring(hello["ring"], hello.get("nonce")), None
    except (SegmentError, ValueError) as error:
        return None, str(error)


def _takes(task: Task, kind: str) -> bool:
    """Whether a task has a use for a link of this kind."""
    if kind == "feedback":
        return bool(task.lines)
    return (kind == "acks") == task.owns_roots
