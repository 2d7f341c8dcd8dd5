"""OSG's study on Spark: what its SQL makes of cells, against sums by hand. Streams are too short to say more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace_research.reproduce.osg.study import OSG
from tailrace_research.reproduce.run import reproduce
from tailrace_research.reproduce.study import Cell, Figure, Study

TUPLES = 1_200


def needed(cell: Cell) -> bool:
    """By any claim, and no more."""
    few = cell["stream"] < 2 and cell["epsilon"] in (1.0, 0.05, 0.001)
    return few and (cell["changes"] or cell["over_provisioning"] == 1.0)


def short(figure: Figure) -> Figure:
    def cells(streams: int, seeds: int) -> Sequence[Cell]:
        return [{**cell, "tuples": TUPLES} for cell in figure.cells(streams, seeds) if needed(cell)]

    return replace(figure, cells=cells)


def small_study() -> Study:
    return replace(OSG, figures=tuple(short(figure) for figure in OSG.figures))


@pytest.mark.soak
def test_osg_from_grid_to_report(spark: SparkSession, tmp_path: Path) -> None:
    study = small_study()
    wanted = [study.figure(name) for name in ("10", "11", "best")]
    found = reproduce(
        spark,
        study,
        wanted,
        streams=2,
        seeds=1,
        cells_folder=str(tmp_path / "cells"),
        results=tmp_path / "results",
        say=lambda line: None,
        progress=lambda done, total, seconds: None,
    )

    def results(figure: str, **asked: Any) -> list[dict[str, Any]]:
        cells = study.figure(figure).cells(2, 1)
        chosen = [cell for cell in cells if asked.items() <= cell.items()]
        return [study.run_cell(cell) | {"stream": cell["stream"]} for cell in sorted(chosen, key=lambda c: c["stream"])]

    def ratios(over: list[dict[str, Any]], under: list[dict[str, Any]], measure: str) -> list[float]:
        """Stream by stream, as many as both have."""
        return [one[measure] / other[measure] for one, other in zip(over, under, strict=False)]

    def speedup(epsilon: float) -> float:
        base = results("10", policy="shuffle")
        return fmean(ratios(base, results("10", policy="osg_mended", epsilon=epsilon), "mean_ms"))

    growth = (speedup(0.001) / speedup(1.0)) ** (1 / 3) - 1
    assert found["osg_growth_per_decade_mended"] == pytest.approx(growth)

    changed = results("11", policy="osg", over_provisioning=1.05)
    assert len(changed) == 2
    assert found["recovery_tuples_osg"] == pytest.approx(fmean(one["recovery_tuples"] for one in changed))
    assert found["change_cost_osg"] == pytest.approx(fmean(one["change_cost"] for one in changed))

    exact = results("best", policy="full_knowledge", over_provisioning=1.0, alpha=2.0, latency_us=0.0)
    four = results("best", policy="least_work", over_provisioning=1.0, alpha=2.0, senders=4)
    rows = (tmp_path / "results" / "best.csv").read_text().splitlines()
    (row,) = (line.split(",") for line in rows if line.startswith("least_work,4,0,100,2,"))
    assert float(row[rows[0].split(",").index("p99_vs_full")]) == pytest.approx(
        fmean(ratios(exact, four, "p99_ms")), rel=1e-4
    )
    names = {file.name for file in (tmp_path / "results").iterdir()}
    assert {"figure10.csv", "figure10.svg", "figure11a.svg", "best_d.svg", "best.claims.csv"} <= names
