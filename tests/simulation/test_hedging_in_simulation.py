"""Hedging rules on simulated tasks: what they gain, what they cost, and that they do no harm."""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest.mock import patch

import pytest

from tailrace.clock import MILLISECOND_NS as MS
from tailrace.errors import OptionError
from tailrace.policy import HedgeRule, adaptive_timeout, du_timeout, fixed_timeout, replicate
from tailrace.sim import Constant, Exponential, Model, Poisson, Report, Stage, Stalls, named_hedge, simulate
from tailrace.sim.load.stage import StageAtWork


def stalling(load: float, rule: HedgeRule | None) -> Report:
    model = Model(Poisson(load=load), Constant(MS), tuples=20_000, stalls=Stalls(0.01, 50))
    return simulate(model, hedge=rule, seed=2)


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_stalls_are_cut_off_for_little_work(load: float) -> None:
    plain, hedged = stalling(load, None), stalling(load, adaptive_timeout())
    assert hedged.percentile_ns(0.99) < 0.8 * plain.percentile_ns(0.99)
    assert hedged.percentile_ns(0.999) < 0.9 * plain.percentile_ns(0.999), "the first second is not hedged"
    assert sum(hedged.busy_ns) < 1.05 * sum(plain.busy_ns)


def test_without_throwing_anything_away_the_papers_rule_runs_away() -> None:
    plain, hedged = stalling(0.7, None), stalling(0.7, du_timeout())
    assert hedged.percentile_ns(0.99) > 1.2 * plain.percentile_ns(0.99)
    assert hedged.cancelled == 0
    assert sum(hedged.executed) == 20_000 + hedged.hedges


@pytest.mark.parametrize("load", [0.3, 0.6])
def test_where_a_second_try_is_no_faster_there_are_hardly_any(load: float) -> None:
    model = Model(Poisson(load=load), Exponential(MS), tuples=20_000)
    plain, hedged = simulate(model, seed=2), simulate(model, hedge=adaptive_timeout(), seed=2)
    assert 0 < hedged.hedges < 200
    assert hedged.percentile_ns(0.99) < 1.04 * plain.percentile_ns(0.99)


def test_a_hedge_meets_what_it_races_at_no_operator_that_has_one_tuple_of_it() -> None:
    """As in the runtime: behind the first edge it goes to the other side, but for tuples of which there are several."""
    stages = (Stage("one"), Stage("two", fan_out=2.0), Stage("many"))
    model = Model(Poisson(load=0.3), Constant(MS), tuples=4_000, senders=2, stages=stages, stalls=Stalls(0.01, 50))
    sent: dict[tuple[str, int, bool], int] = {}
    original = StageAtWork.send

    def send(self: StageAtWork, index: int, incarnation: int, sender: int, choice: int, attached: Any) -> None:
        sent[self.name, index, incarnation >= self.roots.count] = choice
        original(self, index, incarnation, sender, choice, attached)

    with patch.object(StageAtWork, "send", send):
        assert simulate(model, hedge=fixed_timeout(10), seed=2).hedges > 200
    met = Counter(
        name for (name, index, again), task in sent.items() if again and sent.get((name, index, False)) == task
    )
    assert set(met) == {"many"}


def test_a_gate_holds_for_all() -> None:
    assert stalling(0.7, fixed_timeout(5, gate=0.3)).hedges < 200
    assert stalling(0.7, fixed_timeout(5)).hedges > 2_000


def test_replication_costs_its_share() -> None:
    report = stalling(0.2, replicate(0.5))
    assert report.hedges == pytest.approx(10_000, rel=0.05)
    assert report.extra_work == pytest.approx(0.5, rel=0.2)


def test_rules_by_name() -> None:
    assert named_hedge("adaptive_timeout") == adaptive_timeout()
    assert named_hedge("fixed_timeout=20") == fixed_timeout(20)
    assert named_hedge("replicate=0.2") == replicate(0.2)
    for text in ("adaptive", "adaptive_timeout=3"):
        with pytest.raises(OptionError, match=f"unknown hedging rule: hedge={text}: did you mean (one of )?adaptive"):
            named_hedge(text)
    with pytest.raises(OptionError, match=r"a hedging rule needs a number: hedge=replicate=: did you mean"):
        named_hedge("replicate=")
