"""Readers that are not always ready: some polls are empty, some readers pace themselves, and some never end.

What a drain may conclude from an empty poll is nothing, and a simulation whose sources always give something would not
show who does.
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
    """How readers of a run give what they have."""

    seed: int
    empty: float  # how often a poll gives nothing, though there is something
    paced: float  # how often a poll makes the reader wait before the next
    endless: bool  # readers never say that they are done, though nothing follows

    def rng(self, split: str, epoch: int) -> Random:
        return Random(f"{self.seed} polls {split} {epoch}")


READY = Polls(0, 0.0, 0.0, False)


def polls_of(seed: int, drained: bool) -> Polls:
    """Drawn apart from everything else. A source that never ends is for runs that are drained: others would not end."""
    rng = Random(f"{seed} polls")
    if rng.random() < 0.5:
        return READY
    return Polls(seed, rng.choice([0.0, 0.3, 0.7]), rng.choice([0.0, 0.3, 0.7]), rng.random() < 0.5 and drained)


class FitfulReader:
    """A reader that gives what another has, now and then."""

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
