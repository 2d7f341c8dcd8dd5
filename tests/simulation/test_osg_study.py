"""OSG's settings, on streams short enough for a test. The figures themselves are what ``tailrace reproduce`` is for."""

from __future__ import annotations

import pytest

from tailrace.sim.osg_study import (
    AFTER,
    BEFORE,
    Setting,
    change_model,
    figure_settings,
    policies,
    recovery_tuples,
    run_cell,
    run_change,
    windowed_ms,
)
from tailrace.sim.report import Report


def test_the_paper_s_sweeps() -> None:
    assert list(figure_settings(9)) == list(range(2, 21))
    assert figure_settings(6)[1.05].over_provisioning == 1.05
    assert all(setting.tuples == 100_000 for figure in range(4, 11) for setting in figure_settings(figure).values())
    assert figure_settings(7, Setting(tuples=10))[0.1] == Setting(low_ms=0.1, high_ms=0.1, tuples=10)
    with pytest.raises(ValueError, match="not a sweep of the paper: figure=11"):
        figure_settings(11)


def test_full_knowledge_has_a_speed_up_of_more_than_two_where_tasks_are_just_enough() -> None:
    cell = run_cell(Setting(over_provisioning=1.03, tuples=40_000), ["full_knowledge", "pull", "least_work"], 1, 1)
    assert 2 < cell["full_knowledge"]["speedup"] < 5
    assert cell["pull"]["mean_ms"] <= 1.01 * cell["full_knowledge"]["mean_ms"]
    assert cell["least_work"]["mean_ms"] <= 1.05 * cell["full_knowledge"]["mean_ms"]


def test_a_cell_is_a_function_of_its_arguments() -> None:
    setting = Setting(tuples=25_000)
    first = run_cell(setting, ["osg"], 1, 1)
    assert first == run_cell(setting, ["osg"], 1, 1)
    assert first != run_cell(setting, ["osg"], 2, 1)
    assert first != run_cell(setting, ["osg"], 1, 2), "other hash functions"
    assert set(policies(setting, 0)) >= {"shuffle", "osg", "osg_mended", "least_work", "pull", "full_knowledge"}


def test_where_all_tuples_cost_the_same_nothing_can_be_gained() -> None:
    cell = run_cell(figure_settings(7, Setting(tuples=5_000))[0.1], ["full_knowledge", "osg"], 1, 1)
    assert cell["full_knowledge"]["speedup"] == cell["osg"]["speedup"] == pytest.approx(1.0)


def test_the_sums_of_osg_ignore_idle_time_and_that_is_what_costs_it() -> None:
    """The ablation: with time to spare, the paper's sums are worse than round robin, and moments are better."""
    names = ["osg", "osg_idle_counts", "osg_mended"]
    cells = [run_cell(Setting(over_provisioning=1.05, tuples=60_000), names, stream, stream) for stream in range(3)]
    literal, idle, mended = (sum(cell[name]["speedup"] for cell in cells) / len(cells) for name in names)
    assert literal < 1 < idle < mended


@pytest.mark.parametrize("name", ["osg", "osg_mended"])
def test_several_senders_do_not_overshoot(name: str) -> None:
    """When each of four made up for the imbalance of all, latencies grew to minutes."""
    assert run_cell(Setting(over_provisioning=1.05, tuples=60_000, senders=4), [name], 1, 1)[name]["speedup"] > 0.5


def test_figure_11_changes_speeds_in_the_middle() -> None:
    model = change_model(Setting(tuples=4_000), 1)
    assert [tuple(slow.factor for slow in node.slowdowns) for node in model.nodes] == list(
        zip(BEFORE, AFTER, strict=True)
    )
    series = run_change(["pull", "shuffle"], 1, 1, Setting(tuples=4_000))
    assert [len(points) for points in series.values()] == [4_000, 4_000]


def test_means_over_a_window() -> None:
    report = Report("p", 0, [0, 0, 0], [1_000_000, 3_000_000, 5_000_000], [], (), (), 0)
    assert windowed_ms(report, 2) == [1.0, 2.0, 4.0]


@pytest.mark.parametrize(
    ("after", "expected"),
    [([12.0] * 60, 0), ([12.0] * 10 + [40.0] * 20 + [12.0] * 30, 30), ([40.0] * 60, 60)],
    ids=["undisturbed", "disturbed for a while", "to the end"],
)
def test_recovery(after: list[float], expected: int) -> None:
    assert recovery_tuples([15.0] * 60 + after, [10.0] * 120, window=4) == expected
