"""A sink that writes rows as lines of JSON, in files that appear atomically and once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tailrace.clock import SECOND_NS
from tailrace.connector import CommittingWriter, Entry, SinkContext
from tailrace.errors import shorten
from tailrace.runtime.connectors.commits.files import PartFiles, absolute, check_roll
from tailrace.runtime.connectors.commits.witness import Entered, Witness, open_part_files

# One encoder for all rows: json.dumps would make one for each. NaN and infinity are not JSON, and most readers fail.
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


@dataclass(frozen=True)
class JsonlSink:
    """See ``to_jsonl``."""

    path: Path
    roll_ns: int
    roll_bytes: int
    format: str = "jsonl"
    schema: Any | None = None
    committing: bool = True
    witness: Witness = field(default_factory=Witness, repr=False, compare=False)

    def open(self, context: SinkContext) -> CommittingWriter[Any]:
        return JsonlWriter(self, open_part_files(self.path, "jsonl", context))

    def on_message(self, task: int, epoch: int, message: Entered) -> list[Entered]:
        """Called on the driver: a task has opened the folder."""
        return self.witness.entered(self.path, message)


class JsonlWriter:
    """Buffers encoded lines until they are committed as one file."""

    def __init__(self, sink: JsonlSink, files: PartFiles) -> None:
        self._files = files
        self._lines: list[bytes] = []
        self._bytes = 0
        self._roll_bytes = sink.roll_bytes
        self.commit_every_ns = sink.roll_ns

    def write(self, value: Any) -> None:
        try:
            line = _encode(value).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(
                f"row cannot be written as json: type={type(value).__name__} fault={error} row={shorten(value)}, "
                "did you forget a map that makes it plain?"
            ) from error
        self._lines.append(line)
        self._bytes += len(line) + 1

    @property
    def full(self) -> bool:
        return self._bytes >= self._roll_bytes

    def recover(self, prefixes: Mapping[str, int]) -> Iterable[Entry]:
        return self._files.recover(prefixes)

    def commit(self, entries: Sequence[Entry]) -> None:
        if not self._lines and not entries:
            return
        data = b"\n".join([*self._lines, b""]) if self._lines else None
        self._files.commit(data, len(self._lines), entries)
        self._lines.clear()
        self._bytes = 0

    def forget(self, prefixes: Mapping[str, int]) -> None:
        self._files.forget(prefixes)

    def close(self) -> None:
        self._lines.clear()
        self._files.close()


def to_jsonl(path: str | Path, *, roll_seconds: float = 1.0, roll_bytes: int = 64 * 1024 * 1024) -> JsonlSink:
    """Write rows as lines of JSON to ``path/part-*.jsonl``, **each once**.

    A file appears when it is complete, and never changes. A row that is not JSON, such as one with NaN or infinity in
    it, is treated as the sink's ``on_error`` says.

    Args:
        path: a folder that all workers reach under this path. It is made if need be.
        roll_seconds: a file is complete so long after its first row. A small value shows rows sooner and makes more
            files.
        roll_bytes: a file is complete once it has as many bytes.

    Example:
        >>> numbers = tr.Topology("numbers").source("numbers", tr.from_iterable(range(10)))
        >>> numbers.map("row", lambda number: {"number": number}).sink("out", tr.to_jsonl("rows/"))
    """
    check_roll(roll_seconds=roll_seconds, roll_bytes=roll_bytes)
    return JsonlSink(absolute(path), int(roll_seconds * SECOND_NS), roll_bytes)
