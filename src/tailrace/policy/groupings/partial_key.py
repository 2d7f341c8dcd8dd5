"""Partial key grouping (Nasir et al., ICDE 2015): a key has two tasks, and each tuple goes to the less loaded of them.

Decides by a stable hash of the key and by how many of this sender's tuples are in flight to each task; the paper counts
all tuples ever sent. Compared with ``fields``, a hot key burdens two tasks instead of one, and what tasks keep by key
must be merged downstream. Laws: those of ``FeedbackChooser`` and ``Receiver``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tailrace.policy.groupings.load.in_flight import InFlight
from tailrace.policy.groupings.load.reports import Reporter
from tailrace.policy.hashing import stable_hash
from tailrace.policy.keys import Key, Remembered, checked_key, explain_key, key_function


def two_tasks(key: Any, tasks: int) -> tuple[int, int]:
    """The two tasks of a key, from different bits of its hash. They differ if there are at least two tasks."""
    bits = stable_hash(key)
    first = (bits >> 32) % tasks
    second = (bits & 0xFFFF_FFFF) % max(1, tasks - 1)
    return first, (first + 1 + second) % tasks


class _LessLoadedOfKey(InFlight):
    def __init__(self, tasks: int, key: Key) -> None:
        super().__init__(tasks)
        self._key = key
        self._key_of = key_function(key)
        self._candidates = Remembered(lambda found: two_tasks(found, tasks))

    def choose_many(self, values: Sequence[Any]) -> Sequence[int]:
        try:
            candidates = [self._candidates[self._key_of(value)] for value in values]
        except BaseException as error:
            explain_key("partial_key", self._key, values, error)
            raise
        in_flight = self.in_flight
        choices = []
        for task, other in candidates:
            if in_flight[other] < in_flight[task]:
                task = other
            in_flight[task] += 1
            choices.append(task)
        return choices


@dataclass(frozen=True)
class PartialKey:
    """Each tuple goes to the less loaded of its key's two tasks. ``partial_key()`` makes one."""

    name = "partial_key"
    keyed = False

    key: Key

    def bind(self, tasks: int, rng: Random) -> _LessLoadedOfKey:
        return _LessLoadedOfKey(tasks, self.key)

    def bind_receiver(self, task: int, tasks: int, senders: int, rng: Random) -> Reporter:
        return Reporter(senders, None, rng)


def partial_key(key: Key | None = None) -> PartialKey:
    """Split each key over two tasks: each tuple goes to the one with fewer of this sender's tuples in flight.

    What tasks keep by key must be merged downstream: declare ``mergeable=True``.

    Args:
        key: as for ``fields``.

    Example:
        >>> words = tr.Topology("words").source("words", tr.from_iterable(["the", "mill"]))
        >>> words.map("count", str, tasks=4, grouping=tr.partial_key(str.lower), stateful=True, mergeable=True)
        Stream(count.main)
    """
    return PartialKey(checked_key("partial_key", key))
