"""The purse of a replay rule: what fills it, what a hedge is charged, and when it is closed."""

from __future__ import annotations

import pytest

from tailrace.clock import MILLISECOND_NS as MS
from tailrace.clock import SECOND_NS
from tailrace.policy.hedging.budget import BURST, LEAST, LUCKY_BURSTS, Budget, Limits


def earn(budget: Budget, roots: int, work_ns: int = MS) -> None:
    for _ in range(roots):
        budget.executed(work_ns, False)
        budget.completed(hedges=0, won=False)


def hedges(budget: Budget, won: bool, discarded: bool, limit: int = 10_000) -> int:
    """As many as it pays for, each run by one task."""
    issued = 0
    while issued < limit and budget.affords():
        budget.spend()
        issued += 1
        budget.executed(MS, True)
        if discarded:
            budget.discarded(False)
        budget.completed(hedges=1, won=won)
    return issued


def test_two_hedges_of_a_root_of_which_one_is_first_are_one_that_lost() -> None:
    one, two = Budget(Limits(None, None)), Budget(Limits(None, None))
    for _ in range(40):
        one.completed(hedges=1, won=True)
        one.completed(hedges=1, won=False)
        two.completed(hedges=2, won=True)
    assert one.luck() == two.luck()


def test_a_bucket_fills_by_work_and_holds_a_burst() -> None:
    budget = Budget(Limits(0.1, None))
    assert not budget.affords()
    earn(budget, 100)
    assert hedges(budget, True, False) == 10
    earn(budget, 100_000)
    assert hedges(budget, True, False) == BURST


def test_a_hedge_that_spares_the_other_incarnation_costs_little() -> None:
    budget = Budget(Limits(0.05, None))
    issued = 0
    for _ in range(100):
        earn(budget, 100)
        issued += hedges(budget, True, True, limit=50)
    assert issued > 4_000, "against 500 that cost a root's work each"


def test_roots_from_before_anything_is_known_of_work_do_not_count_as_free() -> None:
    """A source hears once a second what roots cost. If those before it had cost nothing, hedges would seem dear."""
    budget = Budget(Limits(0.05, None))
    for _ in range(500):
        budget.completed(hedges=0, won=False)
    earn(budget, 10)
    assert budget.cost_ns() == MS and budget.payable() == 0.05


def test_a_hedge_is_charged_the_mean_of_an_execution() -> None:
    budget = Budget(Limits(0.1, None))
    earn(budget, 1_000)
    budget.spend()
    before = budget.cost_ns()
    budget.executed(50 * MS, True)
    assert budget.cost_ns() == pytest.approx(before + MS / 21), "one that stalls says nothing of the next"


def test_what_was_believed_of_hedges_before_the_first_is_forgotten() -> None:
    """Of five, four spare an execution."""
    budget = Budget(Limits(0.05, None))
    for number in range(2_000):
        earn(budget, 10)
        budget.spend()
        budget.executed(MS, True)
        if number % 5:
            budget.discarded(False)
    assert budget.cost_ns() == pytest.approx(0.2 * MS, rel=0.05) and budget.payable() == pytest.approx(0.25, rel=0.05)


def test_the_bucket_holds_twice_as_much_where_hedges_win() -> None:
    budget = Budget(Limits(1.0, None))
    earn(budget, 1_000)
    assert budget.left() == pytest.approx(BURST)
    for _ in range(30):
        budget.completed(hedges=1, won=True)
    earn(budget, 2_000)
    assert budget.left() == pytest.approx(LUCKY_BURSTS * BURST, rel=0.01)


def test_it_is_left_over_if_most_of_a_burst_was_there_all_the_time() -> None:
    budget = Budget(Limits(1.0, None))
    for _ in range(30):
        budget.completed(hedges=1, won=True)
    assert not budget.left_over(), "there is nothing in it"
    earn(budget, BURST)
    assert budget.left_over() and budget.left_over()
    assert hedges(budget, True, False) >= BURST - 1
    earn(budget, BURST)
    assert not budget.left_over(), "it was empty in between"
    assert budget.left_over()


def test_hedges_that_lose_close_the_purse_and_those_that_win_open_it() -> None:
    budget = Budget(Limits(0.1, None))
    for _ in range(100):
        earn(budget, 100)
        hedges(budget, False, False)
    assert budget.worth() == LEAST
    earn(budget, 1_000)
    assert hedges(budget, False, False) <= 0.1 * 1_000 * LEAST + 1
    for _ in range(200):
        earn(budget, 1_000)
        hedges(budget, True, False)
    assert budget.worth() == 1.0


def test_the_gate_closes_on_the_average_and_opens_further_down() -> None:
    budget = Budget(Limits(None, 0.8))
    assert not budget.affords(), "not before it is known that there is room"
    now_ns = 0

    def observe(utilisation: float, seconds: int) -> bool:
        nonlocal now_ns
        for _ in range(10 * seconds):
            now_ns += SECOND_NS // 10
            budget.observed(utilisation, now_ns)
        return budget.affords()

    assert observe(0.5, 10)
    assert observe(1.0, 1), "one busy second is not enough"
    assert not observe(1.0, 10)
    assert not observe(0.78, 60)
    assert observe(0.7, 30)
    assert observe(0.78, 60)
