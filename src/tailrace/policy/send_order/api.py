"""The protocols of send schedulers: the rule that picks which of several outgoing queues sends next.

The laws below are checked by ``tailrace.testing.check_scheduler``.
"""

from __future__ import annotations

from random import Random
from typing import Protocol

NOTHING = -1
"""A picker returns this instead of a queue when nothing waits."""

NEVER_NS = 2**63 - 1
"""Time since which the head of an empty queue waits: later than any other, so that ``min`` finds the oldest head."""


class Waiting:
    """Lists of what waits in each outgoing queue, one entry a queue: tuples, work, and since when.

    The owner of the queues keeps them up to date. They are plain lists of integers, because a picker reads them for
    every tuple that is sent.

    Args:
        queues: how many queues there are.

    Example:
        >>> from tailrace.policy import Waiting
        >>> Waiting(2).tuples
        [0, 0]
    """

    __slots__ = ("since_ns", "tuples", "work_ns")

    def __init__(self, queues: int) -> None:
        self.tuples = [0] * queues
        self.work_ns = [0] * queues  # expected time to send all tuples of the queue
        self.since_ns = [NEVER_NS] * queues  # when the queue's head became ready to be sent

    def validate(self) -> None:
        """Raise AssertionError unless exactly the empty queues have no work and no head."""
        for queue, (tuples, work_ns, since_ns) in enumerate(zip(self.tuples, self.work_ns, self.since_ns, strict=True)):
            facts = f"queue={queue} tuples={tuples} work_ns={work_ns} since_ns={since_ns}"
            assert tuples >= 0 and work_ns >= 0, f"a queue holds less than nothing: {facts}"
            assert tuples > 0 or work_ns == 0, f"an empty queue holds work: {facts}"
            assert (tuples > 0) == (since_ns < NEVER_NS), f"a queue without tuples has a head, or the reverse: {facts}"


class Picker(Protocol):
    """A send scheduler at work on the queues of one operator's tasks.

    The owner of the queues asks once a turn. The owner decides what a turn is, a tuple or all that a queue can send
    within some milliseconds, and the order inside a queue.

    Law: ``pick`` returns ``NOTHING`` or lies in ``range(queues)``, changes nothing in ``waiting``, and follows from
    what the picker was bound with and shown before.

    Example:
        >>> from random import Random
        >>> from tailrace.policy import Waiting
        >>> waiting = Waiting(2)
        >>> waiting.tuples[:] = [3, 5]
        >>> tr.lbf().bind(2, Random(1)).pick(waiting, now_ns=0)
        1
    """

    def pick(self, waiting: Waiting, now_ns: int) -> int: ...


class SendScheduler(Protocol):
    """Which task of an operator in one worker sends next to other workers: a value, picklable, without state.

    Law: two pickers bound with equal arguments and equally seeded generators, and shown the same, pick the same in any
    process. One that is ``work_conserving`` picks a queue that holds something whenever there is one, and ``NOTHING``
    otherwise. One with an age floor picks the queue with the oldest head once that has waited so long, and
    ``age_drains`` times as long as it takes to send all that waits. One with an interval decides at whole multiples of
    it, and in between picks the same queue, or ``NOTHING``. ``tailrace.testing.check_scheduler`` checks it.

    Example:
        >>> scheduler: tr.SendScheduler = tr.lbf()
        >>> scheduler.name, scheduler.work_conserving
        ('lbf', True)
    """

    @property
    def name(self) -> str: ...

    @property
    def work_conserving(self) -> bool: ...

    @property
    def age_floor_ns(self) -> int | None: ...

    @property
    def age_drains(self) -> float: ...

    @property
    def interval_ns(self) -> int | None: ...

    def bind(self, queues: int, rng: Random) -> Picker: ...


def index_from(values: list[int], value: int, start: int) -> int:
    """Index of ``value``, searched from ``start`` on and then from the beginning, so that ties take turns."""
    try:
        return values.index(value, start)
    except ValueError:
        return values.index(value)
