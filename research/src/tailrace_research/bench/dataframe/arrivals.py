"""Rows that arrive at random moments, about one in a hundred fifty times as slow, and the function that they go to.

A feed sends them as lines, and both contenders of the row ``stream`` call ``work`` with a line.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tailrace.clock import SECOND_NS

GENTLY = 0.1  # of the rate, at the beginning
SLOW_TIMES = 50
SLOW_SHARE = 0.01
SCHEMA = "id long, slow boolean, due_ns long, began_ns long, ended_ns long"


@dataclass(frozen=True)
class Arrivals:
    """When rows are due, counted from the start, and which of them are slow."""

    due_ns: Sequence[int]
    slow: Sequence[bool]
    cost_s: float  # of a row that is not slow

    def line(self, number: int, due_ns: int) -> str:
        """A line as the feed sends it: the row's number, when it is due by the machine's clock, cost and kind."""
        slow = self.slow[number]
        return f"{number},{due_ns},{self.cost_s * (SLOW_TIMES if slow else 1):.6f},{int(slow)}"


def draw_arrivals(seconds: float, rate: float, cost_s: float, seed: int, gently_s: float = 0.0) -> Arrivals:
    """A Poisson process of this rate. It begins with a tenth of it, for as long as contenders need to get warm."""
    rng = Random(seed)
    due_ns: list[int] = []
    now_s = 0.0
    while now_s < seconds:
        now_s += rng.expovariate(rate * GENTLY if now_s < gently_s else rate)
        due_ns.append(int(now_s * SECOND_NS))
    return Arrivals(due_ns, [rng.random() < SLOW_SHARE for _ in due_ns], cost_s)


def work(line: str) -> dict[str, Any]:
    """Wait for as long as the row costs, and say when that was."""
    number, due_ns, cost_s, slow = line.split(",")
    began_ns = time.monotonic_ns()
    time.sleep(float(cost_s))
    row = {"id": int(number), "slow": slow == "1", "due_ns": int(due_ns), "began_ns": began_ns}
    return {**row, "ended_ns": time.monotonic_ns()}
