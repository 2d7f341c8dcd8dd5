"""A study: a grid of simulations, how its results are summed up, and what they are held against.

A study is plain data and pure functions. It knows no Spark: its aggregation is SQL text, its cell function takes a
dictionary of parameters and returns a dictionary of measures, and can run anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tailrace.chart import Chart
from tailrace.errors import OptionError
from tailrace_research.reproduce.fingerprint import fingerprint

Cell = Mapping[str, Any]
"""The parameters of one simulation."""

Cells = Callable[[int, int], Sequence[Cell]]
"""The grid for so many streams and seeds, without duplicates."""

Row = Mapping[str, Any]
"""One row of an aggregation."""

FORMATS: dict[str, tuple[float, str, str]] = {
    "%": (100.0, ".1f", " %"),
    "x": (1.0, ".2f", "x"),
    "#": (1.0, ",.0f", ""),
    "": (1.0, ",.4g", ""),
}
"""Unit to factor, number format, and what follows the number; # is for counts."""


@dataclass(frozen=True)
class Claim:
    """One thing a paper says, or one that it leaves out and a reader would ask for; and what we found."""

    key: str  # in JSON, where its interval is key_low and key_high
    text: str
    unit: str  # of FORMATS; a share is stored as such and shown in per cent
    theirs: float | None  # None: the paper does not say
    ours: float
    low: float | None = None  # 95% confidence
    high: float | None = None
    where: str = ""  # the point of the grid

    @property
    def difference(self) -> float | None:
        return None if self.theirs is None else self.ours - self.theirs


class Drawn(Protocol):
    """The part of a figure that a report needs: simulated ones and measured ones have it."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def charts(self) -> Callable[[Sequence[Row]], Mapping[str, Chart]]: ...


@dataclass(frozen=True)
class Figure:
    """One figure of a paper."""

    name: str
    title: str
    cells: Cells
    sql: str  # over the views `cells` and `student_t` (n, t), one row a point of the grid
    claims: Callable[[Sequence[Row]], Sequence[Claim]]
    charts: Callable[[Sequence[Row]], Mapping[str, Chart]]  # by the part of the file's name after the figure's


@dataclass(frozen=True)
class Study:
    """Law: ``run_cell`` depends on the cell alone, bit for bit, in every process; and it can be imported by name."""

    name: str
    parameters: Mapping[str, type]  # of a cell: names and types, in order
    measures: Mapping[str, Any]  # of a result: int, float, str, or list[float]
    run_cell: Callable[[Cell], Mapping[str, Any]]
    figures: Sequence[Figure]
    modules: Sequence[str]  # whose code the results depend on, with all that they import
    timings: Callable[[], Sequence[Claim]] | None = None  # measured in each run, on the driver: never a cell

    def figure(self, name: str) -> Figure:
        for figure in self.figures:
            if figure.name == name:
                return figure
        names = ", ".join(figure.name for figure in self.figures)
        raise OptionError(f"no such figure: study={self.name} figure={name!r}: did you mean one of {names}?")

    def fingerprint(self) -> str:
        """Names the code that makes the results: results of other code are not used."""
        return fingerprint(self.modules)


def merged_cells(figures: Sequence[Figure], streams: int, seeds: int) -> list[Cell]:
    """The cells that all these figures need, each once."""
    found: dict[tuple[Any, ...], Cell] = {}
    for figure in figures:
        for cell in figure.cells(streams, seeds):
            found.setdefault(tuple(cell.values()), cell)
    return list(found.values())
