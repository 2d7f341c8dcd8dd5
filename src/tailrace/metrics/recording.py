"""The event log of a run: the format in which a worker writes down what its tasks did, and its reader.

A file belongs to one epoch of one worker. It begins with a preamble and a header in JSON, which says what the run looks
like; blocks follow, each with its kind, its number of rows and a checksum, and then its columns one after the other,
little-endian. A worker that leaves in order writes an END block. Of one that was killed the file can be read up to its
last whole block: what is behind is torn, and skipped.

Times are those of the writing machine's monotonic clock. ``clock`` in the header holds one moment on that clock and
on the wall's, and ``machine`` tells which files share a clock.
"""

from __future__ import annotations

import json
import struct
import sys
import zlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

MAGIC = b"TAILRACE"
VERSION = 1
PREAMBLE = struct.Struct("<8sHI")  # magic, version, bytes of the header
BLOCK = struct.Struct("<BII")  # kind, rows, checksum of the columns
SUFFIX = ".tailrace"

END, TUPLES, ROOTS = range(3)

TUPLE_COLUMNS = {
    "task": "I",  # number of the task that ran it
    "emission": "Q",  # the incarnation of the root that it belongs to
    "lineage": "Q",  # its name; that of a parent and those of its children follow from each other
    "key": "Q",  # stable hash of its key, or of its content where that is cheap; 0: not known
    "received_ns": "q",  # when it entered the task's queue; 0: it came by a fused edge
    "begun_ns": "q",
    "duration_ns": "q",  # of its call
}
"""One row for each tuple and operator. In a bundle, time outside of calls is spread evenly over ``begun_ns``."""

ROOT_COLUMNS = {
    "task": "I",  # number of the source's task
    "split": "I",
    "offset": "q",
    "emission": "Q",  # the incarnation that completed
    "due_ns": "q",
    "emitted_ns": "q",
    "complete_ns": "q",
}
"""One row for each root, written when it completes."""

COLUMNS: dict[int, dict[str, str]] = {END: {}, TUPLES: TUPLE_COLUMNS, ROOTS: ROOT_COLUMNS}


class NotARecording(ValueError):
    """A file that is not of this format, or of another version of it."""


def file_name(worker: int, epoch: int) -> str:
    return f"worker-{worker}-epoch-{epoch}{SUFFIX}"


def preamble(header: dict[str, Any]) -> bytes:
    text = json.dumps(header).encode()
    return PREAMBLE.pack(MAGIC, VERSION, len(text)) + text


def block(kind: int, columns: Sequence[Iterable[int]]) -> bytes:
    """A block of these columns, all equally long, in the order of ``COLUMNS``."""
    filled = [array(code, column) for code, column in zip(COLUMNS[kind].values(), columns, strict=True)]
    rows = len(filled[0]) if filled else 0
    body = b"".join(_little_endian(column).tobytes() for column in filled)
    return BLOCK.pack(kind, rows, zlib.crc32(body)) + body


def _little_endian(column: array[int]) -> array[int]:
    if sys.byteorder == "big":
        column.byteswap()
    return column


@dataclass
class RecordedFile:
    """One file as it was read."""

    header: dict[str, Any]
    tuples: dict[str, array[int]] = field(default_factory=lambda: _empty(TUPLES))
    roots: dict[str, array[int]] = field(default_factory=lambda: _empty(ROOTS))
    ended: bool = False  # the worker left in order
    torn_bytes: int = 0  # behind the last whole block


def _empty(kind: int) -> dict[str, array[int]]:
    return {name: array(code) for name, code in COLUMNS[kind].items()}


def read_recorded(path: Path) -> RecordedFile:
    """All whole blocks of a file. Raises NotARecording, and OSError."""
    with path.open("rb") as file:
        recorded = RecordedFile(_read_header(path, file))
        while True:
            start = file.tell()
            found = _read_block(file)
            if found is None:
                file.seek(0, 2)
                recorded.torn_bytes = file.tell() - start
                return recorded
            kind, columns = found
            if kind == END:
                recorded.ended = True
            into = recorded.tuples if kind == TUPLES else recorded.roots
            for name, column in columns.items():
                into[name].extend(column)


def _read_header(path: Path, file: BinaryIO) -> dict[str, Any]:
    start = file.read(PREAMBLE.size)
    if len(start) < PREAMBLE.size or not start.startswith(MAGIC):
        raise NotARecording(f"not a recording: file={path}; was it written by tailrace run --record?")
    _, version, length = PREAMBLE.unpack(start)
    if version != VERSION:
        raise NotARecording(f"a recording of another version: file={path} version={version} expected={VERSION}")
    text = file.read(length)
    if len(text) < length:
        raise NotARecording(f"a recording that ends in its header: file={path}; was its worker killed at the start?")
    header: dict[str, Any] = json.loads(text)
    return header


def _read_block(file: BinaryIO) -> tuple[int, dict[str, array[int]]] | None:
    """None at the end, whether or not something torn is there."""
    start = file.read(BLOCK.size)
    if len(start) < BLOCK.size:
        return None
    kind, rows, checksum = BLOCK.unpack(start)
    if kind not in COLUMNS:
        return None
    columns = _empty(kind)
    body = file.read(rows * sum(column.itemsize for column in columns.values()))
    if len(body) < rows * sum(column.itemsize for column in columns.values()) or zlib.crc32(body) != checksum:
        return None
    position = 0
    for column in columns.values():
        end = position + rows * column.itemsize
        column.frombytes(body[position:end])
        _little_endian(column)
        position = end
    return kind, columns
