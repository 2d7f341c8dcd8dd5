"""The links that lead to a task, all of which carry bundles, or none. Used by the thread of one runner.

A link can be given to another keeper, with half a frame in it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol

from tailrace.core.queues.rounds import Rounds
from tailrace.errors import ProtocolError
from tailrace.runtime.execution.runner import Runner
from tailrace.runtime.links.channels import Channel
from tailrace.runtime.links.link import InLink, OnFrame, RingInLink

logger = logging.getLogger("tailrace")


class Membership(Protocol):
    """What links need to know of their worker."""

    def counts(self, worker: int, epoch: int) -> bool:
        """Whether what comes from this epoch of a worker is to be taken."""
        ...


def _unread(kind: int, payload: memoryview) -> None:
    raise AssertionError("a link is read before its keeper watches it")


class InLinks:
    """Links that come and go."""

    def __init__(self, near: Membership) -> None:
        self._near = near
        self._links: list[InLink] = []
        self._runner: Runner | None = None

    def take(self, channel: Channel, worker: int, epoch: int, on_frame: OnFrame = _unread) -> None:
        """A peer has connected."""
        kind = InLink if channel.ring is None else RingInLink
        self._watch(kind(channel, worker, epoch, on_frame, self._lost))

    def _watch(self, link: InLink) -> None:
        self._links.append(link)
        assert self._runner is not None
        link.counts = partial(self._near.counts, link.worker, link.epoch)
        link.watch(self._runner)

    def give(self) -> list[InLink]:
        """Let go of all links. Nobody watches them until another keeper does."""
        given, self._links = self._links, []
        for link in given:
            link.unwatch()
        return given

    def keep(self, links: Iterable[InLink]) -> None:
        """Look after links that another keeper has given away. Their peers may have been replaced on the way."""
        for link in links:
            link.on_lost = self._lost
            if self._near.counts(link.worker, link.epoch):
                self._watch(link)
            else:
                link.close()

    def moved_to(self, runner: Runner | None) -> None:
        for link in self._links:
            if runner is None:
                link.unwatch()
            else:
                link.watch(runner)
        self._runner = runner

    def relink(self, workers: frozenset[int]) -> None:
        """These workers have been replaced: links with them are of no use any more."""
        for link in tuple(self._links):
            if link.worker in workers and not self._near.counts(link.worker, link.epoch):
                link.close()
                self._links.remove(link)

    def _lost(self, link: InLink, error: Exception | None) -> None:
        """The sending end finds out too, and reports it: once for a loss, and when no more can be sent into it."""
        self._links.remove(link)
        if isinstance(error, ProtocolError):
            logger.warning("a link is closed: from worker=%d epoch=%d: %s", link.worker, link.epoch, error)


class BundleLinks(InLinks):
    """Those that bring bundles for a task. One that has brought more than its share is paused until the next round."""

    def __init__(
        self,
        near: Membership,
        rounds: Rounds,
        read: Callable[[int, memoryview], list[Any]],
        receive: Callable[[list[Any]], None],
    ) -> None:
        super().__init__(near)
        self._rounds = rounds
        self._read = read  # what is in a frame
        self._receive = receive

    def _watch(self, link: InLink) -> None:
        link.on_frame = partial(self._on_frame, link)
        super()._watch(link)

    def _on_frame(self, link: InLink, kind: int, payload: memoryview) -> None:
        bundles = self._read(kind, payload)
        if not (link.left or self._rounds.behind) and self._rounds.room(link):
            self._receive(bundles)
        else:
            link.left += bundles
            self._admit(link)

    def admit(self) -> bool:
        """A round has begun. Whether links are to be read that were not."""
        paused = [link for link in self._links if link.paused]
        for link in paused:
            self._admit(link)
        return not all(link.paused for link in paused)

    def _admit(self, link: InLink) -> None:
        while link.left:
            room = self._rounds.room(link)
            if not room:
                link.pause()
                return
            some, link.left = link.left[:room], link.left[room:]
            if self._rounds.behind:
                self._rounds.put(link, len(some))
            self._receive(some)
        link.resume()

    def give(self) -> list[InLink]:
        """What they have left does not wait for a round that others begin."""
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
        left, link.left = link.left, []
        if left:
            self._receive(left)


class PatientLinks(InLinks):
    """Rings among them are read whenever their keeper works anyway, and at once only while it is in a hurry.

    To be woken for every ack costs a source more than to take it in, and to wake it costs the task that has sent it:
    nothing else takes as long between two of its calls.
    """

    def __init__(self, near: Membership, in_a_hurry: Callable[[], bool]) -> None:
        super().__init__(near)
        self.in_a_hurry = True  # as of when the runner last lay down
        self._now_in_a_hurry = in_a_hurry

    def _watch(self, link: InLink) -> None:
        link.patient = True
        super()._watch(link)

    def moved_to(self, runner: Runner | None) -> None:
        if self._runner is not None:
            self._runner.sleepers.remove(self)
        super().moved_to(runner)
        if runner is not None:
            runner.sleepers.append(self)

    def read(self) -> None:
        for link in tuple(self._links):
            link.read()

    def rest(self) -> bool:
        self.in_a_hurry = self._now_in_a_hurry()
        return not self.in_a_hurry or all(link.ask() for link in self._links)

    def rise(self) -> None:
        """What comes while the runner is awake is read before it sleeps."""
