"""``bench hosts`` on plain processes: a kill is seen as a gap, and the run goes on."""

from __future__ import annotations

import pytest

from tailrace_research.bench.hosts import disturbances, subject


def test_the_gap_of_a_killed_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disturbances, "AFTER_S", 5.0)
    monkeypatch.setattr(subject, "STEADY_S", 0.5)
    gap_s = disturbances.process_kill_gap_s(200, worker=1)
    assert 0.005 < gap_s <= 5.0
