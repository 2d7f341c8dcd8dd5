"""A manifest says which entries the rows of one data file belong to. Its name in ``manifests/`` is the commit.

Layout: one line of JSON (the header), three packed little-endian columns (split index u32, offset i64, lineage
u64), and the sha256 of everything before.
"""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from tailrace.connector import Entry
from tailrace.errors import TailraceError

VERSION = 1
_COLUMNS = "IqQ"
_DIGEST_BYTES = 32


@dataclass(frozen=True)
class Manifest:
    """The content of one commit: a data file, and the entries of its rows."""

    job_id: str
    data: str | None  # name of the data file; None if the commit had no rows
    rows: int
    entries: Sequence[Entry]

    def newest(self) -> dict[str, int]:
        """The highest offset of each split, which decides when the manifest may be deleted."""
        newest: dict[str, int] = {}
        for split, offset, _ in self.entries:
            if offset > newest.get(split, -1):
                newest[split] = offset
        return newest


def encode(manifest: Manifest) -> bytes:
    """The bytes of a manifest's file: a line of JSON, columns of entries, and a digest."""
    splits: dict[str, int] = {}
    indices = [splits.setdefault(entry.split, len(splits)) for entry in manifest.entries]
    header = {
        "format": "tailrace-manifest",
        "version": VERSION,
        "job": manifest.job_id,
        "data": manifest.data,
        "rows": manifest.rows,
        "entries": len(indices),
        "splits": list(splits),
    }
    columns = (indices, [entry.offset for entry in manifest.entries], [entry.lineage for entry in manifest.entries])
    body = b"".join(
        [json.dumps(header).encode(), b"\n", *(_packed(code, c) for code, c in zip(_COLUMNS, columns, strict=True))]
    )
    return body + sha256(body).digest()


def decode(data: bytes, path: Path) -> Manifest:
    """The manifest in ``data``; ``path`` is for the error only."""
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if sha256(body).digest() != digest:
        raise TailraceError(
            f"manifest is damaged: file={path} bytes={len(data)}, did something else write to it? "
            "Its rows cannot be told from duplicates."
        )
    line, _, packed = body.partition(b"\n")
    header = json.loads(line)
    if header.get("version") != VERSION:
        raise TailraceError(
            f"manifest has an unknown version: file={path} version={header.get('version')} known={VERSION}, "
            "was it written by a newer tailrace?"
        )
    return Manifest(header["job"], header["data"], header["rows"], _entries(header, packed))


def _entries(header: Mapping[str, Any], packed: bytes) -> list[Entry]:
    splits, size = header["splits"], header["entries"]
    columns, begin = [], 0
    for code in _COLUMNS:
        column: array[int] = array(code)
        end = begin + size * column.itemsize
        column.frombytes(packed[begin:end])
        columns.append(_little_endian(column))
        begin = end
    return [Entry(splits[index], offset, lineage) for index, offset, lineage in zip(*columns, strict=True)]


def _packed(code: str, values: list[int]) -> bytes:
    return _little_endian(array(code, values)).tobytes()


def _little_endian(column: array[int]) -> array[int]:
    if sys.byteorder == "big":
        column.byteswap()
    return column
