"""First in, first out across all queues: what an engine does that does not schedule at all.

Decides by the age of the oldest tuple in each queue. No order has a smaller longest wait, and none ignores backlogs
more. Law: that of ``SendScheduler``.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tailrace.policy.send_order.api import NEVER_NS, NOTHING, Picker, Waiting


class _OldestHead:
    __slots__ = ()

    def pick(self, waiting: Waiting, now_ns: int) -> int:
        since_ns = waiting.since_ns
        oldest_ns = min(since_ns)
        return NOTHING if oldest_ns == NEVER_NS else since_ns.index(oldest_ns)


@dataclass(frozen=True)
class Fifo:
    """The oldest tuple of all queues is sent next. ``fifo()`` makes one."""

    name = "fifo"
    work_conserving = True
    age_floor_ns = 0
    age_drains = 0.0
    interval_ns = None

    def bind(self, queues: int, rng: Random) -> Picker:
        return _OldestHead()


def fifo() -> Fifo:
    """Send the oldest tuple of all queues next.

    Example:
        >>> tr.Tail(send=tr.fifo()).names()["send"]
        'fifo'
    """
    return Fifo()
