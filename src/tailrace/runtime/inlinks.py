"""The links that lead to a task, or to several that draw from one queue. Used by the thread of one runner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tailrace.core.messages import Member
from tailrace.runtime.channels import Channel
from tailrace.runtime.links import InLink, OnFrame, RingInLink
from tailrace.runtime.runner import Runner


class Membership(Protocol):
    """What links need to know of their worker."""

    def member(self, worker: int) -> Member | None: ...

    def lost_link(self) -> None: ...


class InLinks:
    """Links that come and go. Those that carry bundles can be paused, all together."""

    def __init__(self, near: Membership) -> None:
        self.paused = False
        self._near = near
        self._links: list[InLink] = []
        self._runner: Runner | None = None

    def take(self, channel: Channel, worker: int, epoch: int, on_frame: OnFrame, *, urgent: bool) -> None:
        """A peer has connected."""
        kind: Callable[..., InLink] = InLink if channel.ring is None else RingInLink
        end = channel.connection if channel.ring is None else channel
        link = kind(end, worker, epoch, on_frame, self._lost)
        self._links.append(link)
        assert self._runner is not None
        link.urgent = urgent
        link.paused = self.paused and not urgent
        link.watch(self._runner)

    def moved_to(self, runner: Runner | None) -> None:
        for link in self._links:
            if runner is None:
                link.unwatch()
            else:
                link.watch(runner)
        self._runner = runner

    def pause(self, pause: bool) -> None:
        self.paused = pause
        for link in self._links:
            if link.urgent:
                continue
            if pause:
                link.pause()
            else:
                link.resume()

    def relink(self, workers: frozenset[int]) -> None:
        """These workers have been replaced: links with them are of no use any more."""
        for link in [link for link in self._links if link.worker in workers]:
            current = self._near.member(link.worker)
            if current is None or link.epoch < current.epoch:
                link.close()
                self._links.remove(link)

    def _lost(self, link: InLink, error: Exception | None) -> None:
        self._links.remove(link)
        self._near.lost_link()
