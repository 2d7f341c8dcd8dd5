"""Paths of this repository that the documents name are there: a move that forgets them fails here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kit.pages import PAGES, ROOT

BASES = (ROOT, ROOT / "src", ROOT / "src" / "tailrace")
PRESENT = [page for page in PAGES if page.name != "CHANGELOG.md"]  # which speaks of the past too
QUOTED = re.compile(r"`(?P<path>(?:[\w.-]+/)+[\w.-]+\.(?:py|h|c)|(?:[\w.-]+/){2,})`")
"""A file with a folder before it, or a folder in a folder, in backquotes. Placeholders such as <name> are left out."""


def missing(text: str) -> list[str]:
    paths = [match["path"] for match in QUOTED.finditer(text)]
    return [path for path in paths if not any((base / path).exists() for base in BASES)]


@pytest.mark.parametrize("page", PRESENT, ids=[str(page.relative_to(ROOT)) for page in PRESENT])
def test_paths_are_there(page: Path) -> None:
    assert not missing(page.read_text("utf-8")), f"{page.name} names what is not there; was it moved?"


def test_a_path_that_is_not_there_is_found() -> None:
    text = "`core/protocol/ledger.py`, `core/gone/ledger.py`, `policy/groupings/`, `policy/gone/`, `policy/<name>.py`"
    assert missing(text) == ["core/gone/ledger.py", "policy/gone/"]
