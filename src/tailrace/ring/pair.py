"""A ring with one writing and one reading process."""

from __future__ import annotations

from pathlib import Path

from tailrace.ring import layout
from tailrace.ring._ring import Pair
from tailrace.ring.end import RingEnd
from tailrace.ring.segment import Segment


class PairRing(RingEnd[Pair]):
    """One end of the ring. The caller must ensure that there is only one writer and only one reader."""

    def __init__(self, segment: Segment) -> None:
        super().__init__(segment, Pair(segment.memory))

    @classmethod
    def create(cls, run: str, least_bytes: int) -> PairRing:
        return cls(Segment.create(run, layout.PAIR, least_bytes))

    @classmethod
    def attach(cls, path: Path, nonce: bytes | None = None) -> PairRing:
        return cls(Segment.attach(path, layout.PAIR, nonce))
