"""Totals of what a grouping has estimated tuples to cost, so that they can be compared with what tuples did cost."""

from __future__ import annotations


class CostTotals:
    """The estimates of one chooser, which has them as ``estimated``."""

    __slots__ = ("total_ns", "tuples")

    def __init__(self) -> None:
        self.tuples = 0
        self.total_ns = 0.0

    def add(self, cost_ns: float, tuples: int = 1) -> None:
        self.tuples += tuples
        self.total_ns += cost_ns * tuples
