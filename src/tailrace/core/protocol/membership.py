"""A worker's view of the others: which it may send to, and whose frames it refuses.

A frame is refused if it comes from a lower epoch than the worker knows for its sender (a host that was cut off may come
back), if it is for another epoch of the receiver, or if its number on its link is not higher than the last one (it is a
copy, or late). A number that skips one means that a frame was lost.
"""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.core.protocol.messages import Member, Members

ACCEPT = 0
REFUSE = 1
ACCEPT_AFTER_LOSS = 2


class Membership:
    """The members that one worker knows, and the lowest epoch that counts of each worker."""

    def __init__(self, worker: int, epoch: int) -> None:
        self.worker = worker
        self.epoch = epoch
        self.version = 0
        self.members: Mapping[int, Member] = {}
        self._lowest: dict[int, int] = {}

    def update(self, news: Members) -> set[int]:
        """Take in a newer membership. Returns the workers whose epoch has changed: links with them are dead."""
        if news.version <= self.version:
            return set()
        self.version = news.version
        self.members = dict(news.members)
        changed = {worker for worker, epoch in news.epochs.items() if epoch > self._lowest.get(worker, 0)}
        self._lowest.update(news.epochs)
        return changed

    @property
    def replaced(self) -> bool:
        """Whether another process runs under this worker's number now."""
        return self._lowest.get(self.worker, 0) > self.epoch

    def counts(self, worker: int, epoch: int) -> bool:
        """Whether frames from this epoch of a worker are accepted."""
        return epoch >= self._lowest.get(worker, 0)

    def member(self, worker: int) -> Member | None:
        return self.members.get(worker)


class LinkSequence:
    """Checks the numbers of the frames on one link, at its receiving end."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last = 0

    def check(self, number: int) -> int:
        """ACCEPT, ACCEPT_AFTER_LOSS or REFUSE for the frame with this number. The first is number 1."""
        last = self._last
        if number <= last:
            return REFUSE
        self._last = number
        return ACCEPT if number == last + 1 else ACCEPT_AFTER_LOSS
