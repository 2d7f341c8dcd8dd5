"""The links that lead from a task to tasks in other workers. Used by one thread: the one that runs the task, or the
one that sends for it.

A link can move to another owner with half a frame in it, or while its connection is being made. The owner at the time
when the connection is ready attaches it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from tailrace.core.protocol.messages import Member
from tailrace.runtime.links.channels import Channel
from tailrace.runtime.links.event_loop import EventLoop, Post
from tailrace.runtime.links.link import OutLink
from tailrace.runtime.links.peers import Peers


class OutLinks:
    """Opens a link when it is first asked for, and again when the worker at the other end has been replaced."""

    def __init__(self, peers: Peers, post: Post) -> None:
        self._peers = peers
        self.post = post  # leads to the thread that may use the links
        self._links: dict[tuple[str, int], OutLink] = {}
        self._loop: EventLoop | None = None

    def __iter__(self) -> Iterator[OutLink]:
        return iter(self._links.values())

    def moved_to(self, loop: EventLoop | None) -> None:
        """Have this loop watch all links from now on; None: no loop does."""
        for link in self:
            if loop is None:
                link.unwatch()
            else:
                link.watch(loop)
        self._loop = loop

    def link(self, kind: str, target: int) -> OutLink:
        """The link of this kind to this task, which may not be open yet."""
        link = self._links.get((kind, target))
        if link is None:
            home = self._peers.home_of(target)
            on_lost = _ignore_loss if kind == "cancels" else partial(self._peers.lost_link, home)
            link = self._links[kind, target] = OutLink(kind, target, home, on_lost)
            link.owner = self
        member = self._peers.member(link.worker)
        if link.member is member and member is not None:
            return link
        if link.outlived(member):
            link.close()
        elif link.member is not None:
            link.member = member  # equal, of a newer membership: the next comparison is by identity again
        if link.to_dial(member):  # without a member, the next membership wakes the task
            assert member is not None
            self._peers.connect(link, member, lambda channel: _announce(link, member, channel))
        return link

    def connected(self, link: OutLink, member: Member, channel: Channel | None) -> None:
        """A dial has ended: attach the channel if the link still wants it, and close it otherwise."""
        if self._links.get((link.kind, link.target)) is not link:
            _announce(link, member, channel)  # it is on its way to another owner
        elif link.reached(member, channel is not None):
            assert self._loop is not None and channel is not None
            link.attach(channel, self._loop)
        elif channel is not None:
            channel.close()

    def close(self, workers: frozenset[int]) -> None:
        """These workers have been replaced: close the links to their former epochs."""
        for link in self:
            if link.worker in workers and link.closes_on_news(self._peers.member(link.worker)):
                link.close()

    # -- from owner to owner

    def give(self, kind: str, owner: OutLinks) -> None:
        """Pass all links of this kind to another owner. No loop watches them on the way."""
        given = [link for link in self if link.kind == kind]
        for link in given:
            link.unwatch()
            del self._links[link.kind, link.target]
            link.owner = owner
        owner.post(lambda: owner._take(given))

    def _take(self, links: Iterable[OutLink]) -> None:
        for link in links:
            assert (link.kind, link.target) not in self._links, "two links of a kind would not keep an order"
            self._links[link.kind, link.target] = link
            if self._loop is not None:
                link.watch(self._loop)


def _announce(link: OutLink, member: Member, channel: Channel | None) -> None:
    owner = link.owner
    assert owner is not None
    owner.post(lambda: owner.connected(link, member, channel))


def _ignore_loss(epoch: int) -> None:
    """Lost cancellations need no recovery."""
