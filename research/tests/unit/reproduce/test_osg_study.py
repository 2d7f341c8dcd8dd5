"""OSG's settings, on streams short enough for a test. The figures themselves are what ``tailrace reproduce`` is for."""

from __future__ import annotations

from functools import cache
from statistics import fmean
from typing import Any

import pytest

from tailrace.sim.load.report import Report
from tailrace_research.reproduce.osg.simulations import (
    AFTER,
    BEFORE,
    MEASURES,
    PARAMETERS,
    SETTING,
    WORSE,
    Setting,
    change_cost,
    figure_settings,
    policies,
    recovery_tuples,
    run_cell,
    run_change,
    run_policy,
    windowed_ms,
)


@cache
def mean_ns(setting: Setting, policy: str, stream: int, hash_seed: int) -> float:
    return run_policy(setting, policy, stream, hash_seed).mean_ns


def speedup(setting: Setting, policy: str, stream: int = 1, hash_seed: int = 1) -> float:
    return mean_ns(setting, "shuffle", stream, 0) / mean_ns(setting, policy, stream, hash_seed)


def cell(setting: Setting, policy: str, stream: int = 1, seed: int = 0) -> dict[str, Any]:
    values = [getattr(setting, name) for name in SETTING]
    return dict(zip(PARAMETERS, (*values, policy, stream, seed), strict=True))


def test_the_paper_s_sweeps() -> None:
    assert list(figure_settings(9)) == list(range(2, 21))
    assert figure_settings(6)[1.05].over_provisioning == 1.05
    assert all(setting.tuples == 100_000 for figure in range(4, 11) for setting in figure_settings(figure).values())
    assert figure_settings(7, Setting(tuples=10))[0.1] == Setting(low_ms=0.1, high_ms=0.1, tuples=10)
    with pytest.raises(ValueError, match="not a sweep of the paper: figure=11"):
        figure_settings(11)


def test_full_knowledge_has_a_speed_up_of_more_than_two_where_tasks_are_just_enough() -> None:
    setting = Setting(over_provisioning=1.03, tuples=40_000)
    full = speedup(setting, "full_knowledge")
    assert 2 < full < 5
    assert speedup(setting, "pull") >= full / 1.01
    assert speedup(setting, "least_work") >= full / 1.05


def test_a_cell_is_a_function_of_its_parameters() -> None:
    setting = Setting(tuples=25_000)
    first = run_cell(cell(setting, "osg"))
    assert first == run_cell(cell(setting, "osg"))
    assert first != run_cell(cell(setting, "osg", stream=2))
    assert first != run_cell(cell(setting, "osg", seed=1)), "other hash functions"
    assert list(first) == list(MEASURES)
    assert set(policies(setting, 0)) >= {"shuffle", "osg", "osg_mended", "least_work", "pull", "full_knowledge"}


def test_where_all_tuples_cost_the_same_nothing_can_be_gained() -> None:
    setting = figure_settings(7, Setting(tuples=5_000))[0.1]
    assert speedup(setting, "full_knowledge") == speedup(setting, "osg") == pytest.approx(1.0)


def test_the_sums_of_osg_ignore_idle_time_and_that_is_what_costs_it() -> None:
    """The ablation: with time to spare, the paper's sums are worse than round robin, and moments are better."""
    setting = Setting(over_provisioning=1.05, tuples=60_000)
    literal, published, mended = (
        fmean(speedup(setting, policy, stream, stream) for stream in range(3))
        for policy in ("osg", "osg_published", "osg_mended")
    )
    assert literal < 1 < published < mended


@pytest.mark.parametrize("policy", ["osg", "osg_mended"])
def test_several_senders_do_not_overshoot(policy: str) -> None:
    """When each of four made up for the imbalance of all, latencies grew to minutes."""
    assert speedup(Setting(over_provisioning=1.05, tuples=60_000, senders=4), policy) > 0.5


# -- figure 11


def test_speeds_change_in_the_middle_and_not_before() -> None:
    changed, steady = run_change(Setting(tuples=4_000, changes=1), "shuffle", 1, 1)
    assert changed.due_ns == steady.due_ns
    middle_ns = changed.due_ns[2_000]
    early = [index for index, done_ns in enumerate(steady.done_ns) if done_ns <= middle_ns]
    assert [changed.done_ns[index] for index in early] == [steady.done_ns[index] for index in early]
    for task, (before, after) in enumerate(zip(BEFORE, AFTER, strict=True)):
        faster = changed.busy_ns[task] < steady.busy_ns[task]
        assert faster is (after < before) or before == after


def test_a_cell_of_figure_11() -> None:
    found = run_cell(cell(Setting(tuples=30_000, changes=1), "shuffle"))
    assert [len(found[name]) for name in ("series_ms", "series_max_ms")] == [300, 300]
    assert all(most >= mean for mean, most in zip(found["series_ms"], found["series_max_ms"], strict=True))
    assert max(found["series_max_ms"]) >= found["p999_ms"]


def test_means_over_a_window() -> None:
    report = Report("p", 0, [0, 0, 0], [1_000_000, 3_000_000, 5_000_000], [], (), (), 0)
    assert windowed_ms(report, 2) == [1.0, 2.0, 4.0]


FINE, BAD = 10.0, 10.0 * WORSE + 0.1


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ([FINE] * 60, 0),
        ([10 * WORSE] * 60, 0),
        ([FINE] * 10 + [BAD] * 20 + [FINE] * 30, 30),
        ([FINE] * 5 + [BAD] * 5 + [FINE] * 3 + [BAD] * 7 + [FINE] * 40, 20),
        ([FINE] * 5 + [BAD] * 5 + [FINE] * 30 + [BAD] * 20, 10),
        ([FINE] * 30 + [BAD] * 30, 0),
        ([BAD] * 60, 60),
        ([BAD] * 58 + [FINE] * 2, 60),
    ],
    ids=[
        "undisturbed",
        "just not disturbed",
        "for a while",
        "a relapse within a window",
        "noise long after",
        "noise long after only",
        "to the end",
        "not for a whole window",
    ],
)
def test_recovery(after: list[float], expected: int) -> None:
    assert recovery_tuples([99.0] * 60 + after, [99.0] * 60 + [10.0] * 60, window=4, onset=20) == expected


def test_the_cost_of_a_change_is_over_the_tuples_that_follow_it() -> None:
    usual = Report("p", 0, [0] * 8, [10] * 8, [], (), (), 0)
    changed = Report("p", 0, [0] * 8, [99, 10, 10, 10, 30, 20, 99, 10], [], (), (), 0)
    assert change_cost(changed, usual, tuples=2) == pytest.approx(2.5)
