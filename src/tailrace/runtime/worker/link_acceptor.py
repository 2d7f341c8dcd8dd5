"""Accepts the links of a worker: the hello of a peer says what its connection is for, and that part takes it over."""

from __future__ import annotations

import socket
from functools import partial
from typing import Any

from tailrace.core.tasks.base import Task
from tailrace.errors import ProtocolError, SegmentError
from tailrace.runtime.encryption.certificate import Certificate, accepting
from tailrace.runtime.execution.task_host import TaskHost
from tailrace.runtime.links.acceptor import Acceptor, Serve
from tailrace.runtime.links.auth import Contact, accept, answer
from tailrace.runtime.links.channels import Channel, RingPart, take_ring
from tailrace.runtime.links.link_watch import KEEP_ALIVE_S, keep_alive
from tailrace.runtime.listening import Place, Ports, listen_as_worker
from tailrace.runtime.send_order.node_uplinks import KIND as UPLINK
from tailrace.runtime.shared_queues.node_queues import KIND as QUEUE
from tailrace.runtime.worker.services import Services

CANCELS = "cancels"
KINDS = ("bundles", "acks", "feedback", CANCELS, QUEUE, UPLINK)
BACKLOG = 128


class LinkAcceptor:
    """Listens as soon as it is made, so that its address is known, and answers from ``start`` on.

    With a certificate it talks to none that does not encrypt.
    """

    def __init__(
        self, services: Services, place: Place, ports: Ports | None, secret: bytes, certificate: Certificate | None
    ) -> None:
        self._services = services
        self._secret = secret
        self._encryption = None if certificate is None else accepting(certificate)
        self.timeout_s = KEEP_ALIVE_S  # longer than the dialer's, which shall be the first to notice a cut
        self._listener = listen_as_worker(place, ports, BACKLOG)
        self.address = (place.address, int(self._listener.getsockname()[1]))
        self._acceptor = Acceptor(self._listener, self._greet, "accept")

    def start(self) -> None:
        self._acceptor.start()

    def close(self) -> None:
        self._acceptor.close()

    def _greet(self, accepted: socket.socket) -> Serve | None:
        try:
            contact = accept(accepted, self._secret, self._encryption)
            connection = contact.connection
            hello = contact.said
            why_not, host = self._judge(hello)
            if hello.get("kind") == QUEUE:
                self._offer_queue(contact, why_not)
                return None
            if hello.get("kind") == UPLINK:
                self._offer_uplink(contact, why_not)
                return None
            ring, why_no_ring = _take_offer(hello) if why_not is None else (None, None)
            answer(contact, why_not, ring=ring is not None, why_no_ring=why_no_ring)
            keep_alive(connection, self.timeout_s)
        except (OSError, ProtocolError):
            accepted.close()
            return None
        if why_not is None and hello["kind"] == CANCELS:
            return partial(self._services.cancellations.listen, connection, contact.link_seals)
        if host is not None:
            kind, worker, epoch = hello["kind"], hello["worker"], hello["epoch"]
            channel = Channel(connection, ring, contact.link_seals)
            shared = host.shared_input
            if shared is not None and kind == "bundles":
                shared.take_link(channel, worker, epoch)  # at once: the task may be in a call
            else:
                host.post(lambda: host.take_link(channel, kind, worker, epoch))
        return None

    def _offer_queue(self, contact: Contact, why_not: str | None) -> None:
        pools = self._services.pools
        offer = pools.offer(contact.said) if why_not is None and pools is not None else None
        if pools is None or offer is None:
            answer(contact, why_not or "no such queue here")
            return
        answer(contact, None, **offer)
        pools.offered(contact.said, contact.connection)

    def _offer_uplink(self, contact: Contact, why_not: str | None) -> None:
        uplinks = self._services.node_uplinks
        offer = uplinks.offer(contact.said) if why_not is None and uplinks is not None else None
        answer(contact, why_not or (None if offer else "no such link here"), **(offer or {}))
        contact.connection.close()

    def _judge(self, hello: dict[str, Any]) -> tuple[str | None, TaskHost | None]:
        """Why a peer is refused, or None; and the host that its link is for, if it is for one."""
        numbers = [hello.get("worker"), hello.get("epoch"), hello.get("target")]
        known = hello.get("role") == "link" and hello.get("kind") in KINDS
        if not known or not all(isinstance(number, int) for number in numbers):
            return "not a link", None
        worker, epoch, target = (int(number or 0) for number in numbers)
        if hello.get("to_epoch") != self._services.epoch:
            return f"meant for epoch {hello.get('to_epoch')}, this is {self._services.epoch}", None
        if not self._services.counts(worker, epoch):
            return f"epoch {epoch} of worker {worker} has been replaced", None
        if hello["kind"] in (CANCELS, QUEUE, UPLINK):
            return None, None
        host = self._services.find(target)
        if host is None or not _takes(host.task, hello["kind"]):
            return "no such task here", None
        return None, host


def _take_offer(hello: dict[str, Any]) -> tuple[RingPart | None, str | None]:
    """The ring that a peer offers, or why it cannot be used."""
    if "ring" not in hello:
        return None, None
    try:
        return take_ring(hello["ring"], hello.get("nonce")), None
    except (SegmentError, ValueError) as error:
        return None, str(error)


def _takes(task: Task, kind: str) -> bool:
    """Whether a task has a use for a link of this kind."""
    if kind == "feedback":
        return bool(task.feedback_edges)
    return (kind == "acks") == task.owns_roots
