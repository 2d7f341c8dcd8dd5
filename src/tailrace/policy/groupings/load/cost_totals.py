"""What a grouping takes tuples to cost, added up, so that it can be held against what they did cost."""

from __future__ import annotations


class CostTotals:
    """Of one sending half. A half that estimates has one, as ``estimated``."""

    __slots__ = ("total_ns", "tuples")

    def __init__(self) -> None:
        self.tuples = 0
        self.total_ns = 0.0

    def add(self, cost_ns: float, tuples: int = 1) -> None:
        self.tuples += tuples
        self.total_ns += cost_ns * tuples
