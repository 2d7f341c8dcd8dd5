"""Largest backlog first (Hone): the fullest outgoing queue sends next, so that no task falls far behind the others.

Decides by how much waits in each queue. With N queues, the largest backlog ever is at most 3 + ceil(log2 N) times the
smallest possible. ``lbf`` counts tuples, as the paper does; with an interval it also sends by the paper's signals.
``lbf_work`` is our own: it counts expected work, so that a few large tuples count for more than many small ones, and it
sends any head first that is too old, so that nothing waits much longer than twice the time to send all that waits. Law:
that of ``SendScheduler``.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tailrace.clock import MILLISECOND_NS, SECOND_NS
from tailrace.errors import OptionError, shorten
from tailrace.policy.numbers import is_number
from tailrace.policy.send_order.api import NOTHING, Picker, Waiting, index_from

AGE_FLOOR_MS = 50.0
"""Age below which it does not matter: the low end of the scheduling intervals that the authors of Hone found best."""

AGE_DRAINS = 2.0
"""Multiple of the time to send all that waits, which is about how long a tuple waits under first in, first out. With
twice that time, backlogs are as small as if age did not matter, and the longest wait is shorter."""

MOST_INTERVAL_NS = 10 * SECOND_NS
"""Upper bound of intervals. The paper tries 10 to 130 ms; seconds in which one task alone sends must be a mistake."""


class _MostTuples:
    __slots__ = ("_next",)

    def __init__(self, start: int) -> None:
        self._next = start  # ties: the first queue from here on

    def pick(self, waiting: Waiting, now_ns: int) -> int:
        tuples = waiting.tuples
        most = max(tuples)
        if most == 0:
            return NOTHING
        picked = index_from(tuples, most, self._next)
        self._next = picked + 1
        return picked


class _MostWork:
    __slots__ = ("_age_drains", "_age_floor_ns", "_next")

    def __init__(self, start: int, age_floor_ns: int, age_drains: float) -> None:
        self._age_floor_ns = age_floor_ns
        self._age_drains = age_drains
        self._next = start

    def pick(self, waiting: Waiting, now_ns: int) -> int:
        since_ns = waiting.since_ns
        oldest_ns = min(since_ns)
        values = waiting.work_ns
        if now_ns - oldest_ns >= max(self._age_floor_ns, self._age_drains * sum(values)):
            return since_ns.index(oldest_ns)
        most = max(values)
        if most == 0:  # nothing waits, or only tuples of unknown cost
            values = waiting.tuples
            most = max(values)
            if most == 0:
                return NOTHING
        picked = index_from(values, most, self._next)
        self._next = picked + 1
        return picked


class _Signal:
    """The mechanism of Hone: at each tick one queue is signalled, and only that queue sends until the next tick."""

    __slots__ = ("_interval_ns", "_picker", "_signalled", "_tick")

    def __init__(self, picker: Picker, interval_ns: int) -> None:
        self._picker = picker
        self._interval_ns = interval_ns
        self._tick = -1
        self._signalled = NOTHING

    def pick(self, waiting: Waiting, now_ns: int) -> int:
        tick = now_ns // self._interval_ns
        if tick != self._tick:
            self._tick = tick
            self._signalled = self._picker.pick(waiting, now_ns)
        signalled = self._signalled
        return signalled if signalled != NOTHING and waiting.tuples[signalled] else NOTHING


@dataclass(frozen=True)
class LargestBacklogFirst:
    """The queue with the most tuples sends next. ``lbf()`` makes one.

    A tuple in a short queue may wait long.
    """

    name = "lbf"
    age_floor_ns = None
    age_drains = 0.0

    interval_ns: int | None = None

    @property
    def work_conserving(self) -> bool:
        return self.interval_ns is None

    def bind(self, queues: int, rng: Random) -> Picker:
        picker = _MostTuples(rng.randrange(queues))
        return picker if self.interval_ns is None else _Signal(picker, self.interval_ns)


@dataclass(frozen=True)
class LargestWorkFirst:
    """The queue with the most work sends next, but first any head that is too old. ``lbf_work()`` makes one."""

    name = "lbf_work"
    work_conserving = True
    interval_ns = None

    age_floor_ns: int
    age_drains: float

    def bind(self, queues: int, rng: Random) -> Picker:
        return _MostWork(rng.randrange(queues), self.age_floor_ns, self.age_drains)


def lbf(interval_ms: float | None = None) -> LargestBacklogFirst:
    """Let the queue with the most tuples send next: largest backlog first, Hone's rule.

    Args:
        interval_ms: decide only once in so many milliseconds, as in the paper; until the next decision no other queue
            sends. ``None``: decide for every turn.

    Example:
        >>> tr.Tail(send=tr.lbf()).names()["send"]
        'lbf'
    """
    if interval_ms is None:
        return LargestBacklogFirst()
    if not is_number(interval_ms) or not MILLISECOND_NS <= interval_ms * MILLISECOND_NS < MOST_INTERVAL_NS:
        raise OptionError(
            f"a scheduling interval is a number of milliseconds, from 1 to below {MOST_INTERVAL_NS // MILLISECOND_NS}: "
            f"interval_ms={shorten(interval_ms)}: did you mean lbf(), which decides at every turn?"
        )
    return LargestBacklogFirst(round(interval_ms * MILLISECOND_NS))


def lbf_work(age_floor_ms: float = AGE_FLOOR_MS, age_drains: float = AGE_DRAINS) -> LargestWorkFirst:
    """Let the queue with the most seconds of work send next, but before it any head that is too old.

    Args:
        age_floor_ms: milliseconds that a head must have waited to be too old.
        age_drains: how many times as long as sending all that waits takes it must have waited as well, because in an
            overload everything is old. 0: the floor alone decides.

    Example:
        >>> tr.Tail(send=tr.lbf_work(age_floor_ms=100)).names()["send"]
        'lbf_work'
    """
    if not is_number(age_floor_ms) or not age_floor_ms > 0:
        raise OptionError(
            f"an age floor must be a positive number of milliseconds: age_floor_ms={shorten(age_floor_ms)}: "
            "did you mean fifo(), where age alone decides?"
        )
    if not is_number(age_drains) or age_drains < 0:
        raise OptionError(
            f"not how often all that waits could be sent: age_drains={shorten(age_drains)}: "
            f"did you mean {AGE_DRAINS:g}, or 0?"
        )
    return LargestWorkFirst(round(age_floor_ms * MILLISECOND_NS), age_drains)
