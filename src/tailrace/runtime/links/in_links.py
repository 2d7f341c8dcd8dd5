"""The links that lead into a task: all of them carry bundles, or none does. Used by the thread of one event loop.

A link can move to another owner with half a frame in it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from tailrace.core.queues.rounds import Rounds
from tailrace.errors import ProtocolError
from tailrace.runtime.links.channels import Channel
from tailrace.runtime.links.event_loop import EventLoop
from tailrace.runtime.links.link import InLink, OnFrame, RingInLink
from tailrace.runtime.links.peers import Peers

logger = logging.getLogger("tailrace")


def _unread(kind: int, payload: memoryview) -> None:
    raise AssertionError("a link is read before its owner watches it")


class InLinks:
    """Links that come and go."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._links: list[InLink] = []
        self._loop: EventLoop | None = None

    def __iter__(self) -> Iterator[InLink]:
        return iter(self._links)

    def take(self, channel: Channel, worker: int, epoch: int, on_frame: OnFrame = _unread) -> None:
        """Own the link that a peer has opened."""
        kind = InLink if channel.ring is None else RingInLink
        self._watch(kind(channel, worker, epoch, on_frame, self._lost))

    def _watch(self, link: InLink) -> None:
        self._links.append(link)
        assert self._loop is not None
        link.counts = partial(self._peers.counts, link.worker, link.epoch)
        link.watch(self._loop)

    def give(self) -> list[InLink]:
        """Let go of all links. No loop watches them until another owner does."""
        given, self._links = self._links, []
        for link in given:
            link.unwatch()
        return given

    def adopt(self, links: Iterable[InLink]) -> None:
        """Own links that another owner has let go. Their peers may have been replaced on the way."""
        for link in links:
            link.on_lost = self._lost
            if self._peers.counts(link.worker, link.epoch):
                self._watch(link)
            else:
                link.close()

    def moved_to(self, loop: EventLoop | None) -> None:
        """Have this loop watch all links from now on; None: no loop does."""
        for link in self._links:
            if loop is None:
                link.unwatch()
            else:
                link.watch(loop)
        self._loop = loop

    def relink(self, workers: frozenset[int]) -> None:
        """These workers have been replaced: close the links from their former epochs."""
        for link in tuple(self._links):
            if link.worker in workers and not self._peers.counts(link.worker, link.epoch):
                link.close()
                self._links.remove(link)

    def _lost(self, link: InLink, error: Exception | None) -> None:
        """Forget a broken link. Its sending end notices too and reports the loss, so that it is reported once."""
        self._links.remove(link)
        if isinstance(error, ProtocolError):
            logger.warning("a link is closed: from worker=%d epoch=%d: %s", link.worker, link.epoch, error)


class BundleLinks(InLinks):
    """Links that bring bundles for a task. One that has used up its share of a round is paused until the next."""

    def __init__(
        self,
        peers: Peers,
        rounds: Rounds,
        read: Callable[[int, memoryview], list[Any]],
        receive: Callable[[list[Any]], None],
    ) -> None:
        super().__init__(peers)
        self._rounds = rounds
        self._read = read  # decodes a frame
        self._receive = receive

    def _watch(self, link: InLink) -> None:
        link.on_frame = partial(self._on_frame, link)
        super()._watch(link)

    def _on_frame(self, link: InLink, kind: int, payload: memoryview) -> None:
        bundles = self._read(kind, payload)
        rounds = self._rounds
        if link.unadmitted or rounds.behind or rounds.room(link) < len(bundles):
            link.unadmitted += bundles
            self._admit(link)
        else:
            self._receive(bundles)

    def admit(self) -> bool:
        """A round has begun: admit what paused links have left. True if a link was resumed."""
        paused = [link for link in self._links if link.paused]
        for link in paused:
            self._admit(link)
        return not all(link.paused for link in paused)

    def _admit(self, link: InLink) -> None:
        while link.unadmitted:
            room = self._rounds.room(link)
            if not room:
                link.pause()
                return
            some, link.unadmitted = link.unadmitted[:room], link.unadmitted[room:]
            if self._rounds.behind:
                self._rounds.put(link, len(some))
            self._receive(some)
        link.resume()

    def give(self) -> list[InLink]:
        """Let go of all links. What they have left is taken first: it cannot wait for a round of another queue."""
        for link in self._links:
            self._take_all(link)
        given = super().give()
        for link in given:
            link.paused = False
        return given

    def _lost(self, link: InLink, error: Exception | None) -> None:
        super()._lost(link, error)
        self._take_all(link)

    def _take_all(self, link: InLink) -> None:
        left, link.unadmitted = link.unadmitted, []
        if left:
            self._receive(left)


class DeferredLinks(InLinks):
    """Links whose rings signal their owner only while it needs what they bring at once.

    At any other time the owner reads them whenever it works. A wake-up for every ack would cost a source more than to
    process the ack; and to signal it is the most expensive thing that the sending task does between two calls.
    """

    def __init__(self, peers: Peers, needs_acks_now: Callable[[], bool]) -> None:
        super().__init__(peers)
        self.needs_acks_now = True  # as of when the loop last went to sleep
        self._ask_owner = needs_acks_now

    def _watch(self, link: InLink) -> None:
        link.deferred = True
        super()._watch(link)

    def moved_to(self, loop: EventLoop | None) -> None:
        if self._loop is not None:
            self._loop.sleep_hooks.remove(self)
        super().moved_to(loop)
        if loop is not None:
            loop.sleep_hooks.append(self)

    def read(self) -> None:
        """Process what has come."""
        for link in tuple(self._links):
            link.read()

    def prepare_sleep(self) -> bool:
        self.needs_acks_now = self._ask_owner()
        return not self.needs_acks_now or all(link.ask_for_signal() for link in self._links)

    def awake(self) -> None:
        """Nothing to undo: the owner reads its links before it sleeps again."""
