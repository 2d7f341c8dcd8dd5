"""Every example runs as a reader would run it, prints what it should, and is short enough to be read."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"
MAX_LINES = 60  # "under": a screen
NUMBER = r"\d+\.\d\d"

ON_SPARK = {"enrichment", "round_trip", "skewed_partition"}
"""Run in ``tests/spark``."""

# regular expressions where a line has measured numbers in it
EXPECTED = {
    "async_lookup": [r"200 replies, smallest HELLO USER-0, faster than one after the other: True"],
    "exclamation": [
        r"500 words, all with three marks: True",
        rf"latency p50 {NUMBER} ms, p99 {NUMBER} ms, p99\.9 {NUMBER} ms",
    ],
    "page_load": [
        *map(
            re.escape,
            [
                "topology page-load",
                "events: source, 5 tasks",
                "└─ shuffle ─▶ transform: map, 5 tasks",
                "   └─ shuffle ─▶ filter1: filter, 5 tasks",
                "      └─ shuffle ─▶ join: map, 5 tasks",
                "         └─ shuffle ─▶ filter2: filter, 5 tasks",
                "            └─ shuffle ─▶ aggregate: map, 5 tasks",
                "               └─ shuffle ─▶ out: sink, 1 task",
            ],
        ),
        r"200 pages, 200 different, 48 characters each, first page-000",
    ],
    "processing": [
        *map(
            re.escape,
            [
                "topology processing",
                "events: source, 5 tasks",
                "└─ shuffle ─▶ transform: map, 5 tasks",
                "   ├─ shuffle ─▶ filter: filter, 5 tasks",
                "   │  └─ shuffle ─▶ join1: map, 5 tasks",
                "   │     └─ shuffle ─▶ sink1: sink, 1 task",
                "   └─ shuffle ─▶ join2: map, 5 tasks",
                "      └─ shuffle ─▶ normalise: map, 5 tasks",
                "         └─ shuffle ─▶ sink2: sink, 1 task",
            ],
        ),
        r"sink1: 100 rows, smallest Event-000, 40 characters",
        r"sink2: 100 rows, smallest event-000, 32 characters",
    ],
    "short_tail": [
        rf"{what}: p50 {NUMBER} ms, p99 {NUMBER} ms"
        for what in (
            "by cost, shuffle",
            "by cost, least work",
            "calls that hang, plain",
            "calls that hang, hedged",
        )
    ],
    "sqlite_enrichment": [
        r"order 1: Ada",
        r"order 2: Grace",
        r"order 3: Edsger",
        r"order 5: Ada",
        r"order 6: Grace",
        r"order 7: Edsger",
        r"order 0: LookupError: no user 0",
        r"order 4: LookupError: no user 0",
    ],
    "what_if": [
        rf"{policy}: p50 {NUMBER} ms, p99 {NUMBER} ms"
        for policy in ("recorded", "shuffle again", "osg", "least_work", "pull")
    ],
    "word_count": ["the 6", "turns 2", "wheel 2", "away 1"],
}


def test_every_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(EXPECTED) | ON_SPARK


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_example(name: str) -> None:
    path = EXAMPLES / f"{name}.py"
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert len(lines) == len(EXPECTED[name]), done.stdout
    for line, expected in zip(lines, EXPECTED[name], strict=True):
        assert re.fullmatch(expected, line), f"expected={expected!r} line={line!r}"


@pytest.mark.parametrize("name", sorted(set(EXPECTED) | ON_SPARK))
def test_example_is_short_and_says_what_it_shows(name: str) -> None:
    text = (EXAMPLES / f"{name}.py").read_text("utf-8")
    assert len(text.splitlines()) < MAX_LINES
    assert text.startswith('"""')
    assert "def main() -> None:" in text
