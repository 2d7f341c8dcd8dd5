"""Code in the README and the docs runs as it stands, and prints what is printed below it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kit.pages import PAGES, ROOT, blocks

LINK = re.compile(r"\]\((?!https?:)(?P<target>[^)#]*)(?:#(?P<anchor>[^)]*))?\)")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


BLOCKS = blocks("python")


def test_there_is_something_to_run() -> None:
    assert any(place.startswith("README.md") for place, _, _ in BLOCKS)


@pytest.mark.parametrize(("place", "code", "expected"), BLOCKS, ids=[place for place, _, _ in BLOCKS])
def test_block(place: str, code: str, expected: str | None, tmp_path: Path) -> None:
    assert expected is not None, f"{place}: no output below this block; did you forget the ```text block?"
    script = tmp_path / "block.py"
    script.write_text(code, "utf-8")
    done = subprocess.run([sys.executable, script.name], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == expected
    assert done.stderr == ""


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    targets = [match["target"] for match in LINK.finditer(page.read_text("utf-8"))]
    missing = [target for target in targets if target and not (page.parent / target).exists()]
    assert not missing, f"{page.name}: {missing}"


def anchors(page: Path) -> set[str]:
    """What GitHub makes of a page's headings."""
    headings = HEADING.findall(FENCED.sub("", page.read_text("utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_anchors_lead_to_headings(page: Path) -> None:
    links = [
        (page.parent / match["target"] if match["target"] else page, match)
        for match in LINK.finditer(page.read_text("utf-8"))
    ]
    missing = [
        match[0]
        for target, match in links
        if match["anchor"] and target.suffix == ".md" and match["anchor"] not in anchors(target)
    ]
    assert not missing, f"{page.name}: {missing}"
