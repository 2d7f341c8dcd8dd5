"""Hone's simulation (Sec. 4.4): Poisson arrivals into N queues, 10,000 slots of 100 us, one tuple leaves a slot.

Sweep A has 10 queues and 500 to 5,000 tuples/s into each, sweep B 1,000 tuples/s and 10 to 100 queues. A node sends
10,000 tuples/s at most: A is below that only up to 1,000/s, B never. The paper's figures are lost; its text names the
ranges and not the steps. Ours are fine where queues are stable, which is where schedulers differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from random import Random
from statistics import fmean
from typing import Any

from tailrace.policy.hashing import stable_hash
from tailrace.policy.send_order.api import SendScheduler
from tailrace.policy.send_order.fifo import fifo
from tailrace.policy.send_order.largest_backlog import lbf, lbf_work
from tailrace.policy.send_order.round_robin import round_robin
from tailrace_research.reproduce.hone.figures import figure_6, figure_7, figure_8
from tailrace_research.reproduce.hone.slots import jain_index, poisson_arrivals, simulate_slots
from tailrace_research.reproduce.study import Cell, Study

SLOTS = 10_000
SLOT_NS = 100_000
SAMPLED = range(1_000, 10_000, 1_000)
AGE_FLOOR_MS = 5.0  # 50 slots: a few times the mean delay at a load of 0.95

SCHEDULERS: dict[str, SendScheduler] = {
    scheduler.name: scheduler
    for scheduler in (lbf(), lbf_work(AGE_FLOOR_MS, age_drains=0), round_robin(), round_robin(skip_empty=False), fifo())
}

RATES = (*range(500, 1_000, 50), *range(1_000, 5_001, 500))
QUEUES = range(10, 101, 10)
SWEEP_A = [(10, rate) for rate in RATES]
SWEEP_B = [(queues, 1_000) for queues in QUEUES]
SWEEP_B_AT_500 = [(queues, 500) for queues in QUEUES]
"""Not in the paper: what its Fig. 7b looks like if each queue got half of what the text says."""

PARAMETERS = {"queues": int, "rate": int, "scheduler": str, "stream": int, "seed": int}
MEASURES = {
    "max_backlog": int,
    "max_seen": int,
    "mean_delay_us": float,
    "mean_delay_slots": float,
    "p99_delay_us": float,
    "p999_delay_us": float,
    "max_delay_us": float,
    "left_behind": int,
    "lost_slots": int,
    "jain": list[float],
}


def run_cell(cell: Cell) -> dict[str, Any]:
    """All schedulers meet the same arrivals in a stream; the seed is for choices of their own."""
    queues, rate, stream = cell["queues"], cell["rate"], cell["stream"]
    arrivals = poisson_arrivals(queues, rate, SLOTS * SLOT_NS, Random(stable_hash(("hone", queues, rate, stream))))
    done = simulate_slots(
        SCHEDULERS[cell["scheduler"]],
        arrivals,
        queues=queues,
        slots=SLOTS,
        slot_ns=SLOT_NS,
        rng=Random(stable_hash(("hone", stream, cell["seed"]))),
        sample_at=SAMPLED,
    )
    delays_ns = done.delays_ns
    return {
        "max_backlog": done.max_backlog,
        "max_seen": done.max_seen,
        "mean_delay_us": fmean(delays_ns) / 1_000,
        "mean_delay_slots": done.whole_slots / len(delays_ns),
        "p99_delay_us": _quantile(delays_ns, 0.99) / 1_000,
        "p999_delay_us": _quantile(delays_ns, 0.999) / 1_000,
        "max_delay_us": delays_ns[-1] / 1_000,
        "left_behind": done.left_behind,
        "lost_slots": done.lost_slots,
        "jain": [jain_index(backlogs) for backlogs in done.sampled],
    }


def _quantile(ordered: Sequence[int], share: float) -> int:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def _cells(points: Iterable[tuple[int, int]], schedulers: Iterable[str], streams: int, seeds: int) -> list[Cell]:
    return [
        dict(zip(PARAMETERS, (queues, rate, scheduler, stream, seed), strict=True))
        for (queues, rate), scheduler, stream, seed in product(
            dict.fromkeys(points), schedulers, range(streams), range(seeds)
        )
    ]


def both_sweeps(streams: int, seeds: int) -> list[Cell]:
    return _cells([*SWEEP_A, *SWEEP_B], SCHEDULERS, streams, seeds)


def fairness_sweeps(streams: int, seeds: int) -> list[Cell]:
    compared = ("lbf", "round_robin", "round_robin_paper")
    return _cells([*SWEEP_A, *SWEEP_B, *SWEEP_B_AT_500], compared, streams, seeds)


HONE = Study(
    name="hone",
    parameters=PARAMETERS,
    measures=MEASURES,
    run_cell=run_cell,
    figures=(figure_6(both_sweeps), figure_7(fairness_sweeps), figure_8(both_sweeps)),
    modules=("tailrace_research.reproduce.hone.study", "tailrace_research.reproduce.hone.slots"),
)
