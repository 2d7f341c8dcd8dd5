"""The simulated queue of a node. What a process has drawn is lost with it; the rest stays for the others."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from tailrace.core.plan.node_groups import NodeGroup

MOST = 4
"""Most records in a queue, so few that it is sometimes full."""


class NodeQueue:
    """The queue of a node group. Like shared memory, it outlives any process."""

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
        """Does nothing: tasks look into the queue at each of their turns."""
