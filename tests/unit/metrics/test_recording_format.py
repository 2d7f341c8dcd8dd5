"""Files of a recording: what is written is read, and of what is torn nothing but whole blocks."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tailrace.metrics.recording import (
    END,
    ROOTS,
    TUPLES,
    VERSION,
    NotARecording,
    block,
    preamble,
    read_recorded,
)

HEADER = {"worker": 3, "salt": (1 << 64) - 1}
TOP = (1 << 64) - 1


def tuples(first: int, count: int) -> bytes:
    numbers = range(first, first + count)
    return block(TUPLES, [numbers, [TOP - n for n in numbers], *[numbers] * 2, *[[-n for n in numbers]] * 3])


ROOT = block(ROOTS, [[1], [0], [1 << 40], [TOP], [5], [6], [7]])


def test_all_that_was_written_is_read(tmp_path: Path) -> None:
    file = tmp_path / "one"
    file.write_bytes(preamble(HEADER) + tuples(0, 2) + ROOT + tuples(2, 1) + block(END, ()))
    found = read_recorded(file)
    assert found.header == HEADER
    assert [list(column) for column in found.tuples.values()] == [
        [0, 1, 2],
        [TOP, TOP - 1, TOP - 2],
        *[[0, 1, 2]] * 2,
        *[[0, -1, -2]] * 3,
    ]
    assert {name: column[0] for name, column in found.roots.items()} == {
        "task": 1,
        "split": 0,
        "offset": 1 << 40,
        "emission": TOP,
        "due_ns": 5,
        "emitted_ns": 6,
        "complete_ns": 7,
    }
    assert found.ended and not found.torn_bytes


def test_a_file_that_ends_anywhere_is_read_up_to_its_last_whole_block(tmp_path: Path) -> None:
    start, blocks = preamble(HEADER), [tuples(0, 2), ROOT, tuples(2, 1), block(END, ())]
    whole = start + b"".join(blocks)
    ends = [len(start) + sum(map(len, blocks[:count])) for count in range(len(blocks) + 1)]
    file = tmp_path / "one"
    for length in range(len(start), len(whole) + 1):
        file.write_bytes(whole[:length])
        found = read_recorded(file)
        kept = max(count for count, end in enumerate(ends) if end <= length)
        assert list(found.tuples["task"]) == [0, 1, 2][: (0, 2, 2, 3, 3)[kept]]
        assert len(found.roots["task"]) == (kept >= 2)
        assert found.ended == (kept == 4)
        assert found.torn_bytes == length - ends[kept]


def test_a_block_that_was_damaged_and_all_behind_it_are_skipped(tmp_path: Path) -> None:
    start, first, second = preamble(HEADER), tuples(0, 2), tuples(2, 2)
    file = tmp_path / "one"
    for place in range(len(second)):
        damaged = bytearray(second)
        damaged[place] ^= 0x10
        file.write_bytes(start + first + damaged + ROOT)
        found = read_recorded(file)
        assert list(found.tuples["task"]) == [0, 1]
        assert found.torn_bytes == len(second) + len(ROOT)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", r"^not a recording: file=.*one; was it written by tailrace run --record\?$"),
        (b"key,milliseconds\n" * 9, "^not a recording: "),
        (
            struct.pack("<8sHI", b"TAILRACE", VERSION + 1, 2) + b"{}",
            f"^a recording of another version: file=.* version={VERSION + 1} expected={VERSION}$",
        ),
        (preamble(HEADER)[:-1], "^a recording that ends in its header: "),
    ],
)
def test_what_is_no_recording_is_refused(data: bytes, text: str, tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(data)
    with pytest.raises(NotARecording, match=text):
        read_recorded(tmp_path / "one")
