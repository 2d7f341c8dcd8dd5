"""The file format of recordings: what a worker's tasks did, for the simulator. Has functions to write and read it.

A file belongs to one epoch of one worker. It begins with a preamble and a JSON header that describes the run. Blocks
follow: each has its kind, its number of rows, a checksum, and then its columns one after the other, little-endian. A
worker that exits regularly writes an END block. The file of one that was killed can be read up to its last complete
block; a torn rest is skipped.

Times are those of the machine's monotonic clock. ``clock`` in the header has the same moment on that clock and on the
wall clock, and files with the same ``machine`` share a monotonic clock.
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
    "emission": "Q",  # the emission of its root
    "lineage": "Q",  # its id, from which those of its children follow
    "key": "Q",  # stable hash of its key, or of its content if that is cheap; 0 if unknown
    "received_ns": "q",  # when it entered the task's queue; 0 if it came through a fused edge
    "begun_ns": "q",
    "duration_ns": "q",  # of its call
}
"""One row per tuple and operator. In a bundle, time outside of calls is spread evenly over ``begun_ns``."""

ROOT_COLUMNS = {
    "task": "I",  # number of the source's task
    "split": "I",
    "offset": "q",
    "emission": "Q",  # the emission that completed
    "due_ns": "q",
    "emitted_ns": "q",
    "complete_ns": "q",
}
"""One row per root, written when it completes."""

COLUMNS: dict[int, dict[str, str]] = {END: {}, TUPLES: TUPLE_COLUMNS, ROOTS: ROOT_COLUMNS}


class NotARecording(ValueError):
    """Raised for a file that has another format or another version."""


def file_name(worker: int, epoch: int) -> str:
    """The name of the file that a worker records into."""
    return f"worker-{worker}-epoch-{epoch}{SUFFIX}"


def preamble(header: dict[str, Any]) -> bytes:
    """The beginning of a file: magic, version and header."""
    text = json.dumps(header).encode()
    return PREAMBLE.pack(MAGIC, VERSION, len(text)) + text


def block(kind: int, columns: Sequence[Iterable[int]]) -> bytes:
    """A block of these columns, all of the same length, in the order of ``COLUMNS``."""
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
    """The content of one file."""

    header: dict[str, Any]
    tuples: dict[str, array[int]] = field(default_factory=lambda: _empty(TUPLES))
    roots: dict[str, array[int]] = field(default_factory=lambda: _empty(ROOTS))
    ended: bool = False  # the worker exited regularly
    torn_bytes: int = 0  # after the last complete block


def _empty(kind: int) -> dict[str, array[int]]:
    return {name: array(code) for name, code in COLUMNS[kind].items()}


def read_recorded(path: Path) -> RecordedFile:
    """Read all complete blocks of a file. Raises NotARecording or OSError."""
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
    """The next block; None at the end, or if the rest is torn."""
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
