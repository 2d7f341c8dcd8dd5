"""A testbed figure of each paper, tiny, on real workers; unit/test_reproduce_testbed has what is made of samples."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tailrace_research.__main__ import main
from tailrace_research.reproduce.hone import testbed as hone_testbed
from tailrace_research.reproduce.osg import testbed as osg_testbed
from tailrace_research.reproduce.testbed import run as testbed_run
from tailrace_research.reproduce.testbed.run import LiveSizes, reproduce_live


def test_du_shared_queue_really(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testbed_run, "QUICK", LiveSizes(1, 0.02))
    monkeypatch.chdir(tmp_path)
    arguments = ["reproduce", "du", "--testbed", "--figure", "shared_queue", "--quick", "--json", "found.json"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    found = json.loads(Path("found.json").read_text())
    assert found["testbed_shared_queue_delay_own_ms"] > 0
    assert found["testbed_shared_queue_p99_cut"] < 1
    assert "Scaled to two cores" in done.output
    rows = list(csv.DictReader(Path("reproduce/du_testbed/results/shared_queue.csv").read_text().splitlines()))
    assert {row["technique"] for row in rows} == {"none", "shared_queue"}
    work = {row["technique"]: row["value"] for row in rows if (row["experiment"], row["measure"]) == ("bolt", "work_s")}
    assert work["none"] == work["shared_queue"]  # the same stream, every tuple executed once
    again = CliRunner().invoke(main, arguments)
    assert "1/4" in done.stderr
    assert "1/4" not in again.stderr  # it is kept


def test_osg_change_really(tmp_path: Path) -> None:
    study = osg_testbed.TESTBED
    results = tmp_path / "results"
    found = reproduce_live(
        study,
        [study.figure("12")],
        LiveSizes(1, 0.04),
        cells=tmp_path / "cells",
        results=results,
        say=lambda line: None,
        tell=lambda line: None,
    )
    assert found["testbed_figure12_first_choice"] == int(0.04 * osg_testbed.TUPLES) / osg_testbed.WINDOW  # too short
    assert found["testbed_figure12_pull_speedup"] > 0
    assert {file.name for file in results.iterdir()} == {"figure12.csv", "figure12.claims.csv", "figure12.svg"}


def test_hone_tasks_really(tmp_path: Path) -> None:
    study = hone_testbed.TESTBED
    figure = study.figure("11")
    few = [trial for trial in figure.trials if trial.technique in ("none", "signal_80") and trial.at == 1_170]
    results = tmp_path / "results"
    found = reproduce_live(
        study,
        [replace(figure, trials=few)],
        LiveSizes(1, 0.02),
        cells=tmp_path / "cells",
        results=results,
        say=lambda line: None,
        tell=lambda line: None,
    )
    assert 0 <= found["testbed_figure11_signal_80_gain_1170"] <= 1
    rows = list(csv.DictReader((results / "figure11.csv").read_text().splitlines()))
    means = {row["technique"]: float(row["value"]) for row in rows if row["measure"] == "mean_ms"}
    assert means["signal_80"] > 80 / 4 > 0 < means["none"]  # a task waits for its turn
    assert {file.name for file in results.iterdir()} == {"figure11.csv", "figure11.claims.csv", "figure11a.svg"}
