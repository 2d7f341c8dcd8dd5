"""Events happen in the order of (time, priority, sequence), and in no other."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Engine:
    """A queue of things that will happen, and the time it is."""

    def __init__(self) -> None:
        self.now_ns = 1  # not 0, which stands for "never" in places
        self.events = 0
        self._queue: list[tuple[int, int, int, Callable[[], None]]] = []
        self._sequence = 0

    def clock(self) -> int:
        return self.now_ns

    def after(self, delay_ns: int, action: Callable[[], None], priority: int = 0) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (self.now_ns + delay_ns, priority, self._sequence, action))

    def run(self, until: Callable[[], bool], max_events: int) -> bool:
        """Let things happen until the condition holds. False if it never did within the limit."""
        while not until():
            if not self._queue or self.events >= max_events:
                return False
            self.now_ns, _, _, action = heapq.heappop(self._queue)
            self.events += 1
            action()
        return True
