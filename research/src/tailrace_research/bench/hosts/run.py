"""``bench hosts``: for how long nothing is completed when a host, an executor or a process is lost."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from tailrace.errors import OptionError
from tailrace.testing.cluster import Box, why_no_box
from tailrace_research.bench.hosts.disturbances import (
    cut_gap_s,
    executor_kill_gap_s,
    false_deaths,
    process_kill_gap_s,
)
from tailrace_research.bench.hosts.driver import WORKERS
from tailrace_research.bench.turns import (
    Contest,
    Figures,
    Say,
    aligned,
    machine_facts,
    machine_line,
    range_of,
    summarise,
    take_turns,
)

HOSTS = 3

VICTIM = 0
"""The worker that is lost. It hosts the source: when another one is lost, roots that do not pass it are completed all
the time."""

TITLES = {
    "cut_gap_s": "one of three hosts is cut off, in the box",
    "executor_kill_gap_s": "an executor is killed, in the box",
    "process_kill_gap_s": "a process is killed, plain processes",
}


@dataclass(frozen=True)
class HostsSizes:
    """How much is measured."""

    repeats: int = 3
    per_s: float = 300.0
    minutes: float = 10.0  # of a busy machine; 0: not at all


def run_hosts_benchmark(sizes: HostsSizes, say: Say) -> dict[str, Any]:
    """Measure everything, telling ``say`` how it goes. The result is flat: see ``summarise``."""
    why_not = why_no_box()
    if why_not is not None:
        raise OptionError(f"there can be no cluster in a box here: {why_not}")
    facts = machine_facts()
    with ExitStack() as stack:
        box = stack.enter_context(Box(HOSTS))
        contests = [
            _contest("cut_gap_s", lambda: cut_gap_s(box, sizes.per_s, VICTIM)),
            _contest("executor_kill_gap_s", lambda: executor_kill_gap_s(box, sizes.per_s, VICTIM)),
            _contest("process_kill_gap_s", lambda: process_kill_gap_s(sizes.per_s, VICTIM)),
        ]
        result = summarise(take_turns(contests, sizes.repeats, say, in_words))
        if sizes.minutes:
            say(f"a busy machine for {sizes.minutes:g} minutes")
            result["false_deaths"] = false_deaths(box, sizes.per_s, sizes.minutes, random.Random(1))
    return {**result, "minutes": sizes.minutes, "repeats": sizes.repeats, "per_s": sizes.per_s, **facts}


def _contest(key: str, measure: Callable[[], float]) -> Contest:
    return Contest(TITLES[key], lambda: {key: measure()})


def in_words(figures: Figures) -> str:
    return ", ".join(f"{key} {value:.2f}" for key, value in figures.items())


def render_table(result: dict[str, Any]) -> str:
    """Medians, and the range of the repeats in brackets."""
    rows = [["longest time without a completed root", "s", ""]]
    rows += [[title, f"{result[key]:.2f}", range_of(result, key, "{:.2f}")] for key, title in TITLES.items()]
    lines = aligned(rows)
    if "false_deaths" in result:
        lines.append(f"\n{result['false_deaths']} false deaths in {result['minutes']:g} minutes on a busy machine.")
    how = f"{result['per_s']:g} roots/s on {WORKERS} workers. Medians of {result['repeats']} repeats [least..most]."
    return "\n".join([*lines, "", how, machine_line(result)])
