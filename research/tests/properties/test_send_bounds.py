"""Hone's theorems, on every instance of a few small sizes, against the least backlog that foresight could reach."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import ceil, log2
from random import Random

import pytest

from tailrace.policy.send_order.api import NOTHING, Picker, SendScheduler, Waiting
from tailrace.policy.send_order.fifo import fifo
from tailrace.policy.send_order.largest_backlog import lbf, lbf_work
from tailrace.policy.send_order.round_robin import round_robin
from tailrace_research.reproduce.hone.slots import Arrival, simulate_slots

SLOT_NS = 1_000
Instance = list[tuple[int, ...]]  # a slot's arrivals in each queue

SIZES = [(2, (0, 1, 2), 5), (2, (0, 1, 4), 4), (3, (0, 1), 5), (3, (0, 2), 4), (4, (0, 1), 4)]
"""Queues, what may arrive in one of them in a slot, slots: 9 ** 5, 9 ** 4, 8 ** 5, ... instances."""


def instances(queues: int, counts: tuple[int, ...], slots: int) -> Iterator[tuple[Instance, int]]:
    """Every instance of a size with its optimum. What follows a common beginning is worked out once."""

    def extend(beginning: Instance, reached: dict[tuple[int, ...], int]) -> Iterator[tuple[Instance, int]]:
        if len(beginning) == slots:
            yield beginning, min(reached.values())
            return
        for arrivals in product(counts, repeat=queues):
            yield from extend([*beginning, arrivals], step(reached, arrivals))

    return extend([], {(0,) * queues: 0})


def step(reached: dict[tuple[int, ...], int], arrivals: tuple[int, ...]) -> dict[tuple[int, ...], int]:
    """Backlogs after one more slot, whichever queue sends, with the least maximum on any way there."""
    after: dict[tuple[int, ...], int] = {}
    for backlogs, worst in reached.items():
        grown = [backlog + more for backlog, more in zip(backlogs, arrivals, strict=True)]
        for queue in [queue for queue, backlog in enumerate(grown) if backlog] or [0]:  # idling never helps
            left = (*grown[:queue], max(grown[queue] - 1, 0), *grown[queue + 1 :])
            after[left] = min(max(worst, *left), after.get(left, 2**31))
    return after


def online(scheduler: SendScheduler, instance: Instance, seed: int) -> int:
    """The largest backlog that ``scheduler`` lets happen."""
    queues = len(instance[0])
    arrivals = [
        Arrival(slot * SLOT_NS, queue)
        for slot, counts in enumerate(instance)
        for queue, count in enumerate(counts)
        for _ in range(count)
    ]
    done = simulate_slots(scheduler, arrivals, queues=queues, slots=len(instance), slot_ns=SLOT_NS, rng=Random(seed))
    return done.max_backlog


def bound(queues: int) -> int:
    return 3 + ceil(log2(queues))


@pytest.mark.parametrize(("queues", "counts", "slots"), SIZES)
def test_lbf_is_within_its_bound_of_the_optimum(queues: int, counts: tuple[int, ...], slots: int) -> None:
    suboptimal = 0
    for index, (instance, optimum) in enumerate(instances(queues, counts, slots)):
        given = online(lbf(), instance, seed=index)
        assert optimum <= given <= bound(queues) * optimum, f"optimum={optimum} given={given} instance={instance}"
        suboptimal += given > optimum
    assert suboptimal, "every instance was easy: is the optimum that of foresight?"


@pytest.mark.parametrize("scheduler", [lbf_work(), round_robin(), fifo()], ids=lambda scheduler: scheduler.name)
@pytest.mark.parametrize(("queues", "counts", "slots"), [(2, (0, 1, 3), 4), (3, (0, 1), 4)])
def test_whoever_wastes_no_slot_is_within_n_of_the_optimum(
    scheduler: SendScheduler, queues: int, counts: tuple[int, ...], slots: int
) -> None:
    for index, (instance, optimum) in enumerate(instances(queues, counts, slots)):
        assert online(scheduler, instance, seed=index) <= queues * optimum, f"optimum={optimum} instance={instance}"


@dataclass(frozen=True)
class _LastWithAny:
    """Wastes no slot and looks at no backlog, to see that the optimum is not met by chance."""

    name: str = "last"
    work_conserving: bool = True
    age_floor_ns: int | None = None
    age_drains: float = 0.0

    def bind(self, queues: int, rng: Random) -> Picker:
        return self

    def pick(self, waiting: Waiting, now_ns: int) -> int:
        return max((queue for queue, tuples in enumerate(waiting.tuples) if tuples), default=NOTHING)


def outcomes(scheduler: SendScheduler) -> list[tuple[int, int]]:
    return [(online(scheduler, instance, seed=0), optimum) for instance, optimum in instances(3, (0, 1), 4)]


def test_the_papers_round_robin_has_no_bound() -> None:
    """It lets a tuple wait where nothing need ever wait."""
    assert any(given > 0 for given, optimum in outcomes(round_robin(skip_empty=False)) if optimum == 0)


def test_lbf_meets_the_optimum_more_often_than_who_ignores_backlogs() -> None:
    with_lbf, without = (sum(given == optimum for given, optimum in outcomes(s)) for s in (lbf(), _LastWithAny()))
    assert with_lbf > without
