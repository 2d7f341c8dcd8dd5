"""Least work left: the task that will be done first, by what is known of every tuple on its way there.

Where ``osg`` adds up estimates for ever and corrects the sum now and then, this keeps the tuples that are in flight,
each with its price, and strikes them off as they are reported: an error lasts as long as its tuple. Prices come from a
``CostTable``.
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
"""The price of a tuple before anything was executed: with equal prices the fewest tuples are the least work."""


LATE_NS = 20 * MILLISECOND_NS
"""So long a task that was late with its last report may be late with the next, and be none the busier for it."""


class _Line:
    """What one sender knows of one task's queue."""

    __slots__ = ("_behind_ns", "_head_ends_ns", "_late_ns", "_sums_ns", "others_ns", "tuples")

    def __init__(self) -> None:
        self.tuples = 0  # of this sender
        self._sums_ns = [0]  # of all prices up to each of them, oldest first, and before the first
        self._behind_ns = 0  # all prices but the first
        self._head_ends_ns = 0
        self._late_ns = 0  # until when a report may be late
        self.others_ns = 0  # work of other senders, when the task last reported

    def left_ns(self, now_ns: int) -> int:
        """Until all of them have been executed.

        One that has outlived its price is expected to take as long again as it is late, with all others behind it. But
        a task that reports late is expected to have gone on to these meanwhile.
        """
        if not self.tuples:
            return 0
        head_ns = self._head_ends_ns - now_ns
        return abs(self._behind_ns + head_ns) if now_ns < self._late_ns else self._behind_ns + abs(head_ns)

    def add(self, price_ns: int, now_ns: int) -> None:
        if self.tuples:
            self._behind_ns += price_ns
        else:
            self._head_ends_ns = now_ns + price_ns
        self.tuples += 1
        self._sums_ns.append(self._sums_ns[-1] + price_ns)

    def strike(self, count: int, late: bool, now_ns: int) -> None:
        """The oldest have been executed. If the queue is not first in, first out, the total is right all the same."""
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
        self._lines = [_Line() for _ in range(tasks)]
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
        prices = self._costs.prices(item)
        best, best_ns = 0, -1.0
        for task, line in enumerate(self._lines):
            end_ns = line.left_ns(now_ns) + line.others_ns + prices[task]
            if best_ns < 0 or end_ns < best_ns:
                best, best_ns = task, end_ns
        price_ns = max(UNKNOWN_NS, int(prices[best]))
        self._lines[best].add(price_ns, now_ns)
        if prices[best]:
            self.estimated.add(price_ns)
        return best

    def hear(self, task: int, message: Message, now_ns: int) -> Sequence[int]:
        assert isinstance(message, Done), message
        samples = iter(message.samples)
        for item in samples:
            self._costs.add(item, task, next(samples))
        line = self._lines[task]
        line.strike(message.tuples, message.late, now_ns)
        line.others_ns = int(message.others * self._costs.estimate(-1)) if message.others else 0
        return ()


def _item_reader(key: Key) -> Callable[[Any], int]:
    """A number for a tuple's key, the same in every process: the key itself if that is one, else its stable hash."""
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
