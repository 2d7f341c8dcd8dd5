"""For how long nothing was completed, from the times at which rows came to the sink."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tailrace.clock import SECOND_NS


@dataclass(frozen=True)
class Stamp:
    """A row has come to a task of the sink."""

    number: int
    at_ns: int  # by the clock that all processes of this machine share
    host: str


def read_stamps(folder: Path) -> list[Stamp]:
    """Everything that all processes have written there. A line that a kill has cut short is left out."""
    found = []
    for path in sorted(folder.glob("*.stamps")):
        *lines, _ = path.read_text().split("\n")
        for line in lines:
            number, at_ns, host = line.split()
            found.append(Stamp(int(number), int(at_ns), host))
    return found


def first_times(stamps: Iterable[Stamp]) -> list[int]:
    """When each row came for the first time, in order."""
    first: dict[int, int] = {}
    for stamp in stamps:
        first[stamp.number] = min(stamp.at_ns, first.get(stamp.number, stamp.at_ns))
    return sorted(first.values())


def counting(stamps: Iterable[Stamp], cut_host: str, cut_ns: int, healed_ns: int) -> list[Stamp]:
    """Without those of a host while it is cut off: its workers may go on, and nobody hears of what they complete."""
    return [stamp for stamp in stamps if stamp.host != cut_host or not cut_ns <= stamp.at_ns < healed_ns]


def longest_gap_s(times: Iterable[int], begin_ns: int, end_ns: int) -> float:
    """The longest time between ``begin_ns`` and ``end_ns`` that holds none of the times."""
    inside = sorted(time for time in times if begin_ns < time < end_ns)
    edges = [begin_ns, *inside, end_ns]
    return max(later - earlier for earlier, later in pairwise(edges)) / SECOND_NS
