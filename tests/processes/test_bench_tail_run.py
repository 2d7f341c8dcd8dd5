"""`tailrace bench tail` really runs workers; unit/test_bench_tail has what it makes of the figures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tailrace.bench import tail_rows
from tailrace.bench.tail_groupings import BY_CONTENT, GROUPINGS
from tailrace.cli import main


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
