"""How long work takes on a node whose speed changes over time."""

from __future__ import annotations

from bisect import bisect_right

from tailrace.sim.load.models.model import Node


class Pace:
    """The slowness of a node as a step function of time."""

    def __init__(self, node: Node) -> None:
        bounds = sorted({0, *(b for slow in node.slowdowns for b in (slow.begin_ns, slow.end_ns))})
        self._begins = bounds
        self._slowness = [_slowness(node, begin) for begin in bounds]
        self.constant = self._slowness[0] if len(bounds) == 1 else None

    def duration_ns(self, start_ns: int, work_ns: int) -> int:
        """The duration of work that begins now; at least 1, so that time passes."""
        if self.constant is not None:
            return max(1, int(work_ns * self.constant))
        step = bisect_right(self._begins, start_ns) - 1
        at_ns, left_ns = float(start_ns), float(work_ns)
        while step + 1 < len(self._begins):
            done_ns = (self._begins[step + 1] - at_ns) / self._slowness[step]
            if done_ns >= left_ns:
                break
            left_ns -= done_ns
            step += 1
            at_ns = self._begins[step]
        return max(1, int(at_ns + left_ns * self._slowness[step]) - start_ns)


def _slowness(node: Node, at_ns: int) -> float:
    slowness = 1 / node.speed
    for slow in node.slowdowns:
        if slow.begin_ns <= at_ns < slow.end_ns:
            slowness *= slow.factor
    return slowness
