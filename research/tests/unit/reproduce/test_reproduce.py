"""Studies without Spark: grids, cells that are the same everywhere, intervals, and how claims are shown."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

import tailrace
from tailrace.chart import Chart, Point, Series
from tailrace.errors import OptionError
from tailrace_research.reproduce.fingerprint import code_below
from tailrace_research.reproduce.hone.study import HONE, QUEUES, RATES, SCHEDULERS, run_cell
from tailrace_research.reproduce.intervals import MOST, student_t, student_t_table
from tailrace_research.reproduce.osg.best import best_policy
from tailrace_research.reproduce.osg.simulations import SETTING, Setting, policies
from tailrace_research.reproduce.osg.study import OSG
from tailrace_research.reproduce.report import flat_claims, render_claims, write_figure
from tailrace_research.reproduce.study import Claim, Figure, merged_cells
from tailrace_research.reproduce.testbed.study import live_study

SOURCE = Path(tailrace.__file__).parent
CLAIMS = [
    Claim("gain", "below theirs, at best", "%", 0.833, 0.8512, 0.84, 0.86, "10 queues"),
    Claim("factor", "better balanced", "x", None, 2.0),
]
FIGURE = Figure(
    "6",
    "largest backlog",
    lambda streams, seeds: [],
    "",
    lambda rows: CLAIMS,
    lambda rows: {"a": Chart("t", "x", "y", [Series("s", [Point(row["x"], row["y"]) for row in rows])])},
)


def cell(scheduler: str, rate: int = 950, stream: int = 0, queues: int = 10) -> dict[str, Any]:
    return {"queues": queues, "rate": rate, "scheduler": scheduler, "stream": stream, "seed": 0}


# -- Hone


def test_the_grid_covers_both_sweeps_of_the_paper() -> None:
    assert (RATES[0], RATES[-1]) == (500, 5_000)
    assert set(range(500, 5_001, 500)) <= set(RATES)
    assert list(QUEUES) == [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
    points = {(cell["queues"], cell["rate"]) for cell in HONE.figure("6").cells(1, 1)}
    assert points == {(10, rate) for rate in RATES} | {(queues, 1_000) for queues in QUEUES}


@pytest.mark.parametrize("figure", HONE.figures, ids=lambda figure: figure.name)
def test_a_grid_has_no_cell_twice(figure: Figure) -> None:
    cells = figure.cells(3, 2)
    assert len({tuple(cell.values()) for cell in cells}) == len(cells)
    assert len(cells) == 3 * 2 * len(figure.cells(1, 1))
    assert all(list(cell) == list(HONE.parameters) for cell in cells)


def test_figures_share_their_cells() -> None:
    six, eight = HONE.figure("6"), HONE.figure("8")
    assert merged_cells([six, eight], 2, 1) == six.cells(2, 1)
    assert len(merged_cells(HONE.figures, 2, 1)) > len(six.cells(2, 1))


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_cell_gives_every_measure_of_its_type(scheduler: str) -> None:
    measured = run_cell(cell(scheduler))
    assert list(measured) == list(HONE.measures)
    for name, kind in HONE.measures.items():
        if kind != list[float]:
            assert type(measured[name]) is kind, name
    assert len(measured["jain"]) == 9


def test_a_cell_is_the_same_in_every_process() -> None:
    asked = cell("lbf", stream=4)
    module = "tailrace_research.reproduce.hone.study"
    script = f"import json; from {module} import run_cell; print(json.dumps(run_cell({asked!r})))"
    for hash_seed in ("1", "random"):
        there = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert there.stdout == json.dumps(run_cell(asked)) + "\n"


def test_streams_differ_and_schedulers_share_them() -> None:
    one, other = (run_cell(cell("fifo", stream=stream)) for stream in (0, 1))
    assert one["mean_delay_us"] != other["mean_delay_us"]
    assert run_cell(cell("lbf"))["left_behind"] == run_cell(cell("round_robin"))["left_behind"]


def test_what_lbf_gains_and_against_whom() -> None:
    """At their best points, the paper's figures hold, and nothing of the mean delay against who wastes no slot."""

    def reduction(measure: str, against: str, rate: int) -> float:
        return fmean(
            1 - run_cell(cell("lbf", rate, stream))[measure] / run_cell(cell(against, rate, stream))[measure]
            for stream in range(6)
        )

    assert reduction("max_backlog", "round_robin_paper", 950) > 0.8
    assert reduction("mean_delay_us", "round_robin_paper", 500) > 0.88
    assert reduction("max_backlog", "round_robin", 950) > 0.4
    assert abs(reduction("mean_delay_us", "round_robin", 500)) < 0.001
    assert reduction("p999_delay_us", "fifo", 900) < -0.5


