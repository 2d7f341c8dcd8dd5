"""Sweeps on Spark: results as computed by hand, nothing run twice, nothing lost to an interruption."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from tailrace.cli import common
from tailrace.errors import TailraceError
from tailrace.version import VERSION
from tailrace_research.__main__ import main
from tailrace_research.reproduce.hone.study import HONE, SCHEDULERS, run_cell
from tailrace_research.reproduce.intervals import student_t
from tailrace_research.reproduce.run import reproduce
from tailrace_research.reproduce.study import Cell, Study
from tailrace_research.reproduce.sweep import PROVENANCE, Sweep, aggregate, run_sweep

POINTS = [(10, 500), (10, 900), (10, 1_000), (20, 1_000), (20, 500), (100, 1_000)]
"""The least that all figures need."""


def few_cells(streams: int, seeds: int) -> list[Cell]:
    return [
        dict(zip(HONE.parameters, (queues, rate, scheduler, stream, 0), strict=True))
        for queues, rate in POINTS
        for scheduler in SCHEDULERS
        for stream in range(streams)
    ]


def small_study() -> Study:
    return replace(HONE, figures=tuple(replace(figure, cells=few_cells) for figure in HONE.figures))


def sweep_in(folder: Path, **changes: Any) -> Sweep:
    whole = Sweep(HONE.parameters, HONE.measures, run_cell, "abc", str(folder))
    return replace(whole, **changes)


def cells(rates: Sequence[int], streams: int) -> list[Cell]:
    return [
        dict(zip(HONE.parameters, (10, rate, scheduler, stream, 0), strict=True))
        for rate in rates
        for scheduler in ("lbf", "round_robin_paper")
        for stream in range(streams)
    ]


def silent(done: int, total: int, seconds: float) -> None:
    pass


@pytest.mark.slow
def test_a_study_from_grid_to_report(spark: SparkSession, tmp_path: Path) -> None:
    said: list[str] = []
    study = small_study()

    def run(*figures: str) -> dict[str, Any]:
        return reproduce(
            spark,
            study,
            [study.figure(name) for name in figures],
            streams=2,
            seeds=1,
            cells_folder=str(tmp_path / "cells"),
            results=tmp_path / "results",
            say=said.append,
            progress=silent,
        )

    found = run("6", "7", "8")
    assert found["cells_run"] == len(few_cells(2, 1))
    assert (found["study"], found["version"], found["code"]) == ("hone", VERSION, study.fingerprint())

    def reductions(measure: str, against: str, rate: int) -> list[float]:
        asked = [dict(zip(HONE.parameters, (10, rate, "lbf", stream, 0), strict=True)) for stream in range(2)]
        return [1 - run_cell(one)[measure] / run_cell({**one, "scheduler": against})[measure] for one in asked]

    by_hand = reductions("mean_delay_us", "round_robin_paper", 500)
    best = max((reductions("mean_delay_us", "round_robin_paper", rate) for rate in (500, 900, 1_000)), key=fmean)
    assert found["mean_delay_reduction"] == pytest.approx(fmean(best))
    half = student_t(2) * stdev(best) / 2**0.5
    assert found["mean_delay_reduction_high"] - found["mean_delay_reduction"] == pytest.approx(half)
    assert 0.85 < fmean(by_hand) < 0.95
    assert abs(found["mean_delay_reduction_work_conserving"]) < 0.001
    assert found["p999_delay_vs_fifo"] == pytest.approx(1 - fmean(reductions("p999_delay_us", "fifo", 900)))
    assert found["jain_factor_best"] <= 10
    names = {file.name for file in (tmp_path / "results").iterdir()}
    assert {f"figure{name}.csv" for name in (6, 7, 8)} <= names
    assert {"figure6a.svg", "figure6b.svg", "figure7a.svg", "figure7b.svg", "figure8a.svg", "figure8c.svg"} <= names
    assert any("below the paper's round robin, at best" in line for line in said)

    another_stream = [{**cell, "stream": 2} for cell in few_cells(1, 1)[:10]]
    assert run_sweep(spark, sweep_in(tmp_path / "cells", code=found["code"]), another_stream, silent) == 10
    again = run("8")
    assert again["cells_run"] == 0, "nothing is run again"
    assert again["mean_delay_reduction"] == found["mean_delay_reduction"], "a smaller run sees its own cells only"


def test_an_interrupted_sweep_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    sweep = sweep_in(tmp_path / "cells")
    grid = cells([500, 600, 700], streams=8)
    seen: list[tuple[int, int]] = []

    def interrupt(done: int, total: int, seconds: float) -> None:
        seen.append((done, total))
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_sweep(spark, sweep, grid, interrupt)
    (_, (kept, total)) = seen
    assert 0 < kept < total == len(grid)
    counts: list[int] = []
    assert run_sweep(spark, sweep, grid, lambda done, total, seconds: counts.append(done)) == total - kept
    assert counts[0] == kept
    assert counts == sorted(counts)
    assert counts[-1] == total
    rows = aggregate(
        spark, sweep, grid, "SELECT count(*) AS n, count(DISTINCT stream) AS streams FROM cells", [(2, 1.0)]
    )
    assert rows == [{"n": total, "streams": 8}]


def test_results_carry_their_provenance(spark: SparkSession, tmp_path: Path) -> None:
    sweep = sweep_in(tmp_path / "cells")
    run_sweep(spark, sweep, cells([500], streams=1), silent)
    stored = spark.read.parquet(str(tmp_path / "cells"))
    assert stored.columns == [*HONE.parameters, *HONE.measures, *PROVENANCE, "code"]
    (row, _) = stored.collect()
    assert (row["version"], row["code"], row["python"]) == (VERSION, "abc", sys.version.split()[0])
    assert row["cpu_s"] > 0
    expected = run_cell({name: row[name] for name in HONE.parameters})
    assert {name: row[name] for name in HONE.measures} == expected


def test_results_of_other_code_do_not_count(spark: SparkSession, tmp_path: Path) -> None:
    sweep = sweep_in(tmp_path / "cells")
    grid = cells([500], streams=1)
    assert run_sweep(spark, sweep, grid, silent) == 2
    assert run_sweep(spark, sweep, grid, silent) == 0
    assert run_sweep(spark, replace(sweep, code="other"), grid, silent) == 2


def test_a_cell_that_fails_is_named(spark: SparkSession, tmp_path: Path) -> None:
    sweep = sweep_in(tmp_path / "cells", run_cell=itemgetter("nothing"))
    with pytest.raises(TailraceError) as caught:
        run_sweep(spark, sweep, cells([500], streams=1)[:1], silent)
    assert str(caught.value) == (
        "a cell failed: cell={'queues': 10, 'rate': 500, 'scheduler': 'lbf', 'stream': 0, 'seed': 0} "
        "KeyError: 'nothing'"
    )


def test_the_command(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One stream has no interval, and says so by leaving it out."""

    @contextmanager
    def session(*asked: Any) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(common, "session", session)
    monkeypatch.setattr("tailrace_research.reproduce.hone.study.HONE", small_study())
    monkeypatch.chdir(tmp_path)
    arguments = ["reproduce", "hone", "--figure", "8", "--streams", "1", "--json", "found.json"]
    done = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "Figure 8: mean queueing delay of the tuples that left\n" in done.stdout
    assert "      0 of 30 simulations, 0 s\n" in done.stderr
    assert "     30 of 30 simulations, " in done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert 0.8 < found["mean_delay_reduction"] < 0.95
    assert (found["streams"], found["cells_run"]) == (1, 30)
    assert "mean_delay_reduction_low" not in found
    results = tmp_path / "reproduce" / "hone" / "results"
    assert sorted(file.name for file in results.iterdir()) == [
        "figure8.claims.csv",
        "figure8.csv",
        "figure8a.svg",
        "figure8b.svg",
        "figure8c.svg",
    ]
