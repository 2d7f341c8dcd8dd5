"""The simulation notices every broken rule: else its silence would say nothing about the rules that hold."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path

import pytest
from mutations import MUTATIONS, Mutation, Verdict, row_of, try_number

from tailrace.core.protocol.ledger import Ledger
from tailrace.core.routing.router import LaneEdge
from tailrace.sim.faults.seeded_runs import run_seed

PAGE = Path(__file__).parents[2] / "docs" / "simulation.md"


@pytest.fixture(scope="module")
def verdicts() -> Iterator[dict[str, Future[Verdict]]]:
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        yield {mutation.name: pool.submit(try_number, number) for number, mutation in enumerate(MUTATIONS)}
        pool.shutdown(cancel_futures=True)


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_broken_rule_shows_as_the_page_says(mutation: Mutation, verdicts: dict[str, Future[Verdict]]) -> None:
    verdict = verdicts[mutation.name].result()
    print(f"{mutation.name}: {verdict.message or 'survived'}")
    if mutation.redundant:
        assert verdict.seed is None, f"no longer redundant ({mutation.redundant}): {verdict.message}"
    else:
        assert verdict.seed is not None, f"{mutation.name} survived {verdict.seeds} seeds: is the rule still checked?"
    row = row_of(mutation, verdict)
    assert row in PAGE.read_text().splitlines(), f"run python tests/simulation/mutations.py; the row is now: {row}"


def test_mutations_leave_no_trace() -> None:
    before = run_seed(7), Ledger.emit, LaneEdge.send
    for mutation in MUTATIONS:
        with mutation.apply():
            pass
    assert (run_seed(7), Ledger.emit, LaneEdge.send) == before


def test_the_page_lists_every_mutation_once() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    listed = [row.split(" | ")[1] for row in rows if row.startswith(tuple(f"| {one.rule} | `" for one in MUTATIONS))]
    assert listed == [f"`{mutation.name}`" for mutation in MUTATIONS]
