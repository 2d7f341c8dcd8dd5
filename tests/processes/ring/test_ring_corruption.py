"""Rubbish in a segment is an error, never a crash and never an endless loop. In processes of their own: it might be."""

from __future__ import annotations

import struct
import subprocess
import sys

import pytest

from tailrace.errors import RingError
from tailrace.ring import layout
from tailrace.ring.pair import PairRing
from tailrace.ring.shared import SharedRing

FUZZ = r"""
import random, sys, time
from tailrace.errors import RingError
from tailrace.ring import layout
from tailrace.ring.pair import PairRing
from tailrace.ring.shared import SharedRing

kind, seed, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
rng = random.Random(seed)
words = [0, 1, 8, 15, 16, 2**31, 2**32 - 1, 2**63, 2**64 - 1, 2**64 - 16, 65536, 65535, 65520]
until, rounds, errors = time.monotonic() + seconds, 0, 0
while time.monotonic() < until:
    ring = (PairRing if kind == "pair" else SharedRing).create("fuzz", 1 << 16)
    ring.segment.unlink()
    other = type(ring)(ring.segment)
    memory, data = ring.segment.memory, layout.DATA[ring.segment.kind]
    rounds += 1
    for _ in range(60):
        try:
            match rng.randrange(6):
                case 0 | 1:
                    ring.put(rng.randbytes(rng.choice((0, 10, 300, 20000))), 0)
                case 2:
                    other.get_many(3, 0)
                case 3:
                    other.look(2, 0)
                case 4:
                    other.release()
                case 5 if kind == "shared":
                    other.bury_dead()
        except (RingError, ValueError) as error:
            errors += 1
        if rng.randrange(8) == 0:  # a head of a record, or a word before the data; not the head of the segment
            begin = rng.choice((64, 64, data)) if rng.randrange(3) else data
            end = data if begin == 64 else data + rng.choice((64, 2048, 1 << 16))
            at = rng.randrange(begin, end) // 8 * 8
            value = rng.choice((rng.choice(words), rng.getrandbits(64), rng.randrange(8), rng.randrange(1 << 20) * 16))
            memory[at : at + 8] = value.to_bytes(8, "little")
    if kind == "shared":
        memory[layout.OFFSETS["ring_shared.turn"]] = 0
print(rounds, errors)
"""


@pytest.mark.parametrize("kind", ["pair", "shared"])
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_rubbish_anywhere(kind: str, seed: int) -> None:
    words = [sys.executable, "-X", "faulthandler", "-c", FUZZ, kind, str(seed), "4"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    rounds, errors = map(int, done.stdout.split())
    assert rounds > 20
    assert errors > 0


def corrupted(ring: PairRing | SharedRing, at: int, value: int, form: str = "<I") -> None:
    struct.pack_into(form, ring.segment.memory, at, value)


HEAD = {PairRing: layout.DATA[layout.PAIR], SharedRing: layout.DATA[layout.SHARED]}
RECORD = {name: layout.OFFSETS[f"ring_record.{name}"] for name in ("status", "length")}


@pytest.mark.parametrize("kind", [PairRing, SharedRing])
@pytest.mark.parametrize(("field", "value"), [("status", 77), ("status", 0x102), ("length", 1 << 31), ("length", 40)])
def test_a_corrupted_head(kind: type[PairRing] | type[SharedRing], field: str, value: int) -> None:
    with kind.create("test", 1 << 16) as ring:
        ring.segment.unlink()
        ring.put(b"x", 0)
        corrupted(ring, HEAD[kind] + RECORD[field], value)
        with pytest.raises(RingError) as raised:
            ring.get(0)
        path = ring.segment.path
        assert str(raised.value) == f"corrupted ring: path={path}; did something else write there?"
        corrupted(ring, HEAD[kind] + RECORD["status"], 2)
        corrupted(ring, HEAD[kind] + RECORD["length"], 1)


@pytest.mark.parametrize("kind", [PairRing, SharedRing])
@pytest.mark.parametrize("name", ["head", "tail"])
@pytest.mark.parametrize("value", [7, 1 << 40, (1 << 64) - 16])
def test_corrupted_positions(kind: type[PairRing] | type[SharedRing], name: str, value: int) -> None:
    with kind.create("test", 1 << 16) as ring:
        ring.segment.unlink()
        ring.put(b"x", 0)
        part = "ring_pair" if kind is PairRing else "ring_shared"
        corrupted(ring, layout.OFFSETS[f"{part}.{name}"], value, "<Q")
        with pytest.raises(RingError, match=r"^corrupted ring: path=.*; did something else write there\?$"):
            ring.put(b"x", 0)
        if kind is SharedRing or name == "tail":
            with pytest.raises(RingError, match=r"^corrupted ring: "):
                ring.get(0)
        corrupted(ring, layout.OFFSETS[f"{part}.head"], 0, "<Q")
        corrupted(ring, layout.OFFSETS[f"{part}.tail"], 0, "<Q")
