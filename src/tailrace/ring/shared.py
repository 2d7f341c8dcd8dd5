"""A ring with many writing and many reading processes: TurboStream's OSRBuffer."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

from tailrace.errors import RingError
from tailrace.ring import layout
from tailrace.ring._ring import Shared
from tailrace.ring.end import RingEnd
from tailrace.ring.owner import is_alive, own_id
from tailrace.ring.segment import Segment

WINDOW = 64
"""How many unfinished records a reader skips. As many as there can be producers, each of which writes one at a time."""

_LENGTH = struct.Struct("<I")


class SharedRing(RingEnd[Shared]):
    """One end of the ring, for one thread of one process. It may both write and read.

    A record whose process died while writing or reading it is given up: never delivered, and counted. A process that is
    merely stopped is waited for, because it may continue to write; giving up needs proof of death. An end holds at most
    ``layout.VIEWS`` records that have not been released, and finds nothing more until they are.
    """

    def __init__(self, segment: Segment, window: int = WINDOW) -> None:
        super().__init__(segment, Shared(segment.memory, own_id(), window))
        if not self.core.register():
            self.bury_dead()
            if not self.core.register():
                raise RingError(f"all places at the ring are taken: limit={layout.SLOTS} path={segment.path}")

    @classmethod
    def create(cls, run: str, least_bytes: int, window: int = WINDOW) -> SharedRing:
        return cls(Segment.create(run, layout.SHARED, least_bytes), window)

    @classmethod
    def attach(cls, path: Path, nonce: bytes | None = None, window: int = WINDOW) -> SharedRing:
        return cls(Segment.attach(path, layout.SHARED, nonce), window)

    # -- batches

    def put_batch(self, payloads: Sequence[bytes], timeout_s: float, target: int = 0) -> bool:
        """Write all payloads as one record: one reservation, one head, one wake-up."""
        batch = list(payloads)
        size = sum(map(len, batch)) + _LENGTH.size * len(batch)
        return self._put(lambda: self.core.write_batch(target, batch), size, timeout_s)

    def get_tuples(self, limit: int, timeout_s: float) -> list[tuple[int, bytes]]:
        """Like ``get_many``, with batches split into their payloads. The limit counts records."""
        found: list[tuple[int, bytes]] = []
        for target, payload in self.get_many(limit, timeout_s):
            if target & layout.BATCH:
                found.extend((target & ~layout.BATCH, part) for part in split_batch(payload))
            else:
                found.append((target, payload))
        return found

    # -- dead processes

    def bury_dead(self) -> int:
        """Give up records that dead processes were writing or reading. Returns their number."""
        dead = [owner for owner in self.core.owners() if not is_alive(owner)]
        return self.core.bury(dead) if dead else 0

    def _look_up(self) -> None:
        self.bury_dead()

    def _unfinished(self) -> bool:
        return self.statistics().held > 0

    def detach(self) -> None:
        self.core.release()
        self.core.leave()
        super().detach()


def split_batch(payload: bytes) -> list[bytes]:
    """The payloads of a batch."""
    parts, position = [], 0
    while position < len(payload):
        head = payload[position : position + _LENGTH.size].ljust(_LENGTH.size, b"\xff")
        begin = position + _LENGTH.size
        position = begin + _LENGTH.unpack(head)[0]
        parts.append(payload[begin:position])
    if position != len(payload):
        raise RingError(f"corrupted batch: bytes={len(payload)} needed={position}; did something else write there?")
    return parts
