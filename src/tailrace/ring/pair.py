"""A ring between two processes, one that writes and one that reads."""

from __future__ import annotations

from pathlib import Path

from tailrace.ring import layout
from tailrace.ring._ring import Pair
from tailrace.ring.end import RingEnd
from tailrace.ring.segment import Segment


class PairRing(RingEnd[Pair]):
    """One end of it. Which one is up to the caller, who must not be both and must not be two."""

    def __init__(self, segment: Segment) -> None:
        super().__init__(segment, Pair(segment.memory))

    @classmethod
    def create(cls, run: str, least_bytes: int) -> PairRing:
        return cls(Segment.create(run, layout.PAIR, least_bytes))

    @classmethod
    def attach(cls, path: Path, nonce: bytes | None = None) -> PairRing:
        return cls(Segment.attach(path, layout.PAIR, nonce))
