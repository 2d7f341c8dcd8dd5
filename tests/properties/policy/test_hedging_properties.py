"""Censored quantiles, and rules on traffic that hypothesis makes up."""

from __future__ import annotations

from collections import Counter
from math import ceil
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.policy import HedgeRule, adaptive_timeout, du_timeout, fixed_timeout, replicate
from tailrace.policy.hedging.api import MOST_HEDGES, Load
from tailrace.policy.hedging.budget import Budget, Limits
from tailrace.policy.hedging.latencies import UNSEEN, quantiles

samples = st.lists(st.tuples(st.integers(0, 50), st.booleans()), min_size=1, max_size=60)
SHARES = (0.1, 0.5, 0.9, 0.95, 0.99, 1.0)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=200), st.floats(0.01, 1))
def test_without_censoring_quantiles_are_ranks(latencies: list[int], share: float) -> None:
    ranked = sorted(latencies)
    expected = ranked[ceil(share * len(ranked) - 1e-6) - 1]
    assert quantiles([(latency, False) for latency in ranked], [share]) == [expected]


@given(samples)
def test_quantiles_ascend_and_are_latencies_that_were_seen(drawn: list[tuple[int, bool]]) -> None:
    found = quantiles(sorted(drawn), SHARES)
    assert found == sorted(found)
    assert set(found) <= {latency for latency, censored in drawn if not censored} | {UNSEEN}


@given(samples, st.data())
def test_censoring_a_sample_lowers_no_quantile(drawn: list[tuple[int, bool]], data: st.DataObject) -> None:
    drawn.sort()
    position = data.draw(st.integers(0, len(drawn) - 1))
    less_known = sorted([*drawn[:position], (drawn[position][0], True), *drawn[position + 1 :]])
    for before, after in zip(quantiles(drawn, SHARES), quantiles(less_known, SHARES), strict=True):
        assert after >= before


RULES: list[HedgeRule] = [
    adaptive_timeout(gate=None),
    adaptive_timeout(budget=None, gate=0.5),
    fixed_timeout(1),
    replicate(0.5),
    du_timeout(),
]
steps = st.lists(st.tuples(st.sampled_from("eeecdoaw"), st.integers(0, 400)), max_size=80)


@given(st.sampled_from(RULES), steps)
@settings(max_examples=150)
def test_any_order_of_events_keeps_the_law(rule: HedgeRule, drawn: list[tuple[str, int]]) -> None:
    """Emissions, completions, load reports with and without hedges, questions, wake-ups; 0 to 400 ms apart."""
    hedger = rule.bind(Random(0))
    pending: list[int] = []
    hedged: Counter[int] = Counter()
    emitted = now_ns = 0
    for step, wait_ms in drawn:
        now_ns += wait_ms * 1_000_000
        if step == "e":
            pending.append(emitted)
            hedger.emitted(emitted, now_ns)
            emitted += 1
        elif step == "c" and pending:
            root = pending.pop(wait_ms % len(pending))
            hedger.completed(root, now_ns, root in hedged and wait_ms % 2 == 0)
        elif step in "od":
            unrun_ns = 1_000 * (wait_ms % 7) if step == "d" else 0
            hedger.observed(Load(wait_ms / 400, wait_ms % 3, wait_ms % 5, 1_000 * (wait_ms % 2), unrun_ns), now_ns)
        elif step == "w":
            now_ns = max(now_ns, hedger.wake_ns() or 0)
        for root in hedger.due(now_ns):
            hedged[root] += 1
            assert root in pending and hedged[root] <= MOST_HEDGES
        wake_ns = hedger.wake_ns()
        assert wake_ns is None or wake_ns > now_ns, "what is due now is due now"


@given(st.floats(0.01, 1), st.lists(st.tuples(st.integers(1, 50), st.integers(0, 40)), max_size=60))
def test_hedges_of_known_cost_stay_within_the_budget(share: float, drawn: list[tuple[int, int]]) -> None:
    """Roots of one size, hedges that cost as much and win; so many are wanted after each stretch of roots."""
    budget, complete, hedges = Budget(Limits(share, None)), 0, 0
    for roots, wanted in drawn:
        for _ in range(roots):
            budget.completed(hedges=0, won=False)
        granted = 0
        while granted < wanted and budget.affords():
            budget.spend()
            budget.completed(hedges=1, won=True)
            granted += 1
        budget.observed(Load(0.5, roots + granted, granted, (roots + 2 * granted) * 1_000, 0), 0)
        complete, hedges = complete + roots + granted, hedges + granted
        assert hedges <= share * complete + 1e-6
