"""More of the row about send schedulers: the same stream from two workers of a machine, which share the link.

Each has half of it to itself; or they take turns, by what waits at the tasks of both.
"""

from __future__ import annotations

from typing import Any

from tailrace.policy import SendScheduler, Tail, fifo, lbf
from tailrace_research.bench.tail.run import SIMULATED, Result, Samples, TailSizes
from tailrace_research.bench.tail.send.bursts import MOST_TUPLES, Bursts, home, run_bursts
from tailrace_research.bench.tail.send.figures import (
    NAME,
    against,
    contests_of,
    cuts,
    live_figures,
    rows_of,
    simulated_figures,
)
from tailrace_research.bench.tail.send.node_uplink import NODE, SPLIT, simulate_node
from tailrace_research.bench.turns import Contest, Figures, aligned

SENDERS = 2
WAYS: dict[str, tuple[str, SendScheduler]] = {
    "split": (SPLIT, lbf()),
    "node": (NODE, lbf()),
    "node_fifo": (NODE, fifo()),
}
"""How the link is shared, and the order."""
TITLES = {"split": "lbf(), half for each", "node": "lbf(), together", "node_fifo": "fifo(), together"}
KEY = f"{NAME}_node"


def measure(name: str, seed: int, bursts: Bursts) -> Figures:
    sharing, scheduler = WAYS[name]
    mbps = bursts.bytes_per_s * 8 / 1e6
    link: dict[str, Any] = {"link_mbps": mbps, "link_scope": "node"}
    if sharing == SPLIT:
        link = {"link_mbps": mbps / SENDERS}
    made = simulate_node(
        sharing,
        scheduler,
        bursts.due_ns,
        home(SENDERS),
        size=bursts.tuple_bytes,
        bytes_per_s=bursts.bytes_per_s,
        most_tuples=MOST_TUPLES,
        seed=seed,
    )
    live = run_bursts(bursts, Tail(send=scheduler), senders=SENDERS, **link)
    return live_figures(name, live) | simulated_figures(name, made)


def contests(sizes: TailSizes) -> list[Contest]:
    return contests_of(tuple(WAYS), measure, sizes)


def conclude(samples: Samples) -> Samples:
    """One order for the node beside half of the link for each worker."""
    found: Samples = {}
    for key, infix in ((KEY, "_"), (f"{KEY}_sim", SIMULATED)):
        found |= cuts(samples, infix, key, "node", ["split"])
        found[f"{key}_mean_cut"] = [1 - share for share in against(samples, infix, "node", ["split"], "mean_ms")]
    return found


def table(result: Result) -> list[str]:
    title = f"the same from {SENDERS} workers of one machine"
    words = (
        f"lbf() for both together beside half of the link for each: largest backlog {result[f'{KEY}_backlog_cut']:.0%} "
        f"lower, blocked for {result[f'{KEY}_blocked_ratio']:.2f} of the time, slowest task "
        f"{result[f'{KEY}_slowest_cut']:.0%} lower, all {result[f'{KEY}_mean_cut']:.0%} lower"
    )
    return [*aligned(rows_of(result, title, TITLES)), words]
