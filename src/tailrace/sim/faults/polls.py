"""Readers that are not always ready: some polls are empty, some readers pace themselves, some never end.

A drain must not conclude anything from an empty poll. Sources that always give something would not show if it did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from tailrace.clock import MILLISECOND_NS
from tailrace.connector import Reader, Record

MS = MILLISECOND_NS


@dataclass(frozen=True)
class Polls:
    """How the readers of a run behave."""

    seed: int
    empty: float  # probability that a poll is empty although there are records
    paced: float  # probability that the reader waits before the next poll
    endless: bool  # readers never say that they are done, although nothing follows

    def rng(self, split: str, epoch: int) -> Random:
        return Random(f"{self.seed} polls {split} {epoch}")


READY = Polls(0, 0.0, 0.0, False)


def polls_of(seed: int, drained: bool) -> Polls:
    """Drawn from a generator of its own. Endless readers are for runs that are drained; others would not end."""
    rng = Random(f"{seed} polls")
    if rng.random() < 0.5:
        return READY
    return Polls(seed, rng.choice([0.0, 0.3, 0.7]), rng.choice([0.0, 0.3, 0.7]), rng.random() < 0.5 and drained)


class FitfulReader:
    """Wraps a reader so that it gives its records only now and then."""

    def __init__(self, reader: Reader, polls: Polls, rng: Random, endless: bool) -> None:
        self._reader = reader
        self._polls = polls
        self._rng = rng
        self._endless = endless
        self.ready_ns = 0

    def poll(self, limit: int, now_ns: int) -> Sequence[Record]:
        if now_ns < self.ready_ns:
            return ()
        if self._reader.done or self._rng.random() < self._polls.paced:
            self.ready_ns = now_ns + self._rng.randrange(1, 20) * MS
        if self._rng.random() < self._polls.empty:
            return ()
        return self._reader.poll(limit, now_ns)

    @property
    def done(self) -> bool:
        return self._reader.done and not self._endless

    def close(self) -> None:
        self._reader.close()
