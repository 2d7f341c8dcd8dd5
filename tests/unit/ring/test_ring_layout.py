"""C and Python agree on where everything is."""

from __future__ import annotations

import pytest

from tailrace.ring import _ring, layout

NUMBERS = {
    "RING_MAGIC": layout.MAGIC,
    "RING_VERSION": layout.VERSION,
    "RING_LINE": layout.LINE,
    "RING_UNIT": layout.UNIT,
    "RING_SLOTS": layout.SLOTS,
    "RING_BATCH": layout.BATCH,
    "RING_VIEWS": layout.VIEWS,
    "RING_PAIR": layout.PAIR,
    "RING_SHARED": layout.SHARED,
    "RING_NO_WAITER": layout.MODE_NO_WAITER,
    "RING_SLEEPS": layout.MODE_SLEEP,
    "RING_WANTS_BELL": layout.MODE_BELL,
    "RING_CORRUPT": layout.CORRUPT,
    "RING_TOO_LARGE": layout.TOO_LARGE,
    "RING_CLOSED": layout.CLOSED,
    "RING_NONE": layout.NONE,
    "RING_DONE": layout.DONE,
    "RING_BELL": layout.BELL,
}


def test_every_offset_size_and_number() -> None:
    assert _ring.layout() == layout.OFFSETS | layout.SIZES | NUMBERS


def test_the_head_of_a_segment_is_packed_as_in_c() -> None:
    assert layout.SEGMENT.size == layout.SIZES["ring_segment"]
    fields = [layout.OFFSETS[f"ring_segment.{name}"] for name in layout.SEGMENT_FIELDS]
    assert fields == sorted(fields)


def test_what_one_side_writes_often_has_a_line_of_its_own() -> None:
    for kind in ("ring_pair", "ring_shared"):
        lines = [layout.OFFSETS[f"{kind}.{name}"] // layout.LINE for name in ("tail", "head", "consumer_waits")]
        assert lines == [1, 2, 3]
    assert layout.SIZES["ring_slot"] == layout.LINE


@pytest.mark.parametrize(("length", "size"), [(0, 16), (1, 32), (16, 32), (17, 48), (100, 128)])
def test_the_size_of_a_record(length: int, size: int) -> None:
    assert layout.record_size(length) == size


def test_the_largest_record_and_what_is_skipped_before_it_fit() -> None:
    for capacity in (layout.SMALLEST, layout.LARGEST):
        size = layout.record_size(layout.largest_payload(capacity))
        assert size + (size - layout.UNIT) <= capacity