def test_no_such_figure() -> None:
    with pytest.raises(OptionError) as caught:
        HONE.figure("9")
    assert str(caught.value) == "no such figure: study=hone figure='9': did you mean one of 6, 7, 8?"


def test_a_fingerprint_is_of_the_code() -> None:
    assert HONE.fingerprint() == HONE.fingerprint()
    assert replace(HONE, modules=OSG.modules).fingerprint() != HONE.fingerprint()


def test_the_fingerprint_covers_what_a_cell_imports() -> None:
    """Results of changed code must not pass for new ones; a chart of the same results may change."""
    below = code_below(OSG.modules)
    assert below >= {
        "tailrace.sim.load.stage",
        "tailrace.sim.load.models.service",
        "tailrace.policy.groupings.load.sketch",
        "tailrace.policy.hashing",
    }
    assert {name for name in below if name.startswith("tailrace_research")} == {*OSG.modules}
    assert "tailrace_research.reproduce.hone.slots" in code_below(HONE.modules)
    assert "tailrace_research.bench.workloads.content" in code_below(live_study("osg").modules)
    assert "tailrace_research.reproduce.hone.figures" not in code_below(HONE.modules)


# -- OSG


def test_the_fingerprint_covers_osg_s_policies() -> None:
    """These come through the package, by a name that says nothing of the module."""
    groupings = policies(Setting(), 0).values()
    assert {type(grouping).__module__ for grouping in groupings} <= code_below(OSG.modules)


@pytest.mark.parametrize("figure", OSG.figures, ids=lambda figure: figure.name)
def test_a_grid_of_osg_has_no_cell_twice(figure: Figure) -> None:
    cells = figure.cells(3, 2)
    assert len({tuple(cell.values()) for cell in cells}) == len(cells)
    assert all(list(cell) == list(OSG.parameters) for cell in cells)
    for cell in cells:
        if not cell["policy"].startswith("osg"):
            assert (cell["epsilon"], cell["seed"]) == (0.05, 0), "nothing is run again for what changes nothing"
        if cell["policy"] == "full_knowledge":
            assert cell["senders"] == 1


def test_osg_s_figures_share_their_cells() -> None:
    four, five = OSG.figure("4"), OSG.figure("5")
    assert merged_cells([four, five], 2, 1) == four.cells(2, 1)
    six, nine = (len(OSG.figure(name).cells(2, 1)) for name in ("6", "9"))
    together = len(merged_cells([OSG.figure("6"), OSG.figure("9")], 2, 1))
    assert max(six, nine) < together < six + nine, "k = 5 at 100% is in both"


def test_every_point_has_the_streams_of_what_it_is_held_against() -> None:
    """A speed-up needs round robin on the same stream, and a ratio Full Knowledge."""
    for name in ("4", "6", "7", "8", "9", "10", "late", "best"):
        streams: dict[tuple[Any, ...], dict[str, set[int]]] = {}
        for one in OSG.figure(name).cells(5, 1):
            point = tuple(one[key] for key in SETTING if key not in ("epsilon", "senders"))
            streams.setdefault(point, {}).setdefault(one["policy"], set()).add(one["stream"])
        for by_policy in streams.values():
            needed = ("full_knowledge",) if name == "best" else ("full_knowledge", "shuffle")
            for policy, found in by_policy.items():
                assert all(found <= by_policy[base] for base in needed), (name, policy)


def sweep_row(policy: str, x: float, **values: float) -> dict[str, Any]:
    around = {
        f"{name}{end}": value + shift
        for name, value in values.items()
        for end, shift in (("", 0.0), ("_low", -0.1), ("_high", 0.1), ("_min", -0.2), ("_max", 0.2))
    }
    return {"x": x, "policy": policy, "runs": 5, **around}


def test_claims_of_figure_6() -> None:
    speedups = {"osg": 0.9, "osg_pooled": 1.0, "osg_idle_counts": 1.1, "osg_published": 1.2, "osg_mended": 1.3}
    speedups |= {"full_knowledge": 3.0, "pull": 3.1, "least_work": 2.9}
    rows = [
        sweep_row(policy, float(percent), speedup=value - abs(percent - 104) / 100)
        for policy, value in speedups.items()
        for percent in range(95, 116)
    ]
    claims = {claim.key: claim for claim in OSG.figure("6").claims(rows)}
    flat = flat_claims(claims.values())
    assert flat["osg_speedup_by_the_text"] == pytest.approx(0.86)
    assert (flat["osg_speedup_low"], flat["osg_speedup_high"]) == (pytest.approx(1.06), pytest.approx(1.26))
    assert flat["osg_speedup_pooled"] == pytest.approx(0.96)
    assert flat["osg_speedup_idle_counts"] == pytest.approx(1.06)
    assert flat["osg_speedup"] == pytest.approx(1.16)
    assert flat["osg_speedup_mended"] == pytest.approx(1.26)
    assert flat["osg_speedup_least_100_108_mended"] == pytest.approx(1.26)
    assert flat["full_speedup_peak"] == pytest.approx(3.0)
    assert claims["full_speedup_peak"].where == "104%; 5 streams, runs 2.80..3.20"
    assert claims["osg_speedup"].difference == pytest.approx(1.16 - 1.23)


