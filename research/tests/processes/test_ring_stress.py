"""A short run of ``make stress``, and proof that it would tell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.ring.segment import FOLDER

WORDS = [sys.executable, "-m", "tailrace_research.ring.stress"]


def run(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*WORDS, *options], capture_output=True, text=True, timeout=120)


def left() -> set[Path]:
    return set(FOLDER.glob("tailrace-stress-*"))


@pytest.mark.slow
def test_every_record_is_accounted_for() -> None:
    before = left()
    done = run("--seconds", "14", "--seed", "4")
    assert done.returncode == 0, done.stdout + done.stderr
    first, *_, last = done.stdout.splitlines()
    assert first == "python -m tailrace_research.ring.stress --seconds 14 --seed 4 --kind both"
    assert last.startswith("all accounted for: records=")
    figures = {name: int(value.replace(",", "")) for name, value in (word.split("=") for word in last.split()[3:])}
    assert figures["kills"] > 20
    assert figures["given_up"] > 0
    assert figures["delivered"] > 1000
    assert left() <= before


FALSE_PROOF = """
import random, sys
from tailrace.ring import stepped
from tailrace_research.ring import stress
import tempfile, pathlib
stop_at = stepped.load(stepped.build(pathlib.Path(tempfile.mkdtemp()))).stop_at
from tailrace.ring import shared
is_alive = shared.is_alive
shared.is_alive = lambda owner: is_alive(owner) and random.random() > 0.3
total = stress.stress(15, 1, stop_at, (2,))
sys.exit(total.violations > 0)
"""


@pytest.mark.soak
def test_a_living_process_taken_for_dead_is_found_out() -> None:
    done = subprocess.run([sys.executable, "-c", FALSE_PROOF], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "violation" in done.stderr
