"""The study of TurboStream's scheduler on Spark, as far as SQL sums it up: ratios, cuts of zero, pairs of streams.

That a sweep computes its cells is tested elsewhere; here they are there already.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tailrace_research.reproduce.run import reproduce
from tailrace_research.reproduce.study import Cell, Claim, merged_cells
from tailrace_research.reproduce.turbostream.figures import NETWORK_MS, SAME_WORKER_MS
from tailrace_research.reproduce.turbostream.study import COMPARED, TURBOSTREAM, benchmarks, run_cell

ZERO = ("random", 8, "2+1", 1)
"""Two parts that do not talk, and fit the nodes."""

GRAPHS = [("chain", 2, "2+1", 0), ("random", 8, "2+1", 0), ZERO]


def few_graphs(streams: int, seeds: int) -> list[Cell]:
    return [
        dict(zip(TURBOSTREAM.parameters, (family, tasks, 0, nodes, rule, stream, 0), strict=True))
        for family, tasks, nodes, stream in GRAPHS
        for rule in COMPARED
    ]


def few_benchmarks(streams: int, seeds: int) -> list[Cell]:
    return [cell for cell in benchmarks(streams, seeds) if cell["family"] != "sol" or cell["tasks"] == 5]


def test_a_study_from_cells_to_report(spark: SparkSession, tmp_path: Path) -> None:
    figures = [
        replace(TURBOSTREAM.figure("cut"), cells=few_graphs),
        replace(TURBOSTREAM.figure("9"), cells=few_benchmarks),
    ]
    study = replace(TURBOSTREAM, timings=lambda: [Claim("seconds", "of nothing", "", None, 0.5)])
    rows = [{**cell, **run_cell(cell)} for cell in merged_cells(figures, 2, 1)]
    stored = tmp_path / "cells" / f"code={study.fingerprint()}"
    stored.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), stored / "all.parquet")
    said: list[str] = []
    found = reproduce(
        spark,
        study,
        figures,
        streams=2,
        seeds=1,
        cells_folder=str(tmp_path / "cells"),
        results=tmp_path / "results",
        say=said.append,
        progress=lambda done, total, seconds: None,
    )
    assert found["cells_run"] == 0

    def cut(graph: tuple[str, int, str, int], rule: str) -> float:
        family, tasks, nodes, stream = graph
        cell = dict(zip(study.parameters, (family, tasks, 0, nodes, rule, stream, 0), strict=True))
        return float(run_cell(cell)["cut"])

    assert cut(ZERO, "optimal") == cut(ZERO, "coarse_grained") == 0 < cut(ZERO, "round_robin")
    ratios = [cut(graph, "coarse_grained_paper") / cut(graph, "optimal") for graph in GRAPHS[:2]]
    assert found["cut_vs_optimum_max_paper"] == pytest.approx(max(ratios))
    assert found["cut_vs_optimum_max"] == pytest.approx(1.0)
    assert found["cut_vs_optimum_mean_round_robin"] == pytest.approx(
        fmean(cut(graph, "round_robin") / cut(graph, "optimal") for graph in GRAPHS[:2])
    )
    assert found["cut_zero_missed"] == 0

    def hop_ms(rule: str, stream: int) -> float:
        cell = dict(zip(study.parameters, ("skewed", 4, 0, "1+1", rule, stream, 0), strict=True))
        measured = run_cell(cell)
        share = measured["cut"] / measured["total"]
        return float(share * NETWORK_MS + (1 - share) * SAME_WORKER_MS)

    by_hand = [1 - hop_ms("coarse_grained", stream) / hop_ms("coarse_grained_offline", stream) for stream in (0, 1)]
    assert found["online_reduction_2n2w"] == pytest.approx(fmean(by_hand))
    assert found["online_reduction_2n2w_low"] < fmean(by_hand) < found["online_reduction_2n2w_high"]
    assert found["sol_cut_ours"] == pytest.approx(0.2)
    assert found["sol_ring_reduction"] == pytest.approx(0.367, abs=0.001)
    assert found["seconds"] == 0.5
    assert any(line.startswith("\nMeasured in this run") for line in said)
    names = {file.name for file in (tmp_path / "results").iterdir()}
    assert {"cut.svg", "figure9sol.svg", "cut.claims.csv"} <= names
