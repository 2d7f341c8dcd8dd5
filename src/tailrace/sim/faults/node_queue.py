"""A simulated node's queue: what is drawn goes with the process that drew it, and the rest stays for who has it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from tailrace.core.plan.node_groups import NodeGroup

MOST = 4
"""Records that fit, so that there are times when none does."""


class NodeQueue:
    """One for all of a node group: memory outlives any process."""

    def __init__(self, group: NodeGroup) -> None:
        self.group = group
        self._records: deque[tuple[int, Sequence[Any]]] = deque()

    @property
    def full(self) -> bool:
        return len(self._records) >= MOST

    def put(self, now_ns: int, bundles: Sequence[Any]) -> None:
        self._records.append((now_ns, bundles))

    def __bool__(self) -> bool:
        return bool(self._records)

    def take(self, most: int) -> tuple[int, Sequence[Any]]:
        return self._records.popleft() if self._records else (0, ())

    def pass_on(self) -> None:
        """Nobody is told of anything here: all look when it is their turn."""
