"""``python -m tailrace.sim``: run the fault simulation on many seeds, or repeat one."""

from __future__ import annotations

import os
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat

import click

from tailrace.sim.faults.seeded_runs import Outcome, SimulationFailure, run_seed

CHUNK = 100


def run_chunk(seeds: range, scheduled: bool = False, sharing: bool = False) -> list[Outcome]:
    """Run these seeds, in one process of the pool."""
    return [run_seed(seed, scheduled, sharing) for seed in seeds]


@click.command()
@click.option("--seeds", default=1000, show_default=True, help="How many seeds to run, from --first on.")
@click.option("--first", default=0, show_default=True, help="The first seed.")
@click.option("--seed", type=int, default=None, help="Repeat this seed alone.")
@click.option("--journal", is_flag=True, help="With --seed: print all that happened, a line for each event.")
@click.option("--jobs", default=os.cpu_count() or 1, show_default=True, help="Processes to use.")
@click.option("--scheduled", is_flag=True, help="With a send scheduler on.")
@click.option("--sharing", is_flag=True, help="With shared queues switched again and again.")
def main(seeds: int, first: int, seed: int | None, journal: bool, jobs: int, scheduled: bool, sharing: bool) -> None:
    """Crash, cut off and confuse a simulated cluster, and check that nothing is lost or doubled."""
    if seed is not None:
        lines: list[str] = []
        try:
            outcome = run_seed(seed, scheduled, sharing, lines)
        finally:
            if journal:
                click.echo("\n".join(lines))
        click.echo(str(outcome))
        return
    if journal:
        raise click.UsageError("--journal needs --seed")
    started = time.monotonic()
    done = deaths = recoveries = 0
    chunks = [range(low, min(low + CHUNK, first + seeds)) for low in range(first, first + seeds, CHUNK)]
    with ProcessPoolExecutor(jobs) as pool:
        try:
            for outcomes in pool.map(run_chunk, chunks, repeat(scheduled), repeat(sharing)):
                done += len(outcomes)
                deaths += sum(outcome.deaths for outcome in outcomes)
                recoveries += sum(outcome.recoveries for outcome in outcomes)
                if done % (10 * CHUNK) == 0:
                    click.echo(f"{done:>7,} seeds passed, {deaths:,} deaths, {recoveries:,} recoveries")
        except SimulationFailure as failure:
            pool.shutdown(wait=False, cancel_futures=True)
            raise click.ClickException(str(failure)) from failure
    seconds = time.monotonic() - started
    click.echo(f"{done:,} seeds passed in {seconds:.0f} s: {deaths:,} deaths, {recoveries:,} recoveries")


if __name__ == "__main__":
    main()
