"""The golden file shows changes that break no promise. test_faults.py compares a part of it, the soak all of it."""

from __future__ import annotations

import re
from collections.abc import Callable

import golden_outcomes as golden
import pytest
from broken_protocol import Patch, losses_unnoticed, prefix_on_complete, split_salts_shared
from click.testing import CliRunner

from tailrace.sim.__main__ import main
from tailrace.sim.faults.journal import Journal
from tailrace.sim.faults.seeded_runs import run_seed


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", golden.MODES)
def test_every_seed_does_what_the_golden_file_says(mode: str) -> None:
    report = golden.differences(mode, golden.digests(mode, range(golden.SEEDS)))
    assert not report, report


@pytest.mark.parametrize("mode", golden.MODES)
def test_the_file_has_a_hash_for_each_seed(mode: str) -> None:
    hashes = golden.read(mode)
    assert len(hashes) == golden.SEEDS
    assert all(re.fullmatch("[0-9a-f]{8}", digest) for digest in hashes)
    assert len(set(hashes)) > golden.SEEDS - 5, "runs of different seeds have the same hash"


@pytest.mark.parametrize(
    ("mutation", "fails"), [(losses_unnoticed, False), (split_salts_shared, False), (prefix_on_complete, True)]
)
def test_a_change_of_the_core_shows(mutation: Callable[[], Patch], fails: bool) -> None:
    """Also one that breaks no promise, which all other tests of the simulation let pass."""
    with mutation():
        changed = [golden.digest_of(seed, "plain") for seed in range(15)]
    assert (golden.FAILED in changed) == fails
    assert sum(digest != before for digest, before in zip(changed, golden.read("plain"), strict=False)) >= 3
    assert re.match(r"plain: \d+ of 15 seeds differ", golden.differences("plain", changed))
    assert not golden.differences("plain", [golden.digest_of(seed, "plain") for seed in range(3)])


def test_a_difference_is_told_with_its_seeds_and_what_to_do() -> None:
    found = golden.read("sharing")[100:200]
    found[3], found[7] = "00000000", golden.FAILED
    first, second, third = golden.differences("sharing", found, first=100).splitlines()
    assert first == "sharing: 2 of 100 seeds differ from the golden file: 103, 107"
    assert "`python -m tailrace.sim --seed 103 --sharing --journal`" in second
    assert "golden_outcomes.py --write" in third


def test_the_journal_of_a_seed_can_be_read() -> None:
    done = CliRunner().invoke(main, ["--seed", "3", "--scheduled", "--journal"])
    assert done.exit_code == 0, done.output
    *printed, outcome = done.output.splitlines()
    lines: list[str] = []
    assert str(run_seed(3, scheduled=True, lines=lines)) == outcome
    assert printed == lines
    assert CliRunner().invoke(main, ["--journal"]).exit_code == 2


def test_a_journal_takes_only_what_has_no_class_name() -> None:
    journal = Journal(lambda: 5)
    journal.note("row", "out", ("s", 1))
    assert journal.lines == ['[5, "row", "out", ["s", 1]]']
    with pytest.raises(TypeError):
        journal.note("row", object())
