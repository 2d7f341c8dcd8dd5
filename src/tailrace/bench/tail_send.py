"""The row about send schedulers: one of twelve tasks bursts on a link that is nearly used up, with bounded queues.

Whoever sends next, the mean latency of all tuples is the same as long as the link never rests while something waits.
What differs is whose tuples wait, how large a backlog gets, and how long tasks are held back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count
from random import Random

from tailrace.bench.tail import SIMULATED, Result, Row, Samples, TailSizes, ratios
from tailrace.bench.turns import Contest, Figures, aligned, range_of
from tailrace.bench.workloads.bursts import MOST_TUPLES, TASKS, draw_bursts, run_bursts
from tailrace.clock import MILLISECOND_NS
from tailrace.policy import SendScheduler, Tail, fifo, lbf, lbf_work, round_robin
from tailrace.sim.sending import simulate_sending

NAME = "lbf"
SLOT_UNITS = 3
"""Units of work that a tuple takes on the link: about a thousand tuples a second leave little to the processors."""

SCHEDULERS: Mapping[str, SendScheduler] = {
    "lbf": lbf(),
    "work": lbf_work(age_floor_ms=250),
    "signal": lbf(interval_ms=50),
    "round_robin": round_robin(),
    "fifo": fifo(),
}
TITLES = {"lbf": "lbf()", "work": "lbf_work(250)", "signal": "lbf(interval_ms=50)"}
RIVALS = ("round_robin", "fifo")
STEMS = {"largest": "largest backlog", "blocked_ms": "blocked, ms", "slowest_ms": "slowest task", "mean_ms": "all"}


def measure(name: str, seed: int, sizes: TailSizes) -> Figures:
    """Figures of one live run and of its simulation."""
    bursts = draw_bursts(seed, sizes.tuples, int(SLOT_UNITS * sizes.unit_ms * MILLISECOND_NS))
    live = run_bursts(bursts, Tail(send=SCHEDULERS[name]))
    made = simulate_sending(
        SCHEDULERS[name],
        bursts.due_ns,
        size=bursts.tuple_bytes,
        bytes_per_s=bursts.bytes_per_s,
        most_tuples=MOST_TUPLES,
        rng=Random(seed),
    )
    blocked_ms = sum(made.blocked_ns) / MILLISECOND_NS
    return {
        **figures(f"{NAME}_{name}", live.latencies_ns, live.largest, sum(live.blocked_ms)),
        **figures(f"{NAME}{SIMULATED}{name}", made.latencies_ns, made.largest, blocked_ms),
    }


def figures(prefix: str, latencies_ns: Sequence[Sequence[int]], largest: Sequence[int], blocked_ms: float) -> Figures:
    means_ms = [sum(one) / len(one) / MILLISECOND_NS for one in latencies_ns if one]
    everything = [latency_ns for one in latencies_ns for latency_ns in one]
    return {
        f"{prefix}_largest": float(max(largest)),
        f"{prefix}_blocked_ms": blocked_ms,
        f"{prefix}_slowest_ms": max(means_ms),
        f"{prefix}_mean_ms": sum(everything) / len(everything) / MILLISECOND_NS,
    }


def contests(sizes: TailSizes) -> list[Contest]:
    seeds = {name: count(1) for name in SCHEDULERS}
    return [
        Contest(f"send, {name}", partial(lambda of: measure(of, next(seeds[of]), sizes), name)) for name in SCHEDULERS
    ]


def conclude(samples: Samples) -> Samples:
    """Largest backlog first beside round robin and FIFO, whichever does better."""
    found: Samples = {}
    for place, infix in (("", "_"), ("sim_", SIMULATED)):

        def against(stem: str, infix: str = infix) -> list[float]:
            sides = [
                _ratios(samples, f"{NAME}{infix}{NAME}_{stem}", f"{NAME}{infix}{rival}_{stem}") for rival in RIVALS
            ]
            return [max(pair) for pair in zip(*sides, strict=True)]

        found[f"{NAME}_{place}backlog_cut"] = [1 - ratio for ratio in against("largest")]
        found[f"{NAME}_{place}blocked_ratio"] = against("blocked_ms")
        found[f"{NAME}_{place}slowest_cut"] = [1 - ratio for ratio in against("slowest_ms")]
    return found


def _ratios(samples: Samples, above: str, below: str) -> list[float]:
    """Of a rival that was never held back nothing is a share: who is not either is as good."""
    if all(samples[below]):
        return ratios(samples, above, below)
    pairs = zip(samples[above], samples[below], strict=True)
    return [one / other if other else float(one > 0) for one, other in pairs]


def table(result: Result) -> list[str]:
    title = f"one of {TASKS} tasks bursts, queues of {MOST_TUPLES}, mean latencies in ms"
    rows: list[Sequence[str]] = [(title, *(cell for name in STEMS.values() for cell in (name, "", "simulated")))]
    for name in SCHEDULERS:
        cells: list[str] = []
        for stem in STEMS:
            form = "{:,.0f}" if stem in ("largest", "blocked_ms") else "{:,.1f}"
            key = f"{NAME}_{name}_{stem}"
            simulated = form.format(result[f"{NAME}{SIMULATED}{name}_{stem}"])
            cells += [form.format(result[key]), range_of(result, key, form), simulated]
        rows.append((TITLES.get(name, f"{name}()"), *cells))
    words = (
        f"lbf() beside the better of round_robin() and fifo(): largest backlog {result['lbf_backlog_cut']:.0%} lower, "
        f"blocked for {result['lbf_blocked_ratio']:.2f} of the time, slowest task {result['lbf_slowest_cut']:.0%} lower"
    )
    return [*aligned(rows), words]


LBF = Row(NAME, contests, conclude, table)
