"""Examples that need Spark run as a reader would run them, and print what they should."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"

# regular expressions where a line has measured numbers in it
EXPECTED = {
    "enrichment": [
        r"1000 users: 9\d\d with a score, [1-9]\d? failed",
        r"HTTPError: HTTP Error 500: X",
        r"1000 calls, [1-9]\d* answers of 429, [1-9]\d? failed",
    ],
    "round_trip": [
        "00 to 05 minutes: 20 late calls",
        "05 to 10 minutes: 20 late calls",
        "10 to 15 minutes: 40 late calls",
    ],
    "skewed_partition": [
        r"mapInPandas: 4,240,000 words in \d+\.\d\d s",
        r"apply: 4,240,000 words in \d+\.\d\d s",
    ],
}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_example(name: str) -> None:
    # The JVM warns of modules of its own on stderr: only what the example prints is compared.
    done = subprocess.run([sys.executable, str(EXAMPLES / f"{name}.py")], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(EXPECTED[name]), done.stdout
    for line, expected in zip(lines, EXPECTED[name], strict=True):
        assert re.fullmatch(expected, line), f"expected={expected!r} line={line!r}"


def test_tasks_say_what_their_calls_came_to() -> None:
    """In one line each, which Spark writes to the executor's log: here, to the terminal."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "enrichment.py")], capture_output=True, text=True, timeout=240
    )
    said = re.findall(r"^tailrace: calls of score: task=(\d+) attempt=0 calls=(\d+) .* p99_ms=.*$", done.stderr, re.M)
    assert sum(int(calls) for _, calls in said) == 1000
    assert len({task for task, _ in said}) == len(said)


def test_the_round_trip_takes_less_than_thirty_lines() -> None:
    assert len((EXAMPLES / "round_trip.py").read_text("utf-8").splitlines()) < 30
