"""The log of a stream: which range of the data source's offsets each batch covers. One small file a batch.

A batch is written before its first row is emitted, and never changes. Its file is created by a hard link, which fails
if the name exists: of two readers that plan the same batch, the first wins and the other adopts its plan. A reader that
was declared dead and still plans therefore does no harm.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.errors import TailraceError, shorten
from tailrace.runtime.connectors.commits.disk import make_directory, sync_directory, write_file

Offset = Any
"""An offset of the data source: any JSON value."""

_NAME = re.compile(r"batch-(\d+)\.json")


@dataclass(frozen=True)
class Batch:
    number: int
    start: Offset
    end: Offset


class BatchLog:
    """The batches of one stream, in a folder of their own. ``source`` names the data source they belong to."""

    def __init__(self, folder: Path, source: str) -> None:
        self._folder = folder
        self._source = source
        make_directory(folder)

    def numbers(self) -> list[int]:
        return sorted(int(match[1]) for path in self._folder.iterdir() if (match := _NAME.fullmatch(path.name)))

    def read(self, number: int) -> Batch | None:
        path = self._path(number)
        try:
            stored = json.loads(path.read_bytes())
            batch, source = Batch(number, stored["start"], stored["end"]), stored["source"]
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise TailraceError(
                f"log is damaged: file={path} fault={error!r}, did something else write to it?"
            ) from error
        if source != self._source:
            raise TailraceError(
                f"log belongs to another data source: file={path} found={source} ours={self._source}, "
                "do two sources share the folder?"
            )
        return batch

    def plan(self, wanted: Batch) -> Batch:
        """Make ``wanted`` durable, unless a batch of that number exists already. Returns the one that is in the log."""
        path = self._path(wanted.number)
        draft = self._folder / f".{path.name}.{uuid.uuid4().hex}"
        text = {"source": self._source, "start": wanted.start, "end": wanted.end}
        write_file(draft, json.dumps(text).encode())
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink(missing_ok=True)
        sync_directory(self._folder)
        batch = self.read(wanted.number)
        if batch is None:
            raise TailraceError(f"batch was deleted from the log: file={path}, do two jobs share the folder?")
        return batch

    def prune(self, below: int) -> None:
        """Delete batches below this number, which will never be read again."""
        for number in self.numbers():
            if number < below:
                self._path(number).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Delete drafts that a crash left behind. A process still writing one was declared dead."""
        for path in self._folder.glob(".batch-*"):
            path.unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self._folder / f"batch-{number:012d}.json"


def plain(offset: Offset, where: str) -> Offset:
    """The offset as it would be read back from the log. Raises if it is not JSON."""
    try:
        return json.loads(json.dumps(offset))
    except (TypeError, ValueError) as error:
        raise TailraceError(
            f"offset is not made of dicts, strings, numbers and booleans: {where}={shorten(offset)} fault={error}, "
            "can the data source say it as JSON?"
        ) from error
