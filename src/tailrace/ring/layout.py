"""The memory layout of a segment, for Python. ``_layout.h`` has the same for C, and a test compares the two."""

from __future__ import annotations

import struct

MAGIC = 0x31474E4952525454
VERSION = 2
PAIR, SHARED = 1, 2
LINE = 64
UNIT = 16
SLOTS = 64
BATCH = 0x8000_0000
VIEWS = 256  # records that one end of a shared ring may hold at once

SEGMENT = struct.Struct("<QIIQQQ16s")  # magic, version, kind, capacity, owner, namespace of processes, nonce
SEGMENT_FIELDS = ("magic", "version", "kind", "capacity", "owner", "processes", "nonce")
SLOT_FIELDS = ("owner", "position", "length", "records", "bytes", "waits", "sleeps")
PRODUCER_FIELDS = ("tail", "records", "bytes", "waits", "high_water")
RECORD_BYTES = 16

SIZES = {"ring_segment": 56, "ring_record": RECORD_BYTES, "ring_slot": 64, "ring_pair": 256, "ring_shared": 4352}

OFFSETS = {
    **{f"ring_segment.{name}": at for name, at in zip(SEGMENT_FIELDS, (0, 8, 12, 16, 24, 32, 40), strict=True)},
    **{f"ring_record.{name}": 4 * index for index, name in enumerate(("status", "target", "length", "slot"))},
    **{f"ring_slot.{name}": 8 * index for index, name in enumerate(SLOT_FIELDS)},
    **{f"ring_pair.{name}": 64 + 8 * index for index, name in enumerate(PRODUCER_FIELDS)},
    "ring_pair.head": 128,
    "ring_pair.sleeps": 136,
    "ring_pair.consumer_waits": 192,
    "ring_pair.producer_waits": 196,
    "ring_pair.closed": 200,
    "ring_shared.tail": 64,
    "ring_shared.high_water": 72,
    "ring_shared.head": 128,
    "ring_shared.turn": 136,
    "ring_shared.clearing": 144,
    "ring_shared.given_up": 152,
    "ring_shared.consumer_waits": 192,
    "ring_shared.producer_waits": 196,
    "ring_shared.closed": 200,
    "ring_shared.sleepers": 204,
    "ring_shared.slots": 256,
}

SPARE = 208
"""Offset of four bytes in a shared ring's head that the ring itself does not use. They are 0 at first."""

DATA = {PAIR: SIZES["ring_pair"], SHARED: SIZES["ring_shared"]}
"""Offset of the data, by kind of ring."""

SMALLEST, LARGEST = 64 << 10, 1 << 30
"""Limits on the bytes of data. Smaller rings hold too few records for their head; larger ones exceed 32-bit offsets."""

MODE_NO_WAITER, MODE_SLEEP, MODE_BELL = 0, 1, 2
"""How an end waits: not at all, in a futex, or for a bell."""

CORRUPT, TOO_LARGE, CLOSED, NONE, DONE, BELL = -3, -2, -1, 0, 1, 2
"""Result codes of the C functions."""


def record_size(length: int) -> int:
    """Bytes that a payload of this length occupies in a ring."""
    return -(-(RECORD_BYTES + length) // UNIT) * UNIT


def largest_payload(capacity: int) -> int:
    """The largest payload that always fits: wherever a record begins, it and the space skipped before it must fit."""
    return capacity // 2 - RECORD_BYTES
