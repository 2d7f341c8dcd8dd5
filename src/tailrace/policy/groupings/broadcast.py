"""Broadcast: every downstream task gets every tuple."""

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
    """A copy for each downstream task."""

    name = "broadcast"
    keyed = False

    def bind(self, tasks: int, rng: Random) -> _Everyone:
        return _Everyone()


def broadcast() -> Broadcast:
    """A copy of each tuple for every downstream task."""
    return Broadcast()
