"""A pair of Count-Min sketches: how often an item occurred and how long it took in all, in a few hundred cells.

An item adds to one cell in each row. Cells are shared, so counts are never too small. The row with the smallest count
is the least distorted, and the ratio of its two cells estimates the item's mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from tailrace.errors import OptionError, shorten
from tailrace.policy.numbers import is_number, is_whole

PRIME = (1 << 61) - 1
"""Modulus of the hash functions of Carter and Wegman. Items are reduced to less than this."""


class Cells(NamedTuple):
    """The content of a pair, all rows in one tuple each."""

    counts: tuple[int, ...]
    sums: tuple[int, ...]

    @classmethod
    def total(cls, parts: Sequence[Cells]) -> Cells:
        """The sum of several contents, which must have the same shape."""
        counts = tuple(map(sum, zip(*(part.counts for part in parts), strict=True)))
        return cls(counts, tuple(map(sum, zip(*(part.sums for part in parts), strict=True))))


class Shape:
    """The size and the hash functions of a sketch. All that exchange sketches must have equal ones."""

    __slots__ = ("_hashes", "columns", "rows")

    def __init__(self, epsilon: float, delta: float, seed: int) -> None:
        if not (is_number(epsilon) and is_number(delta)) or epsilon <= 0 or not 0 < delta < 1:
            raise OptionError(
                f"a sketch needs epsilon > 0 and 0 < delta < 1: epsilon={shorten(epsilon)} delta={shorten(delta)}: "
                "were the two swapped?"
            )
        if not is_whole(seed):
            raise OptionError(f"a sketch's seed is a whole number: seed={shorten(seed)}")
        self.rows = math.ceil(math.log2(1 / delta))
        self.columns = math.ceil(math.e / epsilon)
        rng = Random(seed)
        self._hashes = [(rng.randrange(1, PRIME), rng.randrange(PRIME)) for _ in range(self.rows)]

    def cells_of(self, item: int) -> tuple[int, ...]:
        """One cell in each row, as positions in the content. Two items share a cell with probability 1/columns."""
        columns = self.columns
        item %= PRIME
        return tuple(
            [row * columns + (a * item + b) % PRIME % columns for row, (a, b) in enumerate(self._hashes)],
        )


class CountMinPair:
    """Counts and sums of the amounts that were added."""

    __slots__ = ("counts", "sums")

    def __init__(self, shape: Shape) -> None:
        size = shape.rows * shape.columns
        self.counts = [0] * size
        self.sums = [0] * size

    def add(self, cells: tuple[int, ...], amount: int) -> None:
        counts, sums = self.counts, self.sums
        for cell in cells:
            counts[cell] += 1
            sums[cell] += amount

    def means(self) -> list[float]:
        """The mean of each cell; 0 if it is empty."""
        return [total / count if count else 0.0 for count, total in zip(self.counts, self.sums, strict=True)]

    def content(self) -> Cells:
        return Cells(tuple(self.counts), tuple(self.sums))


class Estimates:
    """Estimates from a content. Means by cell are computed once, since there is a query for every tuple."""

    __slots__ = ("_counts", "_means", "overall")

    def __init__(self, content: Cells, rows: int) -> None:
        columns = len(content.counts) // rows
        total = sum(content.counts[:columns])
        self.overall = sum(content.sums[:columns]) / total if total else 0.0
        self._counts = content.counts
        # An item that was never seen may have an empty cell. The paper does not say what it costs; here, the mean.
        self._means = [
            added / count if count else self.overall for count, added in zip(content.counts, content.sums, strict=True)
        ]

    def of(self, cells: tuple[int, ...]) -> float:
        """The mean in the row with the smallest count, in the first of several."""
        counts = self._counts
        best = cells[0]
        least = counts[best]
        for cell in cells:
            if counts[cell] < least:
                best, least = cell, counts[cell]
        return self._means[best]
