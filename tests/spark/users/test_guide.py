"""Blocks of the docs that need Spark (```` ```python spark ````) run as they stand, and print what is below them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kit.pages import PAGES, blocks

FENCE = re.compile(r"^```(python.*)$", re.MULTILINE)


BLOCKS = blocks("python spark")


def test_there_is_something_to_run() -> None:
    assert any(place.startswith("docs/guide/first-topology.md") for place, _, _ in BLOCKS)


def test_no_block_escapes() -> None:
    """A fence that says anything else would be run by no test."""
    fences = {fence for page in PAGES for fence in FENCE.findall(page.read_text("utf-8"))}
    assert fences <= {"python", "python spark"}


@pytest.mark.parametrize(("place", "code", "expected"), BLOCKS, ids=[place for place, _, _ in BLOCKS])
def test_block(place: str, code: str, expected: str | None, tmp_path: Path) -> None:
    assert expected is not None, f"{place}: no output below this block; did you forget the ```text block?"
    script = tmp_path / "block.py"
    script.write_text(code, "utf-8")
    # The JVM warns of modules of its own on stderr: only what the block prints is compared.
    done = subprocess.run([sys.executable, script.name], capture_output=True, text=True, timeout=240, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == expected
