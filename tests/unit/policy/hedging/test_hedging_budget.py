"""The budget of a hedging rule: what fills it, what a hedge is charged, and when its gate is closed."""

from __future__ import annotations

import pytest

from tailrace.clock import MILLISECOND_NS as MS
from tailrace.clock import SECOND_NS
from tailrace.policy.hedging.api import Load
from tailrace.policy.hedging.budget import BURST, LEAST, LUCKY_BURSTS, Budget, Limits


def earn(budget: Budget, roots: int) -> None:
    for _ in range(roots):
        budget.completed(hedges=0, won=False)


def report(budget: Budget, roots: int, hedges: int, unrun: float = 0, root_ns: int = MS) -> None:
    """Each hedge is a root's work, of which so much was not run: of all of them, in roots."""
    work_ns = round((roots + hedges - unrun) * root_ns)
    budget.observed(Load(0.5, roots, hedges, work_ns, round(unrun * root_ns)), 0)


def hedges(budget: Budget, won: bool, discarded: bool, limit: int = 10_000) -> int:
    """As many as the budget pays for."""
    issued = 0
    while issued < limit and budget.affords():
        budget.spend()
        issued += 1
        report(budget, roots=1, hedges=1, unrun=int(discarded))
    for _ in range(issued):
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
    earn(budget, 105)
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


def test_nothing_needs_to_be_known_of_work_for_a_hedge_to_cost_a_root() -> None:
    budget = Budget(Limits(0.05, None))
    assert not budget.affords()
    earn(budget, 20)
    assert budget.cost() == 1 and budget.payable() == 0.05 and budget.left() == pytest.approx(1)


def test_the_cost_of_a_hedge_is_a_root_less_what_is_thrown_away() -> None:
    """100 roots and 2000 hedges of 2 ms each; a quarter of the hedges' worth of work is not run."""
    budget = Budget(Limits(0.1, None))
    report(budget, roots=100, hedges=2_000, unrun=500, root_ns=2 * MS)
    assert budget.cost() == pytest.approx(0.75, rel=0.01)
    budget.observed(Load(0.5, 0, 0, 0, 0), 0)
    assert budget.cost() == pytest.approx(0.75, rel=0.01), "a report of nothing says nothing"


def test_a_hedge_that_stalls_does_not_make_the_next_dearer() -> None:
    """Stalls are part of the mean work of roots, which hedges share."""
    budget = Budget(Limits(0.1, None))
    for _ in range(20):
        report(budget, roots=100, hedges=10, unrun=5)
    before = budget.cost()
    budget.observed(Load(0.5, 100, 10, (100 + 10 + 49) * MS, 0), 0)
    assert before < budget.cost() < before + 0.1


def test_the_work_of_a_root_is_that_of_recent_ones() -> None:
    budget = Budget(Limits(0.1, None))
    report(budget, roots=100_000, hedges=0, root_ns=10 * MS)
    for _ in range(100):
        report(budget, roots=100, hedges=10, unrun=5)
    assert budget.cost() == pytest.approx(0.5, rel=0.05)


def test_what_was_believed_of_hedges_before_the_first_is_forgotten() -> None:
    """Of five, four spare an execution."""
    budget = Budget(Limits(0.05, None))
    for number in range(2_000):
        report(budget, roots=10, hedges=1, unrun=int(number % 5 > 0))
    assert budget.cost() == pytest.approx(0.2, rel=0.1) and budget.payable() == pytest.approx(0.25, rel=0.1)


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
    while budget.affords():
        budget.spend()
    assert not budget.left_over(), "there is nothing in it"
    earn(budget, BURST)
    assert budget.left_over() and budget.left_over()
    assert hedges(budget, True, False) >= BURST - 1
    earn(budget, BURST)
    assert not budget.left_over(), "it was empty in between"
    assert budget.left_over()


def test_hedges_that_lose_stop_the_budget_and_those_that_win_fill_it() -> None:
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
            budget.observed(Load(utilisation, 0, 0, 0, 0), now_ns)
        return budget.affords()

    assert observe(0.5, 10)
    assert observe(1.0, 1), "one busy second is not enough"
    assert not observe(1.0, 10)
    assert not observe(0.78, 60)
    assert observe(0.7, 30)
    assert observe(0.78, 60)
