"""The state that a later run begins from: prefixes and the epochs in use, stored together, one write at a time.

A write may take milliseconds or seconds, and decisions do not wait for it. Prefixes that move meanwhile go into the
next write. Workers are told exactly the prefixes of a finished write, never those that have moved since it began.
"""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.core.protocol.messages import Persist, Position


class StoredState:
    """``positions`` are the stored prefixes. ``reached`` are those that ledgers have reported, stored or not."""

    def __init__(self, positions: dict[int, Position], next_epoch: int) -> None:
        self.positions = positions
        self.reached = dict(positions)
        self.next_epoch = next_epoch  # as stored: no later run uses a lower epoch
        self.under_way: Persist | None = None
        self._moved: set[int] = set()  # splits whose prefix has moved since the last write began
        self._writing: set[int] = set()  # splits whose prefix moves with the write under way
        self._broken = False

    def reach(self, positions: Mapping[int, Position]) -> bool:
        """Ledgers have reported these prefixes. Returns whether any has moved."""
        moved = {split: one for split, one in positions.items() if one.offset > self.reached[split].offset}
        self.reached.update(moved)
        self._moved.update(moved)
        return bool(moved)

    def begin(self, next_epoch: int) -> list[Persist]:
        """The next write, if there is something to write and none is under way."""
        if self._broken or self.under_way is not None or not (self._moved or next_epoch > self.next_epoch):
            return []
        self.under_way = Persist(dict(self.reached), next_epoch)
        self._writing, self._moved = self._moved, set()
        return [self.under_way]

    def done(self) -> dict[int, int]:
        """The write under way is on disk. Returns the prefixes that moved with it."""
        written, self.under_way = self.under_way, None
        assert written is not None, "nothing was being stored"
        self.next_epoch = written.next_epoch
        moved = {split: written.positions[split] for split in sorted(self._writing)}
        self.positions.update(moved)
        return {split: position.offset for split, position in moved.items()}

    def failed(self) -> None:
        """The write under way has failed, and none will follow."""
        self.under_way = None
        self._broken = True
