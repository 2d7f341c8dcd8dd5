"""Repeats that have been measured, so that a run which was interrupted goes on where it was.

Figures are compared within a repeat, so a repeat is kept whole or not at all. Each is one line of JSON. Repeats of
other code, or of streams of another length, are not used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace_research.bench.turns import Figures


@dataclass(frozen=True)
class Kept:
    file: Path
    code: str
    length: float  # of streams, beside the usual

    def repeats(self) -> dict[int, Figures]:
        return {line["repeat"]: line["figures"] for line in self._lines() if self._is_of(line)}

    def add(self, repeat: int, figures: Figures) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        line = {"code": self.code, "length": self.length, "repeat": repeat, "figures": figures}
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _is_of(self, line: dict[str, Any]) -> bool:
        return (line["code"], line["length"]) == (self.code, self.length)

    def _lines(self) -> Iterator[dict[str, Any]]:
        if self.file.exists():
            for line in self.file.read_text("utf-8").splitlines():
                try:
                    yield json.loads(line)
                except json.JSONDecodeError:  # cut short by a crash: to be measured again
                    continue
