"""Shuffle: round robin over the downstream tasks, from nothing but the sender's own turn.

Each sender begins at a random task, so that senders do not move in step. Law: that of ``Grouping``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, cycle, islice
from random import Random
from typing import Any


class _RoundRobin:
    __slots__ = ("_turns",)

    def __init__(self, tasks: int, start: int) -> None:
        self._turns = cycle(chain(range(start, tasks), range(start)))

    def choose_many(self, values: Sequence[Any]) -> Sequence[int]:
        return list(islice(self._turns, len(values)))


@dataclass(frozen=True)
class Shuffle:
    """Each downstream task gets every n-th tuple of a sender. ``shuffle()`` makes one."""

    name = "shuffle"
    keyed = False

    def bind(self, tasks: int, rng: Random) -> _RoundRobin:
        return _RoundRobin(tasks, rng.randrange(tasks))


def shuffle() -> Shuffle:
    """Deal tuples to the downstream tasks in turn. This is the default grouping.

    Example:
        >>> lines = tr.Topology("words").source("lines", tr.from_iterable(["the mill"]))
        >>> lines.map("upper", str.upper, tasks=2, grouping=tr.shuffle())
        Stream(upper.main)
    """
    return Shuffle()
