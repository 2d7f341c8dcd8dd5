"""The event queue: events happen in the order of (time, priority, sequence)."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Engine:
    """Future events and the current virtual time."""

    def __init__(self) -> None:
        self.now_ns = 1  # not 0, which means "never" in some places
        self.events = 0
        self._queue: list[tuple[int, int, int, Callable[[], None]]] = []
        self._sequence = 0

    def clock(self) -> int:
        return self.now_ns

    def after(self, delay_ns: int, action: Callable[[], None], priority: int = 0) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (self.now_ns + delay_ns, priority, self._sequence, action))

    def run(self, until: Callable[[], bool], max_events: int) -> bool:
        """Run events until the condition holds. Returns False if it did not within ``max_events``."""
        while not until():
            if not self._queue or self.events >= max_events:
                return False
            self.now_ns, _, _, action = heapq.heappop(self._queue)
            self.events += 1
            action()
        return True
