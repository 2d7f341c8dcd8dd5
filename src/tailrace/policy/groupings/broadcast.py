"""Broadcast: every downstream task gets every tuple. Law: that of ``Grouping``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tailrace.policy.groupings.api import ALL


class _Everyone:
    __slots__ = ()

    def choose_many(self, values: Sequence[Any]) -> Sequence[int]:
        return [ALL] * len(values)


@dataclass(frozen=True)
class Broadcast:
    """Every downstream task gets a copy of each tuple. ``broadcast()`` makes one."""

    name = "broadcast"
    keyed = False

    def bind(self, tasks: int, rng: Random) -> _Everyone:
        return _Everyone()


def broadcast() -> Broadcast:
    """Send a copy of each tuple to every downstream task.

    Example:
        >>> lines = tr.Topology("words").source("lines", tr.from_iterable(["the mill"]))
        >>> lines.map("index", str.upper, tasks=2, grouping=tr.broadcast())
        Stream(index.main)
    """
    return Broadcast()
