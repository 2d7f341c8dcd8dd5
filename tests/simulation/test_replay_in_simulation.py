"""Replay rules on simulated tasks: what they gain, what they cost, and that they do no harm."""

from __future__ import annotations

import pytest

from tailrace.clock import MILLISECOND_NS as MS
from tailrace.errors import OptionError
from tailrace.policy import ReplayRule, adaptive_timeout, du_timeout, fixed_timeout, replicate
from tailrace.sim import Constant, Exponential, Model, Poisson, Report, Stalls, named_replay, simulate


def stalling(load: float, rule: ReplayRule | None) -> Report:
    model = Model(Poisson(load=load), Constant(MS), tuples=20_000, stalls=Stalls(0.01, 50))
    return simulate(model, replay=rule, seed=2)


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_stalls_are_cut_off_for_little_work(load: float) -> None:
    plain, hedged = stalling(load, None), stalling(load, adaptive_timeout())
    assert hedged.percentile_ns(0.99) < 0.8 * plain.percentile_ns(0.99)
    assert hedged.percentile_ns(0.999) < 0.9 * plain.percentile_ns(0.999), "the first second is not hedged"
    assert sum(hedged.busy_ns) < 1.05 * sum(plain.busy_ns)


def test_without_throwing_anything_away_the_papers_rule_runs_away() -> None:
    plain, replayed = stalling(0.7, None), stalling(0.7, du_timeout())
    assert replayed.percentile_ns(0.99) > 1.2 * plain.percentile_ns(0.99)
    assert replayed.cancelled == 0
    assert sum(replayed.executed) == 20_000 + replayed.hedges


@pytest.mark.parametrize("load", [0.3, 0.6])
def test_where_a_second_try_is_no_faster_there_are_hardly_any(load: float) -> None:
    model = Model(Poisson(load=load), Exponential(MS), tuples=20_000)
    plain, hedged = simulate(model, seed=2), simulate(model, replay=adaptive_timeout(), seed=2)
    assert 0 < hedged.hedges < 200
    assert hedged.percentile_ns(0.99) < 1.04 * plain.percentile_ns(0.99)


def test_a_gate_holds_for_all() -> None:
    assert stalling(0.7, fixed_timeout(5, gate=0.3)).hedges < 200
    assert stalling(0.7, fixed_timeout(5)).hedges > 2_000


def test_replication_costs_its_share() -> None:
    report = stalling(0.2, replicate(0.5))
    assert report.hedges == pytest.approx(10_000, rel=0.05)
    assert report.extra_work == pytest.approx(0.5, rel=0.2)


def test_rules_by_name() -> None:
    assert named_replay("adaptive_timeout") == adaptive_timeout()
    assert named_replay("fixed_timeout=20") == fixed_timeout(20)
    assert named_replay("replicate=0.2") == replicate(0.2)
    for text in ("adaptive", "adaptive_timeout=3"):
        with pytest.raises(OptionError, match=f"unknown replay rule: replay={text}: did you mean one of adaptive_time"):
            named_replay(text)
    with pytest.raises(OptionError, match=r"a replay rule needs a number: replay=replicate=: did you mean"):
        named_replay("replicate=")
