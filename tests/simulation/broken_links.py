"""Rules about links, each broken on purpose: see ``mutations``."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

from broken_protocol import Patch, together

from tailrace.core.protocol.coordinator import Coordinator
from tailrace.core.protocol.link_peer import LinkPeer
from tailrace.core.protocol.messages import Command, FromWorker, LinkLost, Member
from tailrace.core.protocol.worker import Reply, Worker, WorkerCommand


def the_replaced_are_mourned() -> Patch:
    """A link that is found broken is reported and recovered from, though its peer was replaced long ago."""
    original = Coordinator.handle

    def lost_link(self: Worker, peer: int, epoch: int) -> list[WorkerCommand]:
        return [Reply(LinkLost(self.worker, self.epoch, peer, epoch))]

    def handle(self: Coordinator, message: FromWorker, now_ns: int) -> list[Command]:
        if isinstance(message, LinkLost):
            message = replace(message, peer_epoch=self.epoch_of(message.peer))
        return original(self, message, now_ns)

    return together(patch.object(Worker, "lost_link", lost_link), patch.object(Coordinator, "handle", handle))


def old_news_close_fresh_links() -> Patch:
    def closes_on_news(self: LinkPeer, present: Member | None) -> bool:
        return self.member is not None

    return patch.object(LinkPeer, "closes_on_news", closes_on_news)
