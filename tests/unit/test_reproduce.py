"""Studies without Spark: grids, cells that are the same everywhere, intervals, and how claims are shown."""

from __future__ import annotations

import csv
import json
import os
import re
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
from tailrace.reproduce.hone import HONE, QUEUES, RATES, SCHEDULERS, run_cell
from tailrace.reproduce.intervals import MOST, student_t, student_t_table
from tailrace.reproduce.report import flat_claims, render_claims, write_figure
from tailrace.reproduce.study import Claim, Figure, merged_cells

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
    script = f"import json; from tailrace.reproduce.hone import run_cell; print(json.dumps(run_cell({asked!r})))"
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
    assert replace(HONE, modules=HONE.modules[1:]).fingerprint() != HONE.fingerprint()


def test_the_fingerprint_covers_what_a_cell_imports() -> None:
    """Results of changed code must not pass for new ones: whatever they import is listed too."""
    for name in HONE.modules:
        source = Path(SOURCE, *name.split(".")[1:]).with_suffix(".py").read_text("utf-8")
        imported = re.findall(r"^from (tailrace\.(?:policy|sim)\.\w+) import", source, re.MULTILINE)
        assert set(imported) <= set(HONE.modules), name


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
