"""Du's study without Spark: its grids, its cells, and that every claim finds its points."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.clock import SECOND_NS
from tailrace.sim.load.erlang import mean_wait
from tailrace_research.reproduce.du.figures import MEASURED, SHARED_LOAD
from tailrace_research.reproduce.du.models import EXPERIMENTS, TECHNIQUES
from tailrace_research.reproduce.du.study import DU, converged_s, run_cell
from tailrace_research.reproduce.study import Figure, Row

SOURCE = Path(tailrace.__file__).parent


def cell(experiment: str, at: float, technique: str) -> dict[str, Any]:
    return {"experiment": experiment, "at": at, "technique": technique, "stream": 0, "seed": 0}


@pytest.mark.parametrize("figure", DU.figures, ids=lambda figure: figure.name)
def test_a_grid_has_no_cell_twice_and_always_the_default(figure: Figure) -> None:
    cells = figure.cells(3, 2)
    assert len({tuple(cell.values()) for cell in cells}) == len(cells) == 6 * len(figure.cells(1, 1))
    assert all(list(cell) == list(DU.parameters) for cell in cells)
    points = {(cell["experiment"], cell["at"]) for cell in cells}
    assert points == {(cell["experiment"], cell["at"]) for cell in cells if cell["technique"] == "none"}
    assert {cell["experiment"] for cell in cells} <= set(EXPERIMENTS)
    assert {cell["technique"] for cell in cells} <= set(TECHNIQUES)


def summed_up(figure: Figure) -> list[Row]:
    """What the SQL would make of cells that are all alike."""
    return [
        {
            **{name: cell[name] for name in ("experiment", "at", "technique")},
            "measure": measure,
            "runs": 1,
            "value": 2.0,
            "value_low": 1.0,
            "value_high": 3.0,
            "cut": 0.25,
            "cut_low": 0.1,
            "cut_high": 0.4,
        }
        for cell in figure.cells(1, 1)
        for measure in MEASURED
    ]


def test_every_claim_finds_its_points_and_has_a_key_of_its_own() -> None:
    keys: list[str] = []
    for figure in DU.figures:
        rows = summed_up(figure)
        claims = figure.claims(rows)
        keys += [claim.key for claim in claims]
        figure.charts(rows)
        for claim in claims:
            if claim.low is not None and claim.high is not None:
                assert claim.low <= claim.ours <= claim.high, claim
    assert len(set(keys)) == len(keys)
    assert {
        *("replay_p999_cut_30", "replay_extra_work_30", "replay_worst_p99_loss"),
        *("du_replay_p999_cut_30", "du_replay_extra_work_30", "du_replay_worst_p99_loss"),
        *("balance_converged_s", "balance_fast_converged_s", "balance_p99_cut_sim"),
        *("balance_equal_loss", "balance_fast_equal_loss"),
        *("shared_queue_delay_own_ms", "shared_queue_delay_shared_ms"),
    } <= set(keys)


def test_a_loss_is_a_cut_the_other_way_round() -> None:
    figure = DU.figure("replay")
    claims = {claim.key: claim for claim in figure.claims(summed_up(figure))}
    worst = claims["replay_worst_p99_loss"]
    assert (worst.ours, worst.low, worst.high) == (-0.25, -0.4, -0.1)


@pytest.mark.parametrize("technique", TECHNIQUES)
def test_a_cell_gives_every_measure(technique: str) -> None:
    measured = run_cell(cell("scenario_a", 0.05, technique))
    assert list(measured) == list(DU.measures)
    assert all(type(value) is float for value in measured.values())
    assert measured["p50_ms"] <= measured["p90_ms"] <= measured["p99_ms"] <= measured["p999_ms"]


def test_the_papers_shared_queue_by_formula() -> None:
    """Their 0.516 ms is less than Erlang's for Poisson arrivals: tuples that are dealt in turn wait less."""
    assert 1_000 * mean_wait(4, 4 * 350, 450) == pytest.approx(1.3926, abs=0.0001)
    assert run_cell(cell("bolt", SHARED_LOAD, "shared_queue"))["wait_ms"] < 1.3


def due_and_done(latencies_ms: Sequence[int]) -> tuple[list[int], list[int]]:
    """Ten roots a second, all of a second as late as the other."""
    due = [second * SECOND_NS + tenth * SECOND_NS // 10 for second in range(len(latencies_ms)) for tenth in range(10)]
    late = [latency * SECOND_NS // 1_000 for latency in latencies_ms for _ in range(10)]
    return due, [at + latency for at, latency in zip(due, late, strict=True)]


def test_when_latency_has_converged() -> None:
    assert converged_s(*due_and_done([10] * 100)) == 1
    assert converged_s(*due_and_done([1_000] * 30 + [10] * 70)) == 31
    assert converged_s(*due_and_done([10] * 5 + [1_000] * 30 + [10] * 65)) == 36, "not before it is over"
