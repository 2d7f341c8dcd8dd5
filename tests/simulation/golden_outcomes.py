"""The golden file: a short hash of what each of 9,000 simulated runs did, to show a change of behaviour of the core.

    python tests/simulation/golden_outcomes.py            compares all seeds with the file
    python tests/simulation/golden_outcomes.py --write    makes the file again, after a change that is on purpose

The commit that changes the file says why the runs are others.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from tailrace.sim.faults.seeded_runs import SimulationFailure, run_seed

FOLDER = Path(__file__).parent / "golden"
SEEDS = 3_000
MODES: Mapping[str, Mapping[str, bool]] = {"plain": {}, "scheduled": {"scheduled": True}, "sharing": {"sharing": True}}
"""Each with the arguments that ``run_seed`` takes for it. The command line has options of the same names."""

FAILED = "failed"
PER_LINE = 10
CHUNK = 50
SHOWN = 20
"""Seeds that a report names."""


def digest_of(seed: int, mode: str) -> str:
    try:
        return run_seed(seed, **MODES[mode]).digest
    except SimulationFailure:
        return FAILED


def digests(mode: str, seeds: range, jobs: int | None = None) -> list[str]:
    with ProcessPoolExecutor(jobs or os.cpu_count()) as pool:
        return list(pool.map(partial(digest_of, mode=mode), seeds, chunksize=CHUNK))


def read(mode: str) -> list[str]:
    """The hash of each seed from 0 on."""
    return [digest for line in _file(mode).read_text().splitlines() for digest in line.split()[1:]]


def write(mode: str, found: list[str]) -> None:
    rows = [(low, found[low : low + PER_LINE]) for low in range(0, len(found), PER_LINE)]
    FOLDER.mkdir(exist_ok=True)
    _file(mode).write_text("".join(f"{low:04}: {' '.join(row)}\n" for low, row in rows))


def differences(mode: str, found: list[str], first: int = 0) -> str:
    """Which seeds, from ``first`` on, are not the runs that they were, and how to look at one; empty if all are."""
    golden = read(mode)[first : first + len(found)]
    differing = [first + index for index, pair in enumerate(zip(golden, found, strict=True)) if len(set(pair)) > 1]
    if not differing:
        return ""
    option = "" if mode == "plain" else f" --{mode}"
    named = ", ".join(map(str, differing[:SHOWN])) + (", ..." if len(differing) > SHOWN else "")
    return (
        f"{mode}: {len(differing)} of {len(found)} seeds differ from the golden file: {named}\n"
        f"look at one: compare what `python -m tailrace.sim --seed {differing[0]}{option} --journal` prints"
        " before and after the change\n"
        "if the change is on purpose: `python tests/simulation/golden_outcomes.py --write`, and say why in the commit"
    )


def _file(mode: str) -> Path:
    return FOLDER / f"{mode}.txt"


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare simulated runs with the golden file, or make it again.")
    parser.add_argument("--write", action="store_true", help="make the file again")
    parser.add_argument("--mode", choices=MODES, action="append", help="only this one; may be repeated")
    parser.add_argument("--jobs", type=int, help="processes to use")
    options = parser.parse_args()
    reports = []
    for mode in options.mode or MODES:
        found = digests(mode, range(SEEDS), options.jobs)
        if options.write:
            if FAILED in found:
                sys.exit(f"{mode}: seed {found.index(FAILED)} fails; the file is left as it was")
            write(mode, found)
        report = differences(mode, found)
        print(report or f"{mode}: all {SEEDS:,} seeds do what the golden file says", flush=True)
        reports += [report] if report else []
    sys.exit(bool(reports))


if __name__ == "__main__":
    main()
