"""The bytes of a journal: a file begins with ``MAGIC``, and records follow each other without gaps.

A record is a header and a result. A header without a result is a mark: its call is under way, or was given up. The
header has a checksum of its own, so that a reader who looks for keys skips results without reading them. A file has one
writer, which only appends: all that a crash can leave is a record at the end that is not whole. Nothing after a record
that is not whole or not valid is read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from zlib import crc32

from tailrace.calls.journal_keys import KEY_BYTES, Place, place_of

MAGIC = b"tailrace-journal-1\n"

_FIELDS = struct.Struct(f"<IIQq{KEY_BYTES}s")  # length and checksum of the result, split, offset, key
_CHECKSUM = struct.Struct("<I")
HEADER_BYTES = _FIELDS.size + _CHECKSUM.size

NOWHERE = Place(0, -1)
"""The place of a result that is kept for good: it comes from no split."""


@dataclass(frozen=True, slots=True)
class Header:
    """The head of a result."""

    key: bytes
    place: Place
    length: int  # of the result, in bytes
    checksum: int

    @property
    def is_mark(self) -> bool:
        return not self.length  # no result is pickled to nothing

    def matches(self, result: bytes) -> bool:
        """Whether these bytes are the result that was written after this header."""
        return len(result) == self.length and crc32(result) == self.checksum


def encode_record(key: bytes, result: bytes) -> bytes:
    """A record. The key may hold a place."""
    fields = _FIELDS.pack(len(result), crc32(result), *(place_of(key) or NOWHERE), key[:KEY_BYTES])
    return b"".join((fields, _CHECKSUM.pack(crc32(fields)), result))


BEGUN, GIVEN_UP = 1, 2
"""In place of the checksum of a result: what a mark says."""


def encode_mark(key: bytes, mark: int) -> bytes:
    """A record that says what becomes of a call that has no result yet."""
    fields = _FIELDS.pack(0, mark, *NOWHERE, key[:KEY_BYTES])
    return fields + _CHECKSUM.pack(crc32(fields))


def decode_header(data: bytes | memoryview, position: int = 0) -> Header | None:
    """The header at this position, or None if there is none that is valid. There must be enough bytes for one."""
    end = position + _FIELDS.size
    if _CHECKSUM.unpack_from(data, end)[0] != crc32(data[position:end]):
        return None
    length, checksum, split, offset, key = _FIELDS.unpack_from(data, position)
    return Header(key, Place(split, offset), length, checksum)


class Damaged(Exception):
    """There is no valid header where a record should begin. ``position``: where that is."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


def scan(data: bytes, start: int, size: int) -> Iterator[tuple[int, Header]]:
    """The whole records whose headers are in ``data``, a part of a file, each with its position in the file.

    ``start`` is the position of ``data``, which must begin with a record; ``size`` is that of the whole file. Raises
    Damaged where no valid header follows.
    """
    position = start
    while position - start + HEADER_BYTES <= len(data):
        header = decode_header(data, position - start)
        if header is None:
            raise Damaged(position)
        end = position + HEADER_BYTES + header.length
        if end > size:
            return
        yield position, header
        position = end
