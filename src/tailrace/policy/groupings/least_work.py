"""Least work left: the task that will be done first, by what is known of every tuple on its way there.

Decides by the estimated work of all tuples of this sender in flight to each task, and by what other senders have
queued there. Where ``osg`` adds up estimates for ever and corrects the sum now and then, this keeps the estimated costs
of tuples in flight and removes them as they are reported, so an error lasts only as long as its tuple. Estimates come
from a ``CostTable``. No paper. Laws: those of ``FeedbackChooser`` and ``Receiver``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tailrace.clock import MILLISECOND_NS
from tailrace.errors import OptionError, shorten
from tailrace.policy.groupings.feedback import FeedbackChooser, Message
from tailrace.policy.groupings.load.cost_table import CostTable
from tailrace.policy.groupings.load.cost_totals import CostTotals
from tailrace.policy.groupings.load.reports import Done, Reporter
from tailrace.policy.hashing import stable_hash
from tailrace.policy.keys import Key, Remembered, checked_key, explain_key, key_function
from tailrace.policy.numbers import is_whole

UNKNOWN_NS = 1
"""Cost of a tuple before anything was executed. With equal costs, the fewest tuples are the least work."""

LATE_NS = 20 * MILLISECOND_NS
"""A task that was late with its last report may be late again for this long without being busier."""


class _TaskQueue:
    """The queue of one task, as far as one sender knows it."""

    __slots__ = ("_behind_ns", "_head_ends_ns", "_late_ns", "_sums_ns", "others_ns", "tuples")

    def __init__(self) -> None:
        self.tuples = 0  # of this sender
        self._sums_ns = [0]  # running sums of costs, before the oldest tuple and after each
        self._behind_ns = 0  # costs of all but the oldest
        self._head_ends_ns = 0  # when the oldest should be done
        self._late_ns = 0  # until when reports may be late
        self.others_ns = 0  # work of other senders, when the task last reported

    def left_ns(self, now_ns: int) -> int:
        """Expected time until all of them have been executed.

        If the oldest has taken longer than its cost, it is expected to take as long again as it is late, and the others
        wait behind it. If the task reports late, it is expected to have gone on to the others meanwhile.
        """
        if not self.tuples:
            return 0
        head_ns = self._head_ends_ns - now_ns
        return abs(self._behind_ns + head_ns) if now_ns < self._late_ns else self._behind_ns + abs(head_ns)

    def add(self, cost_ns: int, now_ns: int) -> None:
        if self.tuples:
            self._behind_ns += cost_ns
        else:
            self._head_ends_ns = now_ns + cost_ns
        self.tuples += 1
        self._sums_ns.append(self._sums_ns[-1] + cost_ns)

    def remove(self, count: int, late: bool, now_ns: int) -> None:
        """Remove the oldest, which have been executed. The number stays right even if the queue is not in order."""
        self.tuples = max(0, self.tuples - count)
        self._late_ns = now_ns + LATE_NS if late else 0
        sums_ns = self._sums_ns
        if not self.tuples:
            del sums_ns[:-1]
            self._behind_ns = 0
            return
        del sums_ns[: -self.tuples - 1]
        self._behind_ns = sums_ns[-1] - sums_ns[1]
        self._head_ends_ns = now_ns + sums_ns[1] - sums_ns[0]


class _LeastWork(FeedbackChooser):
    estimated: CostTotals

    def __init__(self, tasks: int, key: Key, capacity: int) -> None:
        super().__init__()
        self._key = key
        self._item_of = _item_reader(key)
        self._costs = CostTable(tasks, capacity)
        self._queues = [_TaskQueue() for _ in range(tasks)]
        self._now_ns = 0
        self.estimated = CostTotals()

    def tick(self, now_ns: int) -> None:
        self._now_ns = now_ns

    def choose_many(self, values: Sequence[Any]) -> Sequence[int]:
        try:
            items = [self._item_of(value) for value in values]
        except BaseException as error:
            explain_key("least_work", self._key, values, error)
            raise
        return [self._choose(item) for item in items]

    def _choose(self, item: int) -> int:
        now_ns = self._now_ns
        costs = self._costs.costs(item)
        best, best_ns = 0, -1.0
        for task, queue in enumerate(self._queues):
            end_ns = queue.left_ns(now_ns) + queue.others_ns + costs[task]
            if best_ns < 0 or end_ns < best_ns:
                best, best_ns = task, end_ns
        cost_ns = max(UNKNOWN_NS, int(costs[best]))
        self._queues[best].add(cost_ns, now_ns)
        if costs[best]:
            self.estimated.add(cost_ns)
        return best

    def hear(self, task: int, message: Message, now_ns: int) -> Sequence[int]:
        assert isinstance(message, Done), message
        samples = iter(message.samples)
        for item in samples:
            self._costs.add(item, task, next(samples))
        queue = self._queues[task]
        queue.remove(message.tuples, message.late, now_ns)
        queue.others_ns = int(message.others * self._costs.estimate(-1)) if message.others else 0
        return ()


def _item_reader(key: Key) -> Callable[[Any], int]:
    """A function that maps a tuple to a number for its key: the key itself if it is an int, else its stable hash."""
    key_of = key_function(key)
    hash_of = Remembered(stable_hash)

    def read(value: Any) -> int:
        found = key_of(value)
        return found if type(found) is int and found.bit_length() < 64 else hash_of[found]

    return read


@dataclass(frozen=True)
class LeastWork:
    """Each tuple goes to the task with the least estimated work left. ``least_work()`` makes one."""

    name = "least_work"
    keyed = False

    key: Key
    capacity: int = 8192

    def bind(self, tasks: int, rng: Random) -> _LeastWork:
        return _LeastWork(tasks, self.key, self.capacity)

    def bind_receiver(self, task: int, tasks: int, senders: int, rng: Random) -> Reporter:
        return Reporter(senders, _item_reader(self.key), rng)


def least_work(key: Key | None = None, *, capacity: int = 8192) -> LeastWork:
    """Send each tuple to the task that will be done first, by the work of all tuples in flight.

    What a tuple costs is estimated from its key, and corrected by each task's speed and reports.

    Args:
        key: what a tuple's cost depends on, written as for ``fields``.
        capacity: how many keys have cost estimates of their own.

    Example:
        >>> quotes = tr.Topology("quotes").source("quotes", tr.from_iterable([{"items": 3}, {"items": 800}]))
        >>> quotes.map("price", str, tasks=4, grouping=tr.least_work("items"))
        Stream(price.main)
    """
    if not is_whole(capacity) or capacity < 1:
        raise OptionError(f"least_work needs room for at least one key: capacity={shorten(capacity)}")
    return LeastWork(checked_key("least_work", key), capacity)
