"""A call that was answered is not paid for again: not after kills of workers, nor after a kill of the driver."""

from __future__ import annotations

from pathlib import Path

from paid_calls import CONCURRENCY, WORKERS, run_with_kills

NUMBERS, SECONDS = 240, 0.1


def test_calls_are_repeated_only_if_they_were_under_way_at_a_kill(tmp_path: Path) -> None:
    with_journal = run_with_kills(tmp_path / "with", NUMBERS, journal=True, seconds=SECONDS)
    assert with_journal.kills == 6
    assert with_journal.repeated <= 5 * CONCURRENCY + WORKERS * CONCURRENCY, "more than the dead had under way"
    without = run_with_kills(tmp_path / "without", NUMBERS, journal=False, seconds=SECONDS)
    assert without.repeated > 2 * with_journal.repeated
    assert not (tmp_path / "with" / "journal").exists(), "the run has finished, and its journal is not removed"
