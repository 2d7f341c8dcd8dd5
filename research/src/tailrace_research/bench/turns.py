"""Contests that take turns, and what is told of them.

Contenders take turns within each repeat, so that a busy minute of the machine hurts all of them alike. What is told is
the median of the repeats, beside all of them: on a shared machine the spread is half of the answer.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol, TypeVar

from tailrace.errors import OptionError, did_you_mean

Figures = dict[str, float]
Named = TypeVar("Named", bound="HasName")
Number = TypeVar("Number", int, float)
Say = Callable[[str], None]


class HasName(Protocol):
    """A row of a benchmark, as far as choosing it goes."""

    @property
    def name(self) -> str: ...


def chosen(rows: Sequence[Named], names: Sequence[str]) -> list[Named]:
    """The rows with these names, or all rows without any name."""
    known = {row.name: row for row in rows}
    for name in names:
        if name not in known:
            raise OptionError(f"no such row: only={name}: {did_you_mean(name, known)}")
    return [known[name] for name in dict.fromkeys(names)] if names else list(rows)


@dataclass(frozen=True)
class Contest:
    """One thing that is measured, once a repeat."""

    title: str
    run: Callable[[], Figures]


def take_turns(
    contests: Sequence[Contest], repeats: int, say: Say, in_words: Callable[[Figures], str]
) -> dict[str, list[float]]:
    """Run all contests, repeat by repeat, with a line about each. Returns all repeats of each figure."""
    samples: dict[str, list[float]] = {}
    width = max((len(contest.title) for contest in contests), default=0)
    for repeat in range(repeats):
        for number, contest in enumerate(contests):
            figures = contest.run()
            for key, value in figures.items():
                samples.setdefault(key, []).append(value)
            place = f"{repeat * len(contests) + number + 1}/{repeats * len(contests)}"
            say(f"{place:>7}  {contest.title:<{width}}  {in_words(figures)}")
    return samples


def summarise(samples: dict[str, list[float]]) -> dict[str, Any]:
    """The median of each figure under its own name, and all repeats under ``<name>_spread``."""
    medians = {key: median(values) for key, values in samples.items()}
    return {**medians, **{f"{key}_spread": values for key, values in samples.items()}}


def percentile(ordered: Sequence[Number], fraction: float) -> Number:
    """The smallest value that at least ``fraction`` of all values do not exceed. ``ordered`` must not be empty."""
    rank = -int(-fraction * len(ordered) // 1)
    return ordered[max(rank, 1) - 1]


def machine_facts() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def machine_line(result: dict[str, Any]) -> str:
    return f"{result['cores']} cores, Python {result['python']}, load {result['load_before']} before the start."


def range_of(result: dict[str, Any], key: str, form: str) -> str:
    """The least and the most of a figure's repeats."""
    spread = result[f"{key}_spread"]
    return f"[{form.format(min(spread))}..{form.format(max(spread))}]" if len(spread) > 1 else ""


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join([f"{row[0]:<{widths[0]}}", *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows]
