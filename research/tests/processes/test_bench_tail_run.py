"""`tailrace bench tail` really runs workers; unit/test_bench_tail has what it makes of the figures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tailrace.testing.namespaces import why_no_namespaces
from tailrace_research.__main__ import main
from tailrace_research.bench.tail import rows as tail_rows
from tailrace_research.bench.tail.groupings import BY_CONTENT, GROUPINGS
from tailrace_research.bench.tail.send import kernel as tail_send_kernel
from tailrace_research.bench.tail.send.bursts import draw_bursts
from tailrace_research.bench.tail.send.figures import STEMS


def test_bench_tail_grouping_really(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two = replace(BY_CONTENT, groupings={name: GROUPINGS[name] for name in ("shuffle", "pull")})
    monkeypatch.setattr(tail_rows, "ROWS", (two.row("two groupings", two.conclude),))
    file = tmp_path / "tail.json"
    arguments = ["--only", "grouping", "--tuples", "300", "--unit", "0.05", "--repeats", "1", "--json", str(file)]
    done = CliRunner().invoke(main, ["bench", "tail", *arguments])
    assert done.exit_code == 0, done.output
    figures = json.loads(file.read_text())
    for name in ("shuffle", "pull"):
        assert 0 < figures[f"grouping_{name}_p50_ms"] <= figures[f"grouping_{name}_p999_ms"]
        assert figures[f"{name}_agreement"] > 0.9  # no engine is faster than none
    assert figures["pull_mean_ratio"] == figures["grouping_pull_mean_ms"] / figures["grouping_shuffle_mean_ms"]
    assert "two groupings, ms" in done.output


def test_a_worker_sends_over_a_link_that_the_kernel_limits() -> None:
    """Every tuple arrives, or this raises."""
    why_not = why_no_namespaces()
    if why_not is not None:
        pytest.skip(why_not)
    figures = tail_send_kernel.measure("kernel", 1, draw_bursts(seed=1, tuples=200, slot_ns=750_000))
    assert set(figures) == {f"lbf_kernel_{stem}" for stem in STEMS}
    assert figures["lbf_kernel_largest"] >= 1, "nothing went through the loop"
