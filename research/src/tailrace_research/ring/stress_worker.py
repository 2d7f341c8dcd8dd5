"""The work of the processes of ``stress``, and the journal in which they write it down.

The journal is memory that outlives any of them. A producer marks a number before and after its ``put``; a consumer
marks it after it has checked the record and before it gives the record back. The journal therefore
tells what must have come out, whichever process is killed at whatever moment.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import signal
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tailrace.errors import RingClosed
from tailrace.ring import layout

if TYPE_CHECKING:
    from tailrace.ring.pair import PairRing
    from tailrace.ring.shared import SharedRing

NUMBERS = 1 << 21
"""Records of one producer in one round: more than it manages to put."""

STARTED, RETURNED = 1, 2
WAIT_S = 0.2
BODY = random.Random(1).randbytes(1 << 20)

_HEAD = struct.Struct("<IIII")  # producer, number, bytes, checksum of all the rest
_NUMBER = struct.Struct("<Q")
_PR_SET_PDEATHSIG = 1


class Journal:
    """Bytes that all processes share, each written by one of them at a time."""

    def __init__(self, producers: int, consumers: int) -> None:
        self.producers = producers
        self.put = [mmap.mmap(-1, NUMBERS) for _ in range(producers)]
        self.got = [[mmap.mmap(-1, NUMBERS) for _ in range(producers)] for _ in range(consumers)]
        self._words = mmap.mmap(-1, mmap.PAGESIZE)

    def word(self, index: int) -> int:
        """Words 0 to producers - 1: the next number of each. Then the last one that was given back in a pair."""
        return int(_NUMBER.unpack_from(self._words, index * _NUMBER.size)[0])

    def set_word(self, index: int, value: int) -> None:
        _NUMBER.pack_into(self._words, index * _NUMBER.size, value)

    @property
    def over(self) -> bool:
        """Producers are to end."""
        return self._words[-1] == 1

    def end(self) -> None:
        self._words[-1] = 1

    def close(self) -> None:
        for memory in (self._words, *self.put, *(one for row in self.got for one in row)):
            memory.close()


@dataclass(frozen=True)
class Work:
    """The ring and the numbers that a process of the crowd works on."""

    path: Path
    kind: int
    index: int  # among the producers, or the consumers
    seed: int
    journal: Journal
    stop_at: Callable[[int], None] | None  # with a stepped build
    steps: tuple[int, ...]
    stop_one_in: int

    def attach(self) -> PairRing | SharedRing:
        from tailrace.ring.pair import PairRing
        from tailrace.ring.shared import SharedRing

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # also if it is stopped when its parent dies
        return (PairRing if self.kind == layout.PAIR else SharedRing).attach(self.path)

    def perhaps_stop(self, rng: random.Random) -> None:
        if self.stop_at is not None and rng.randrange(self.stop_one_in) == 0:
            self.stop_at(rng.choice(self.steps))


def stamped(producer: int, number: int, length: int) -> bytes:
    begin = number % (len(BODY) - length)
    body = BODY[begin : begin + length]
    check = zlib.crc32(body, zlib.crc32(_HEAD.pack(producer, number, length, 0)))
    return _HEAD.pack(producer, number, length, check) + body


def check_stamp(payload: bytes | memoryview) -> tuple[int, int]:
    """Producer and number."""
    producer, number, length, check = _HEAD.unpack_from(payload)
    body = payload[_HEAD.size :]
    if len(body) != length or zlib.crc32(body, zlib.crc32(_HEAD.pack(producer, number, length, 0))) != check:
        raise AssertionError(f"broken record: producer={producer} number={number} bytes={len(body)} said={length}")
    return producer, number


def _length(rng: random.Random, capacity: int) -> int:
    """Mostly small, some large, a few as large as can be."""
    dice = rng.randrange(1000)
    limit = layout.largest_payload(capacity) - 3 * (_HEAD.size + 4)
    return limit if dice == 0 else rng.randrange(limit // 4) if dice < 40 else rng.randrange(300)


def produce(work: Work) -> None:
    ring, journal, rng = work.attach(), work.journal, random.Random(work.seed)
    marks, capacity = journal.put[work.index], ring.segment.capacity
    while not journal.over:
        number = journal.word(work.index)
        in_batch = 3 if work.kind == layout.SHARED and rng.randrange(20) == 0 else 1
        if number + in_batch > NUMBERS:
            return
        journal.set_word(work.index, number + in_batch)
        marks[number : number + in_batch] = bytes([STARTED]) * in_batch
        length = _length(rng, capacity) // in_batch
        payloads = [stamped(work.index, number + offset, length) for offset in range(in_batch)]
        work.perhaps_stop(rng)
        while not _put(ring, payloads):
            if journal.over:
                return
        marks[number : number + in_batch] = bytes([RETURNED]) * in_batch


def _put(ring: PairRing | SharedRing, payloads: list[bytes]) -> bool:
    if len(payloads) == 1:
        return ring.put(payloads[0], WAIT_S)
    return ring.put_batch(payloads, WAIT_S)  # type: ignore[union-attr]


def consume(work: Work) -> None:
    ring, journal, rng = work.attach(), work.journal, random.Random(work.seed)
    given_back = journal.word(journal.producers)
    last = [-1] * journal.producers
    while True:
        work.perhaps_stop(rng)
        try:
            records = ring.look(rng.randrange(1, 20), WAIT_S)
        except RingClosed:
            return
        for target, view in records:
            for producer, number in _stamps(target, view):
                if number <= last[producer] or (work.kind == layout.PAIR and number < given_back):
                    raise AssertionError(f"out of order: producer={producer} number={number} last={last[producer]}")
                last[producer] = number
                marks = journal.got[work.index][producer]
                marks[number] = 1 if work.kind == layout.PAIR else marks[number] + 1
        del records
        ring.release()
        if work.kind == layout.PAIR:
            journal.set_word(journal.producers, last[0] + 1)


def _stamps(target: int, view: memoryview) -> list[tuple[int, int]]:
    from tailrace.ring.shared import split_batch

    parts: list[bytes] | list[memoryview] = split_batch(bytes(view)) if target & layout.BATCH else [view]
    return [check_stamp(part) for part in parts]


def run(work: Work, role: Callable[[Work], None]) -> None:
    """In a forked process: do it and end, without going back."""
    try:
        role(work)
    except BaseException as error:
        os.write(2, f"violation in {role.__name__} {work.index}: {type(error).__name__}: {error}\n".encode())
        os._exit(1)
    os._exit(0)
