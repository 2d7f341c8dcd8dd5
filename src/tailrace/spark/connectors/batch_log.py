"""The log of a stream: which range of the data source's offsets each batch covers. One small file a batch.

A batch is written before its first row is emitted, and never changes. Of two readers that plan the same batch, the
first wins and the other adopts its plan.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.errors import TailraceError, shorten
from tailrace.spark.connectors.numbered_files import NumberedFiles, damaged

Offset = Any
"""An offset of the data source: any JSON value."""


@dataclass(frozen=True)
class Batch:
    number: int
    start: Offset
    end: Offset


class BatchLog:
    """The batches of one stream, in a folder of their own. ``source`` names the data source they belong to."""

    def __init__(self, folder: Path, source: str) -> None:
        self._files = NumberedFiles(folder)
        self._source = source
        self._files.make()

    def numbers(self) -> list[int]:
        return self._files.numbers()

    def read(self, number: int) -> Batch | None:
        stored = self._files.read(number)
        return None if stored is None else self._batch(number, stored)

    def plan(self, wanted: Batch) -> Batch:
        """Make ``wanted`` durable, unless a batch of that number exists already. Returns the one that is in the log."""
        content = {"source": self._source, "start": wanted.start, "end": wanted.end}
        return self._batch(wanted.number, self._files.write(wanted.number, content))

    def prune(self, below: int) -> None:
        """Delete batches below this number, which will never be read again."""
        for number in self.numbers():
            if number < below:
                self._files.remove(number)

    def sweep(self) -> None:
        """Delete drafts that a crash left behind."""
        self._files.sweep()

    def _batch(self, number: int, stored: Any) -> Batch:
        path = self._files.path(number)
        try:
            batch, source = Batch(number, stored["start"], stored["end"]), stored["source"]
        except (KeyError, TypeError) as error:
            raise damaged(path, error) from error
        if source != self._source:
            raise TailraceError(
                f"log belongs to another data source: file={path} found={source} ours={self._source}, "
                "do two sources share the folder?"
            )
        return batch


def plain(offset: Offset, where: str) -> Offset:
    """The offset as it would be read back from the log. Raises if it is not JSON."""
    try:
        return json.loads(json.dumps(offset))
    except (TypeError, ValueError) as error:
        raise TailraceError(
            f"offset is not made of dicts, strings, numbers and booleans: {where}={shorten(offset)} fault={error}, "
            "can the data source say it as JSON?"
        ) from error