def test_claims_of_figure_10() -> None:
    rows = [
        sweep_row(policy, epsilon, speedup=value)
        for policy in ("osg", "osg_published", "osg_mended")
        for epsilon, value in ((1.0, 1.0), (0.09, 1.1), (0.05, 1.3), (0.001, 1.728))
    ]
    flat = flat_claims(OSG.figure("10").claims(rows))
    assert flat["osg_growth_per_decade"] == pytest.approx(0.2)
    assert flat["osg_speedup_least_run"] == pytest.approx(0.9)


def best_row(policy: str, senders: int, latency_us: float, percent: float, mean: float, p99: float) -> dict[str, Any]:
    row = {"policy": policy, "senders": senders, "latency_us": latency_us, "percent": percent, "alpha": 1.0, "runs": 3}
    for name, value in (("mean_vs_full", mean), ("p99_vs_full", p99)):
        row |= {name: value, f"{name}_low": value - 0.01, f"{name}_high": value + 0.01}
    return row


def test_the_best_policy_is_the_one_whose_worst_cell_is_best() -> None:
    worst = {"pull": (1.01, 0.99), "least_work": (1.2, 0.9), "osg_mended": (0.5, 0.5), "full_knowledge": (1.0, 1.0)}
    rows = [
        best_row(policy, senders, 0.0, percent, mean + more, p99 + more)
        for policy, (mean, p99) in worst.items()
        for senders in (1, 4)
        for percent, more in ((100, 0.0), (105, 0.5))
    ]
    rows += [best_row("pull", senders, 100.0, percent, 0.95, 0.9) for senders in (1, 4) for percent in (100, 105)]
    assert best_policy(rows) == "pull"
    claims = {claim.key: claim for claim in OSG.figure("best").claims(rows)}
    assert claims["best_mean_vs_full_min"].ours == 1.01
    assert claims["best_p99_vs_full_min_4"].ours == 0.99
    assert claims["best_p99_vs_full_min_4"].text.startswith("pull, p99 of Full Knowledge over its own")
    assert claims["best_p99_vs_full_min_4"].where == "100%, alpha 1, 4 senders; 3 streams"
    assert claims["pull_mean_vs_full_min_links"].ours == 0.95
    assert claims["least_work_p99_vs_full_min"].ours == 0.9
    assert "pull_mean_vs_full_min" not in claims, "it is the best"
    better = [row | {"mean_vs_full": 9.0, "p99_vs_full": 9.0} if row["policy"] == "least_work" else row for row in rows]
    assert best_policy(better) == "least_work"


# -- intervals


@pytest.mark.parametrize(
    ("samples", "expected"), [(2, 12.706), (3, 4.303), (4, 3.182), (5, 2.776), (10, 2.262), (30, 2.045), (1000, 1.962)]
)
def test_students_t(samples: int, expected: float) -> None:
    assert student_t(samples) == pytest.approx(expected, abs=0.004)


def test_the_table_of_t_begins_where_an_interval_can() -> None:
    table = student_t_table()
    assert [samples for samples, _ in table] == list(range(2, MOST + 1))


# -- reports


def test_claims_as_a_table() -> None:
    assert render_claims(FIGURE, CLAIMS) == (
        "Figure 6: largest backlog\n"
        "claim                  theirs  ours [95%]           difference   at\n"
        "below theirs, at best  83.3 %  85.1 % [84.0..86.0]  +1.8 points  10 queues\n"
        "better balanced        -       2.00x                -"
    )


def test_claims_as_flat_json() -> None:
    assert flat_claims(CLAIMS) == {"gain": 0.8512, "gain_low": 0.84, "gain_high": 0.86, "factor": 2.0}


def test_the_files_of_a_figure(tmp_path: Path) -> None:
    rows = [{"x": 1, "y": 1 / 3}, {"x": 2, "y": None}]
    drawn = replace(FIGURE, charts=lambda rows: FIGURE.charts(rows[:1]))
    files = write_figure(drawn, rows, CLAIMS, tmp_path / "new" / "folder")
    assert [file.name for file in files] == ["figure6.csv", "figure6.claims.csv", "figure6a.svg"]
    assert files[0].read_text() == "x,y\n1,0.333333\n2,\n"
    with files[1].open() as lines:
        first, second = csv.DictReader(lines)
    assert (first["key"], first["ours"], first["difference"]) == ("gain", "0.8512", "0.0182")
    assert (second["theirs"], second["low"], second["difference"]) == ("", "", "")
    assert files[2].read_text().startswith("<svg ")
