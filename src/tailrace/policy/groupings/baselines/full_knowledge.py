"""Full Knowledge: the greedy choice of OSG with exact costs, which no real system has. A bound to compare with.

Decides by the costs of all tuples of this sender, which only a simulation can show. With ``cumulated``, as in the
paper, the sum of all that was ever assigned counts, as if no task had ever been idle. Otherwise the work that is left
counts, which makes the best use of tasks that an assignment in order can; among idle tasks, the one that has been idle
longest is taken. A sender knows its own tuples only, so there should be just one. Laws: those of ``FeedbackChooser``
and ``Receiver``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tailrace.policy.groupings.feedback import FeedbackChooser, Message, Receiver


class _Greedy(FeedbackChooser):
    def __init__(self, slowness: tuple[float, ...], cumulated: bool) -> None:
        super().__init__()
        self._slowness = slowness
        self._cumulated = cumulated
        self._now_ns = 0
        self._done_ns = [0.0] * len(
            slowness
        )  # when each task is done; or, if cumulated, the execution time assigned to it

    def tick(self, now_ns: int) -> None:
        self._now_ns = now_ns

    def choose_many(self, values: Sequence[Any]) -> Sequence[int]:
        """Values are costs, in nanoseconds on a task of slowness 1."""
        done = self._done_ns
        choices = []
        for cost_ns in values:
            task = done.index(min(done))
            begin_ns = done[task] if self._cumulated else max(done[task], self._now_ns)
            done[task] = begin_ns + cost_ns * self._slowness[task]
            choices.append(task)
        return choices

    def hear(self, task: int, message: Message, now_ns: int) -> Sequence[int]:
        return ()


class _Deaf(Receiver):
    hears_arrivals = False


@dataclass(frozen=True)
class FullKnowledge:
    """Each tuple goes to the task that will be done first, by exact costs. ``full_knowledge()`` makes one.

    Tuples are their own exact costs in nanoseconds, which only a simulation can show.
    """

    keyed = False
    simulation_only = True  # a topology refuses it

    cumulated: bool = True
    slowness: tuple[float, ...] = ()  # of each task; empty: all 1

    @property
    def name(self) -> str:
        return "full_knowledge" if self.cumulated else "least_work_left"

    def bind(self, tasks: int, rng: Random) -> _Greedy:
        return _Greedy(self.slowness or (1.0,) * tasks, self.cumulated)

    def bind_receiver(self, task: int, tasks: int, senders: int, rng: Random) -> _Deaf:
        return _Deaf()


def full_knowledge(*, cumulated: bool = True, slowness: tuple[float, ...] = ()) -> FullKnowledge:
    """Choose by exact costs: a bound that no real grouping reaches, for simulations only.

    Args:
        cumulated: whether a task counts as loaded with all it was ever given, or with what it has left.
        slowness: a factor on all costs for each task; empty if all are equally fast.

    Example:
        >>> from random import Random
        >>> from tailrace.policy import full_knowledge
        >>> full_knowledge().bind(2, Random(1)).choose_many([5, 1, 1, 1])
        [0, 1, 1, 1]
    """
    return FullKnowledge(cumulated, slowness)
