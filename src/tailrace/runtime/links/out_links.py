"""The links that lead from a task to tasks elsewhere. Used by one thread: that which runs the task, or sends for it.

A link can be given to another keeper, with half a frame in it and a connection that is being made: whoever has it when
the connection is there gets to attach it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from tailrace.core.protocol.messages import Member
from tailrace.runtime.links.channels import Channel
from tailrace.runtime.links.link import OutLink

if TYPE_CHECKING:
    from tailrace.runtime.execution.runner import Runner
    from tailrace.runtime.execution.sender import Neighbours


class OutLinks:
    """Made when first asked for, and anew when the worker at the other end has been replaced."""

    def __init__(self, near: Neighbours, post: Callable[[Callable[[], None]], None]) -> None:
        self._near = near
        self.post = post  # to the thread that may use the links
        self._links: dict[tuple[str, int], OutLink] = {}
        self._runner: Runner | None = None

    def __iter__(self) -> Iterator[OutLink]:
        return iter(self._links.values())

    def moved_to(self, runner: Runner | None) -> None:
        for link in self:
            if runner is None:
                link.unwatch()
            else:
                link.watch(runner)
        self._runner = runner

    def link(self, kind: str, target: int) -> OutLink:
        """The link of this kind to this task, which may not be open yet."""
        link = self._links.get((kind, target))
        if link is None:
            home = self._near.home_of(target)
            on_lost = _nothing if kind == "cancels" else partial(self._near.lost_link, home)
            link = self._links[kind, target] = OutLink(kind, target, home, on_lost)
            link.keeper = self
        member = self._near.member(link.worker)
        if link.member is member and member is not None:
            return link
        if link.outlived(member):
            link.close()
        elif link.member is not None:
            link.member = member  # equal, of a newer version: the next look is quick again
        if link.to_dial(member):  # if nobody is there, news of a new membership will wake us
            assert member is not None
            self._near.connect(link, member, lambda channel: _announce(link, member, channel))
        return link

    def connected(self, link: OutLink, member: Member, channel: Channel | None) -> None:
        if self._links.get((link.kind, link.target)) is not link:
            _announce(link, member, channel)  # it is on its way to another keeper
        elif link.reached(member, channel is not None):
            assert self._runner is not None and channel is not None
            link.attach(channel, self._runner)
        elif channel is not None:
            channel.close()

    def close(self, workers: frozenset[int]) -> None:
        """These workers have been replaced: links with them are of no use any more."""
        for link in self:
            if link.worker in workers and link.closes_on_news(self._near.member(link.worker)):
                link.close()

    # -- from keeper to keeper

    def give(self, kind: str, keeper: OutLinks) -> None:
        """Have all links of this kind kept by another. Nobody watches them on the way."""
        given = [link for link in self if link.kind == kind]
        for link in given:
            link.unwatch()
            del self._links[link.kind, link.target]
            link.keeper = keeper
        keeper.post(lambda: keeper._take(given))

    def _take(self, links: Iterable[OutLink]) -> None:
        for link in links:
            assert (link.kind, link.target) not in self._links, "two links of a kind would not keep an order"
            self._links[link.kind, link.target] = link
            if self._runner is not None:
                link.watch(self._runner)


def _announce(link: OutLink, member: Member, channel: Channel | None) -> None:
    keeper = link.keeper
    assert keeper is not None
    keeper.post(lambda: keeper.connected(link, member, channel))


def _nothing(epoch: int) -> None:
    """Nobody waits for what was lost."""
