"""Where hedges go: to the task at which the least waits."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tailrace.policy.hedging.least_waiting import LeastWaiting


def test_equals_take_turns() -> None:
    edge = LeastWaiting(4)
    hedges = []
    for hedge in range(6):
        hedges.append(edge.choose(avoid={1}))
        edge.sent(hedge, hedges[-1])
    assert Counter(hedges) == {0: 2, 2: 2, 3: 2}


def test_what_was_sent_before_something_that_is_complete_does_not_wait() -> None:
    edge = LeastWaiting(2)
    for incarnation in range(5):
        edge.sent(incarnation, 0)
    assert edge.waiting(0) == 5
    edge.completed(3, [3])
    assert edge.waiting(0) == 1
    edge.completed(1, [1])
    assert edge.waiting(0) == 1, "heard late, and nothing new"
    assert len(edge) == 3


def test_a_root_that_its_hedge_completed_still_waits_where_it_was() -> None:
    edge = LeastWaiting(3)
    edge.sent(0, 0)
    edge.sent(100, 1)
    edge.completed(100, [0, 100])
    assert (edge.waiting(0), edge.waiting(1), len(edge)) == (1, 0, 0)
    assert edge.choose(avoid={2}) == 1, "the other may be stuck in the first incarnation"


def test_what_nobody_saw_sent_is_passed_over() -> None:
    edge = LeastWaiting(2)
    edge.completed(7, [7, 8])
    assert edge.task_of(7) is None and (edge.waiting(0), edge.waiting(1)) == (0, 0)


@given(st.integers(2, 6), st.randoms(use_true_random=False))
def test_a_hedge_goes_to_the_least_of_the_others(tasks: int, rng: Random) -> None:
    edge, open_ones = LeastWaiting(tasks), []
    for incarnation in range(60):
        if open_ones and rng.random() < 0.5:
            done = open_ones.pop(rng.randrange(len(open_ones)))
            edge.completed(done, [done])
        elif rng.random() < 0.5:
            edge.sent(incarnation, rng.randrange(tasks))
            open_ones.append(incarnation)
        else:
            avoid = set(rng.choices(range(tasks), k=2))
            choice = edge.choose(avoid)
            others = [edge.waiting(task) for task in range(tasks) if task not in avoid or len(avoid) == tasks]
            assert (choice not in avoid or len(avoid) == tasks) and edge.waiting(choice) == min(others)
            edge.sent(incarnation, choice)
            open_ones.append(incarnation)
        assert len(edge) == len(open_ones)
