"""A study from the grid to its report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tailrace.version import VERSION
from tailrace_research.reproduce.intervals import student_t_table
from tailrace_research.reproduce.report import flat_claims, render_claims, render_table, write_figure
from tailrace_research.reproduce.study import Figure, Study, merged_cells
from tailrace_research.reproduce.sweep import Sweep, aggregate, run_sweep


def reproduce(
    spark: Any,
    study: Study,
    figures: Sequence[Figure],
    *,
    streams: int,
    seeds: int,
    cells_folder: str,
    results: Path,
    say: Callable[[str], None],
    progress: Callable[[int, int, float], None],
) -> dict[str, Any]:
    """Run what is missing, write each figure's files, say what was found; all claims as one flat dictionary."""
    sweep = Sweep(study.parameters, study.measures, study.run_cell, study.fingerprint(), cells_folder)
    ran = run_sweep(spark, sweep, merged_cells(figures, streams, seeds), progress)
    flat: dict[str, Any] = {"study": study.name, "version": VERSION, "code": sweep.code}
    flat |= {"streams": streams, "seeds": seeds, "cells_run": ran}
    for figure in figures:
        rows = aggregate(spark, sweep, figure.cells(streams, seeds), figure.sql, student_t_table())
        claims = figure.claims(rows)
        say(f"\n{render_claims(figure, claims)}")
        files = write_figure(figure, rows, claims, results)
        say(f"written: {', '.join(str(file) for file in files)}")
        flat |= flat_claims(claims)
    if study.timings is not None:
        claims = study.timings()
        say(f"\n{render_table('Measured in this run', claims)}")
        flat |= flat_claims(claims)
    return flat
