"""Testbed figures without workers: their trials and claims, what is made of samples, and what is kept of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tailrace import OptionError
from tailrace.policy.groupings.osg import Osg
from tailrace_research.bench.turns import Figures
from tailrace_research.bench.workloads import Outcome
from tailrace_research.bench.workloads.followers import follower_graph
from tailrace_research.bench.workloads.working import Execution
from tailrace_research.reproduce.du import testbed as du_testbed
from tailrace_research.reproduce.du.figures import SHARED_LOAD
from tailrace_research.reproduce.intervals import median_interval
from tailrace_research.reproduce.osg import testbed as osg_testbed
from tailrace_research.reproduce.study import Claim, Row
from tailrace_research.reproduce.testbed.kept import Kept
from tailrace_research.reproduce.testbed.run import START_S, LiveSizes, losses, reproduce_live
from tailrace_research.reproduce.testbed.study import LiveFigure, LiveStudy, Trial, live_studies, live_study

FIGURES = [(study, figure) for study in map(live_study, live_studies()) for figure in study.figures]
LIVE = pytest.mark.parametrize(("study", "figure"), FIGURES, ids=lambda value: getattr(value, "name", ""))

MEASURES = {
    "du": ("mean_ms", "p50_ms", "p90_ms", "p99_ms", "p999_ms", "work_s", "wait_ms"),
    "hone": ("mean_ms", "word_ms", "slowest_ms", "growth", "largest", "blocked_ms", "task_0_ms", "task_1_ms"),
    "osg": ("mean_ms", "first_choice", "change_cost", "until_250_ms", "until_500_ms"),
}
REPEATS = ([4.0, 5.0, 6.0], [2.0, 2.0, 4.5])  # of the default, and of any technique


def made_up(study: LiveStudy, figure: LiveFigure) -> list[Row]:
    samples = {
        trial.key(measure): REPEATS[trial.technique != study.default]
        for trial in figure.trials
        for measure in MEASURES[study.study]
    }
    return study.rows(samples)


# --- the figures


@LIVE
def test_every_claim_finds_its_rows_and_every_default_has_a_turn(study: LiveStudy, figure: LiveFigure) -> None:
    assert len(set(figure.trials)) == len(figure.trials)
    assert {trial[:2] for trial in figure.trials} == {t[:2] for t in figure.trials if t.technique == study.default}
    rows = made_up(study, figure)
    claims = figure.claims(rows)
    assert claims
    assert len({claim.key for claim in claims}) == len(claims)
    assert all(claim.key.startswith("testbed_") for claim in claims)
    assert all(claim.low is not None and claim.low <= claim.ours <= claim.high for claim in claims)  # type: ignore[operator]
    figure.charts(rows)


def test_du_has_theirs_beside_ours() -> None:
    study = du_testbed.TESTBED
    claims = {claim.key: claim for figure in study.figures for claim in figure.claims(made_up(study, figure))}
    cut = claims["testbed_table2_du_timeout_p99_cut_30"]
    assert (cut.theirs, cut.ours) == (pytest.approx(1 - 24.1 / 29.2), 0.5)  # 2 of 4, 2 of 5, 4.5 of 6
    assert claims["testbed_shared_queue_delay_shared_ms"].theirs == 0.516


def test_osg_has_theirs_beside_ours() -> None:
    study = osg_testbed.TESTBED
    claims = {claim.key: claim for claim in study.figure("14").claims(made_up(study, study.figure("14")))}
    mean = claims["testbed_figure14_osg_speedup"]
    assert (mean.theirs, mean.ours) == (1.5, 2.0)
    assert claims["testbed_figure14_pull_speedup"].theirs is None
    assert claims["testbed_figure14_osg_followers_speedup_4"].theirs is None
    assert not [trial for trial in study.figure("13").trials if trial.technique == osg_testbed.FOLLOWERS]


def test_osg_by_followers_reads_them_off_tweets() -> None:
    workload = osg_testbed.workload_of(Trial("reach", 2, osg_testbed.FOLLOWERS), 0, 0.01)
    grouping = osg_testbed.POLICIES[osg_testbed.FOLLOWERS](workload)
    followers = {len(graph) for graph in follower_graph(1)}
    assert isinstance(grouping, Osg) and callable(grouping.key)
    keys = [grouping.key((0, 0, body)) for body in workload.bodies]
    assert keys == [followers for _, followers in workload.bodies] and set(keys) <= followers


@pytest.mark.parametrize("experiment", du_testbed.EXPERIMENTS)
def test_a_stream_follows_from_point_and_repeat(experiment: str) -> None:
    of = du_testbed.EXPERIMENTS[experiment]
    stream = of.workload(0.5, 0, 0.1)
    assert stream == of.workload(0.5, 0, 0.1)
    assert stream.due_ns != of.workload(0.5, 1, 0.1).due_ns
    assert stream.due_ns[-1] / 1e9 == pytest.approx(of.seconds * 0.1, rel=0.5)


def test_osg_leaves_round_robin_with_the_first_tuple_that_goes_elsewhere() -> None:
    tasks = [2, 3, 4, 0, 1, 2, 3, 3, 0, 1]
    executions = [Execution("work", task, root, 1, 0, 1) for root, task in enumerate(tasks)]
    assert osg_testbed.first_choice(Outcome([], executions, {})) == 7
    assert osg_testbed.first_choice(Outcome([], executions[:7], {})) == 7  # never


def test_a_change_costs_what_tuples_take_longer_after_it() -> None:
    half = osg_testbed.AFTERMATH + 100
    assert osg_testbed.change([7] * 100 + [2] * (half - 100) + [3] * half) == {"change_cost": 1.5}


# --- what is made of samples


def test_rows_have_medians_and_cuts_of_each_repeat() -> None:
    study = du_testbed.TESTBED
    usual, technique = (Trial("bolt", SHARED_LOAD, name) for name in ("none", "shared_queue"))
    rows = study.rows({usual.key("p99_ms"): [10.0, 20.0, 30.0], technique.key("p99_ms"): [5.0, 15.0, 33.0]})
    row = next(row for row in rows if row["technique"] == "shared_queue")
    assert (row["at"], row["runs"], row["value"], row["cut"]) == (SHARED_LOAD, 3, 15.0, 0.25)  # of 0.5, 0.25, -0.1
    assert row["cut_low"] < 0.25 < row["cut_high"]
    alone = study.rows({technique.key("p99_ms"): [5.0]})[0]
    assert (alone["value"], alone["value_low"], alone["cut"]) == (5.0, None, None)


@pytest.mark.parametrize("samples", [[0.0, 0.0, 9.0], [1.0, 1.0, 1.0, 1.0, 100.0], [0.0, 0.0, 0.0, 5.0, 5.0, 5.1]])
def test_a_median_of_up_to_six_is_within_its_interval(samples: list[float]) -> None:
    middle, low, high = median_interval(samples)
    assert low is not None
    assert high is not None
    assert low <= middle <= high


def test_losses_are_named() -> None:
    figure = du_testbed.TESTBED.figure("4")
    row = {"measure": "p99_ms", "experiment": "sleeping_bolt", "at": 0.36, "technique": "du_timeout", "cut": -0.125}
    assert losses(figure, [row, {**row, "technique": "shared_queue", "cut": 0.1}]) == [
        "Worse than the default by p99: du_timeout at sleeping_bolt 0.36 (-12.5 %)."
    ]
    assert losses(figure, [{**row, "cut": None}]) == ["Nowhere worse by p99."]


def test_unknown_names_are_refused_with_those_there_are() -> None:
    with pytest.raises(OptionError, match=r"no testbed figures: study=turbostream: did you mean one of du, .*osg"):
        live_study("turbostream")
    with pytest.raises(
        OptionError, match="no such testbed figure: study=osg figure='11': did you mean one of 12, 13, 14"
    ):
        osg_testbed.TESTBED.figure("11")


@pytest.mark.parametrize("sizes", [{"repeats": 0}, {"length": 0.0}])
def test_sizes_of_nothing_are_refused(sizes: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="nothing to measure: repeats="):
        LiveSizes(**sizes)


# --- runs that are kept


class Recorded:
    """A study of two trials, whose measurements are their turns; stops, as Ctrl-C does, before a given one."""

    def __init__(self) -> None:
        self.turns: list[tuple[str, int]] = []
        self.stop_at: int | None = None

    def measure(self, trial: Trial, repeat: int, length: float) -> Figures:
        if len(self.turns) == self.stop_at:
            raise KeyboardInterrupt
        self.turns.append((trial.technique, repeat))
        return {"p99_ms": float(len(self.turns))}

    def study(self) -> LiveStudy:
        def claims(rows: Sequence[Row]) -> list[Claim]:
            return [Claim("p99_cut", "p99", "%", None, rows[-1]["cut"])]

        trials = [Trial("one", 0.5, technique) for technique in ("none", "trick")]
        figure = LiveFigure("7", "a figure", trials, claims, lambda rows: {}, ["Scaled to nothing."])
        return LiveStudy("toy", "none", self.measure, lambda trial: 11 - START_S, [figure], ("tailrace.clock",))


def run(recorded: Recorded, folder: Path, repeats: int, told: list[str]) -> dict[str, Any]:
    study = recorded.study()
    sizes = LiveSizes(repeats)
    cells, results = folder / "cells", folder / "results"
    return reproduce_live(study, study.figures, sizes, cells=cells, results=results, say=told.append, tell=told.append)


def test_whole_repeats_survive_an_interrupt(tmp_path: Path) -> None:
    recorded, told = Recorded(), []  # type: ignore[var-annotated]
    recorded.stop_at = 3
    with pytest.raises(KeyboardInterrupt):
        run(recorded, tmp_path, 2, told)
    assert recorded.turns == [("none", 0), ("trick", 0), ("none", 1)]
    recorded.stop_at = None
    found = run(recorded, tmp_path, 2, told)
    assert recorded.turns[3:] == [("none", 1), ("trick", 1)]
    assert found["p99_cut"] == pytest.approx((1 - 2 / 1 + 1 - 5 / 4) / 2)
    assert (found["study"], found["repeats"]) == ("toy", 2)
    run(recorded, tmp_path, 1, told)
    assert len(recorded.turns) == 5
    assert {file.name for file in (tmp_path / "results").iterdir()} == {"figure7.csv", "figure7.claims.csv"}


def test_each_turn_says_what_is_left(tmp_path: Path) -> None:
    told: list[str] = []
    run(Recorded(), tmp_path, 3, told)
    assert told[0] == "figure7, repeat 1: about 66 s left in all"
    assert [line.rpartition("; ")[2] for line in told if "/2 " in line] == [
        f"about {left} s left" for left in (55, 44, 33, 22, 11, 0)
    ]
    assert "Scaled to nothing." in told
    assert "Worse than the default by p99: trick at one 0.5 (-33.3 %)." in told


def test_what_other_code_measured_or_a_crash_cut_short_is_not_kept(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "cells" / "figure7.jsonl", "code", 1.0)
    kept.add(0, {"a": 1.0})
    kept.add(1, {"a": 2.0})
    assert kept.repeats() == {0: {"a": 1.0}, 1: {"a": 2.0}}
    assert replace(kept, code="other").repeats() == replace(kept, length=0.2).repeats() == {}
    kept.file.write_text(kept.file.read_text()[:-5])
    assert kept.repeats() == {0: {"a": 1.0}}
