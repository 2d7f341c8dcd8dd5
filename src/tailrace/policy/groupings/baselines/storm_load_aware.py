"""The load-aware shuffle of Storm, a baseline: weights that fall fast on crowded tasks and rise slowly on the others.

Decides by how full the queues of tasks were in the last period. A task within 5% of the emptiest queue gains one point
of weight, any other loses ten; tuples are dealt from a shuffled deck of a thousand in proportion to weight. Laws: those
of ``FeedbackChooser`` and ``Receiver``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from tailrace.clock import SECOND_NS
from tailrace.errors import OptionError
from tailrace.policy.groupings.feedback import FeedbackChooser, Message, Receiver

DECK = 1000
MAX_WEIGHT = 100
GAIN, LOSS = 1, 10
SAME = 0.05


class Load(NamedTuple):
    """From a task: how full its queue is, from 0 to 1."""

    fill: float


class _Dealer(FeedbackChooser):
    def __init__(self, tasks: int, period_ns: int, rng: Random) -> None:
        super().__init__()
        self._rng = rng
        self._period_ns = period_ns
        self._loads = [0.0] * tasks
        self._weights = [MAX_WEIGHT] * tasks
        self._refreshed_ns = 0
        self._deck: list[int] = []
        self._next = 0
        self._shuffle_deck()

    def tick(self, now_ns: int) -> None:
        if now_ns - self._refreshed_ns >= self._period_ns:
            self._refreshed_ns = now_ns
            limit = min(self._loads) + SAME
            self._weights = [
                min(MAX_WEIGHT, weight + GAIN) if load <= limit else max(0, weight - LOSS)
                for weight, load in zip(self._weights, self._loads, strict=True)
            ]
            self._shuffle_deck()

    def _shuffle_deck(self) -> None:
        whole = sum(self._weights)
        deck = [task for task, weight in enumerate(self._weights) for _ in range(weight * DECK // whole)]
        deck += [deck[self._rng.randrange(len(deck))] for _ in range(DECK - len(deck))]
        self._rng.shuffle(deck)
        self._deck = deck
        self._next = 0

    def choose_many(self, values: Sequence[Any]) -> Sequence[int]:
        choices = []
        for _ in values:
            choices.append(self._deck[self._next])
            self._next = (self._next + 1) % DECK
        return choices

    def hear(self, task: int, message: Message, now_ns: int) -> Sequence[int]:
        assert isinstance(message, Load), message
        self._loads[task] = message.fill
        return ()


class _LoadReporter(Receiver):
    hears_arrivals = False

    def __init__(self, senders: int, period_ns: int, capacity: int) -> None:
        super().__init__()
        self._senders = senders
        self._period_ns = period_ns
        self._capacity = capacity
        self._reported_ns = 0

    def executed(
        self, sender: int, value: Any, attached: Message | None, duration_ns: int, queued: int, now_ns: int
    ) -> None:
        if now_ns - self._reported_ns >= self._period_ns:
            self._reported_ns = now_ns
            load = Load(min(1.0, queued / self._capacity))
            self.outbox.extend((to, load) for to in range(self._senders))


@dataclass(frozen=True)
class StormLoadAware:
    """Tasks are picked at random, weighted by how empty their queues are. ``storm_load_aware()`` makes one."""

    name = "storm_load_aware"
    keyed = False

    period_ns: int = SECOND_NS
    capacity: int = 1024

    def bind(self, tasks: int, rng: Random) -> _Dealer:
        return _Dealer(tasks, self.period_ns, rng)

    def bind_receiver(self, task: int, tasks: int, senders: int, rng: Random) -> _LoadReporter:
        return _LoadReporter(senders, self.period_ns, self.capacity)


def storm_load_aware(*, period_ns: int = SECOND_NS, capacity: int = 1024) -> StormLoadAware:
    """Choose as Storm's ``LoadAwareShuffleGrouping`` does: a baseline to compare with.

    Args:
        period_ns: nanoseconds between two looks at the queues.
        capacity: how many tuples count as a full queue.

    Example:
        >>> from tailrace.policy import storm_load_aware
        >>> storm_load_aware().name
        'storm_load_aware'
    """
    if period_ns <= 0 or capacity <= 0:
        raise OptionError(f"load is over a period and a capacity: period_ns={period_ns} capacity={capacity}")
    return StormLoadAware(period_ns, capacity)
