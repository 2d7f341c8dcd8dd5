"""The documents, and the code in them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]

PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "research").rglob("*.md")),
]


def blocks(language: str) -> list[tuple[str, str, str | None]]:
    """(place, code, expected output) of every fenced block in this language: ``python``, or ``python spark``.

    The expected output is the block of text that follows, if there is one.
    """
    block = re.compile(
        rf"^```{language}\n(?P<code>.*?)^```\n(?:\s*^```text\n(?P<output>.*?)^```$)?", re.MULTILINE | re.DOTALL
    )
    found = []
    for page in PAGES:
        text = page.read_text("utf-8")
        for match in block.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            found.append((f"{page.relative_to(ROOT)}:{line}", match["code"], match["output"]))
    return found
