"""Hone's slotted model: by hand on a few tuples, by theory on many, and the same in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from random import Random
from statistics import fmean

import pytest

from tailrace.errors import OptionError
from tailrace.policy.send_order.api import SendScheduler
from tailrace.policy.send_order.fifo import fifo
from tailrace.policy.send_order.largest_backlog import lbf, lbf_work
from tailrace.policy.send_order.round_robin import round_robin
from tailrace_research.reproduce.hone.slots import Arrival, SlotsResult, jain_index, poisson_arrivals, simulate_slots

SLOT_NS = 100_000
QUEUES = 10


def simulate(scheduler: SendScheduler, arrivals: list[Arrival], queues: int, slots: int) -> SlotsResult:
    return simulate_slots(
        scheduler,
        arrivals,
        queues=queues,
        slots=slots,
        slot_ns=SLOT_NS,
        rng=Random(0),
        sample_at=range(1, slots + 1) if slots < 10 else (),
    )


def stream(rate_per_s: float, slots: int, seed: int, queues: int = QUEUES) -> list[Arrival]:
    return list(poisson_arrivals(queues, rate_per_s, slots * SLOT_NS, Random(seed)))


def test_by_hand() -> None:
    """Two tuples for queue 0 and one for queue 1 in the first slot; the paper's round robin then visits 0, 1, 2, 0."""
    arrivals = [Arrival(10, 0), Arrival(20, 1), Arrival(30, 0)]
    assert simulate(round_robin(skip_empty=False), arrivals, 3, 5) == SlotsResult(
        max_backlog=1,
        max_seen=2,
        delays_ns=[SLOT_NS - 10, 2 * SLOT_NS - 20, 4 * SLOT_NS - 30],
        whole_slots=0 + 1 + 3,
        left_behind=0,
        lost_slots=1,
        sampled=[[1, 1, 0], [1, 0, 0], [1, 0, 0], [0, 0, 0], [0, 0, 0]],
    )


def test_what_cannot_leave_in_time_is_left_behind() -> None:
    done = simulate(lbf(), [Arrival(10, 0)] * 3 + [Arrival(SLOT_NS * 2, 1)], 2, 2)
    assert (len(done.delays_ns), done.left_behind, done.max_seen, done.max_backlog) == (2, 1, 3, 2)


@pytest.mark.parametrize("scheduler", [lbf(), lbf_work(), round_robin(), fifo()], ids=lambda scheduler: scheduler.name)
def test_no_work_conserving_scheduler_changes_how_many_wait(scheduler: SendScheduler) -> None:
    """Conservation: which tuple leaves differs, that one leaves does not. Hence one mean delay for all of them."""
    arrivals = stream(700, 5_000, seed=3)
    ours, fifos = simulate(scheduler, arrivals, QUEUES, 5_000), simulate(fifo(), arrivals, QUEUES, 5_000)
    assert ours.lost_slots == 0
    assert len(ours.delays_ns) + ours.left_behind == sum(arrival.at_ns < 5_000 * SLOT_NS for arrival in arrivals)
    assert ours.left_behind == fifos.left_behind
    assert max(ours.delays_ns) >= max(fifos.delays_ns)


def test_work_counts_as_tuples_do_where_all_cost_the_same() -> None:
    arrivals = stream(900, 5_000, seed=4)
    without_age = lbf_work(age_floor_ms=10_000)
    assert simulate(without_age, arrivals, QUEUES, 5_000) == simulate(lbf(), arrivals, QUEUES, 5_000)


def test_an_age_floor_bounds_the_longest_wait_where_lbf_does_not() -> None:
    arrivals = stream(950, 10_000, seed=5)
    aged, plain = (simulate(s, arrivals, QUEUES, 10_000) for s in (lbf_work(age_floor_ms=5), lbf()))
    assert max(aged.delays_ns) < max(plain.delays_ns)
    assert aged.max_backlog <= simulate(round_robin(), arrivals, QUEUES, 10_000).max_backlog


@pytest.mark.parametrize("load", [0.5, 0.7])
def test_mean_delays_against_theory(load: float) -> None:
    """M/D/1, plus half a slot until the next one begins; for the paper's round robin with service times of N slots.

    Within four standard errors of the mean over runs.
    """
    rate_per_s = load * 1_000
    waits: dict[str, list[float]] = {"one": [], "each": []}
    for seed in range(16):
        arrivals = stream(rate_per_s, 10_000, seed)
        waits["one"].append(fmean(simulate(lbf(), arrivals, QUEUES, 10_000).delays_ns) / SLOT_NS)
        each = simulate(round_robin(skip_empty=False), arrivals, QUEUES, 10_000)
        waits["each"].append(fmean(each.delays_ns) / SLOT_NS)
    queueing = load / (2 * (1 - load)) + 1 / 2
    for name, expected in (("one", queueing), ("each", QUEUES * queueing)):
        mean = fmean(waits[name])
        error = (sum((wait - mean) ** 2 for wait in waits[name]) / 15 / 16) ** 0.5
        assert abs(mean - expected) < 4 * error, f"{name}: expected={expected} given={mean} error={error}"


def test_poisson_arrivals_are_poisson() -> None:
    """As many as the rate says, in all queues alike, with a variance equal to the mean."""
    slots = 20_000
    arrivals = stream(800, slots, seed=6, queues=4)
    expected = 4 * 800 * slots * SLOT_NS / 1e9
    assert abs(len(arrivals) - expected) < 4 * expected**0.5
    for queue in range(4):
        share = sum(arrival.queue == queue for arrival in arrivals)
        assert abs(share - expected / 4) < 4 * (expected / 4) ** 0.5
    counts = [0] * (slots // 10)
    for arrival in arrivals:
        counts[arrival.at_ns // (10 * SLOT_NS)] += 1
    mean = fmean(counts)
    variance = fmean((count - mean) ** 2 for count in counts)
    assert 0.85 < variance / mean < 1.15
    assert all(a.at_ns <= b.at_ns for a, b in pairwise(arrivals))


@pytest.mark.parametrize(("queues", "rate_per_s"), [(0, 5.0), (3, 0.0), (3, float("nan"))])
def test_arrivals_that_never_come(queues: int, rate_per_s: float) -> None:
    with pytest.raises(OptionError) as caught:
        list(poisson_arrivals(queues, rate_per_s, 10, Random(0)))
    assert str(caught.value) == (
        f"nothing would ever arrive: queues={queues} rate_per_s={rate_per_s}: are both positive?"
    )


@pytest.mark.parametrize(
    ("backlogs", "expected"), [([3, 3, 3], 1.0), ([5, 0, 0, 0], 0.25), ([1, 3], 0.8), ([0, 0], None)]
)
def test_jain_index(backlogs: list[int], expected: float | None) -> None:
    assert jain_index(backlogs) == expected


def test_equal_seeds_give_equal_results_in_every_process() -> None:
    script = (
        "from random import Random\n"
        "from tailrace.policy.send_order.largest_backlog import lbf\n"
        "from tailrace_research.reproduce.hone.slots import poisson_arrivals, simulate_slots\n"
        "arrivals = list(poisson_arrivals(10, 900, 200_000_000, Random(7)))\n"
        "print(simulate_slots(lbf(), arrivals, queues=10, slots=2000, slot_ns=100_000, rng=Random(8),\n"
        "                     sample_at=[1000, 2000]))\n"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for hash_seed in ("0", "1", "random")
    }
    assert len(said) == 1
    assert said.pop().startswith("SlotsResult(max_backlog=")
