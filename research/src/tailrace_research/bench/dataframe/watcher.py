"""Sees files appear, in the same way for both contenders of the row ``stream``, and reads afterwards what was in them.

A row counts as visible once a reader may see it: when the log of Spark's file sink has the entry that names its file,
or when a part file of Tailrace's sink has its name.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

EVERY_S = 0.003
SPARK_LOG = "_spark_metadata"
_ENTRY = re.compile(r"(\d+)(?:\.compact)?")  # of Spark's log: a batch
_PART = re.compile(r"part-.*\.parquet")


class Watcher(threading.Thread):
    """Notes when names that fit the pattern appear in a folder, which may not be there yet."""

    def __init__(self, folder: Path, pattern: re.Pattern[str]) -> None:
        super().__init__(name="bench-watcher", daemon=True)
        self._folder = folder
        self._pattern = pattern
        self._ended = threading.Event()
        self.seen_ns: dict[str, int] = {}

    def run(self) -> None:
        while not self._ended.wait(EVERY_S):
            self._look()

    def end(self) -> None:
        self._ended.set()
        self.join()
        self._look()

    def _look(self) -> None:
        try:
            names = [path.name for path in self._folder.iterdir()]
        except FileNotFoundError:
            return
        now_ns = time.monotonic_ns()
        for name in names:
            if name not in self.seen_ns and self._pattern.fullmatch(name):
                self.seen_ns[name] = now_ns


class Output:
    """The folder of a file sink: Spark's, which keeps a log of its files, or Tailrace's, which needs none."""

    def __init__(self, folder: Path, with_log: bool) -> None:
        self._folder = folder
        self._with_log = with_log
        self._rows: dict[Path, int] = {}
        self.watcher = Watcher(folder / SPARK_LOG, _ENTRY) if with_log else Watcher(folder, _PART)

    def files(self) -> dict[Path, int]:
        """Every file that a reader sees, and since when."""
        seen = dict(self.watcher.seen_ns)
        if not self._with_log:
            return {self._folder / name: seen_ns for name, seen_ns in seen.items()}
        files: dict[Path, int] = {}
        for name in sorted(seen, key=lambda name: int(name.partition(".")[0])):
            for path in _named(self._folder / SPARK_LOG / name):
                files.setdefault(path, seen[name])  # a compact entry repeats all files before it
        return files

    def count(self) -> int:
        """How many rows a reader sees."""
        import pyarrow.parquet as pq

        for path in self.files():
            if path not in self._rows:
                self._rows[path] = int(pq.read_metadata(path).num_rows)
        return sum(self._rows.values())

    def rows(self) -> Iterator[dict[str, Any]]:
        """Every row, with the file that it is in, and since when that was visible, as ``seen_ns``."""
        import pyarrow.parquet as pq

        for path, seen_ns in self.files().items():
            for row in pq.read_table(path, partitioning=None).to_pylist():
                yield {**row, "file": path.name, "seen_ns": seen_ns}


def _named(entry: Path) -> list[Path]:
    """The files that an entry of Spark's log names, after a line with its version."""
    actions = [json.loads(line) for line in entry.read_text("utf-8").splitlines()[1:]]
    return [Path(unquote(urlparse(action["path"]).path)) for action in actions if action["action"] == "add"]
