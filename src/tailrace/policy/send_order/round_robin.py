"""Round robin over outgoing queues: one that skips empty queues, and the baseline of Hone, which does not.

Decides by turns, and by which queues are empty. The baseline gives each queue every N-th turn whether or not it holds
anything. With N queues at a load of one half, half of all turns are lost, and a lone tuple waits N/2 turns for its own:
most of the gain that the paper reports comes from there. Law: that of ``SendScheduler``.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tailrace.errors import OptionError, shorten
from tailrace.policy.send_order.api import NOTHING, Picker, Waiting


class _EveryTurn:
    __slots__ = ("_next", "_queues")

    def __init__(self, queues: int) -> None:
        self._next = 0
        self._queues = queues

    def pick(self, waiting: Waiting, now_ns: int) -> int:
        picked = self._next
        self._next = (picked + 1) % self._queues
        return picked


class _NextWithAny:
    __slots__ = ("_next",)

    def __init__(self, start: int) -> None:
        self._next = start

    def pick(self, waiting: Waiting, now_ns: int) -> int:
        tuples = waiting.tuples
        start = self._next
        for queue in range(start, len(tuples)):
            if tuples[queue]:
                self._next = queue + 1
                return queue
        for queue in range(start):
            if tuples[queue]:
                self._next = queue + 1
                return queue
        return NOTHING


@dataclass(frozen=True)
class RoundRobin:
    """Queues send in turn. ``round_robin()`` makes one."""

    age_floor_ns = None
    age_drains = 0.0
    interval_ns = None

    skip_empty: bool

    @property
    def name(self) -> str:
        return "round_robin" if self.skip_empty else "round_robin_paper"

    @property
    def work_conserving(self) -> bool:
        return self.skip_empty

    def bind(self, queues: int, rng: Random) -> Picker:
        # The paper's begins with the first queue. Ours begins at random, so that nodes do not move in step.
        return _NextWithAny(rng.randrange(queues)) if self.skip_empty else _EveryTurn(queues)


def round_robin(skip_empty: bool = True) -> RoundRobin:
    """Let queues send in turn.

    Args:
        skip_empty: whether an empty queue is passed over. ``False``, for simulations only, is Hone's baseline: the turn
            is lost.

    Example:
        >>> tr.Tail(send=tr.round_robin()).names()["send"]
        'round_robin'
    """
    if not isinstance(skip_empty, bool):
        raise OptionError(
            f"skip_empty is neither True nor False: skip_empty={shorten(skip_empty)}: did you mix two up?"
        )
    return RoundRobin(skip_empty)
