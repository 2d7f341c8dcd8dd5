"""The row about send schedulers: one of twelve tasks bursts on a link that is nearly used up, with bounded queues.

No order of sending changes the mean latency of all tuples, as long as the link never rests while something waits. An
order decides whose tuples wait, how large a backlog gets, and how long tasks are held back. The row also measures two
workers that share the link, and a link that the kernel limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from tailrace.policy import SendScheduler, Tail, fifo, lbf, lbf_work, round_robin
from tailrace_research.bench.tail.run import SIMULATED, Result, Row, Samples, TailSizes
from tailrace_research.bench.tail.send import kernel as tail_send_kernel
from tailrace_research.bench.tail.send import node as tail_send_node
from tailrace_research.bench.tail.send.bursts import MOST_TUPLES, TASKS, Bursts, run_bursts
from tailrace_research.bench.tail.send.figures import NAME, contests_of, cuts, live_figures, rows_of, simulated_figures
from tailrace_research.bench.tail.send.worker_uplink import simulate_sending
from tailrace_research.bench.turns import Contest, Figures, aligned

SCHEDULERS: Mapping[str, SendScheduler] = {
    "lbf": lbf(),
    "work": lbf_work(),
    "signal": lbf(interval_ms=50),
    "round_robin": round_robin(),
    "fifo": fifo(),
}
TITLES = {
    "lbf": "lbf()",
    "work": "lbf_work()",
    "signal": "lbf(interval_ms=50)",
    "round_robin": "round_robin()",
    "fifo": "fifo()",
}
RIVALS = ("round_robin", "fifo")


def measure(name: str, seed: int, bursts: Bursts) -> Figures:
    """Figures of one live run and of its simulation."""
    live = run_bursts(bursts, Tail(send=SCHEDULERS[name]))
    made = simulate_sending(
        SCHEDULERS[name],
        bursts.due_ns,
        size=bursts.tuple_bytes,
        bytes_per_s=bursts.bytes_per_s,
        most_tuples=MOST_TUPLES,
        rng=Random(seed),
    )
    return live_figures(name, live) | simulated_figures(name, made)


def contests(sizes: TailSizes) -> list[Contest]:
    own = contests_of(tuple(SCHEDULERS), measure, sizes)
    return [*own, *tail_send_node.contests(sizes), *tail_send_kernel.contests(sizes)]


def conclude(samples: Samples) -> Samples:
    """Largest backlog first beside round robin and FIFO, whichever does better."""
    live = cuts(samples, "_", NAME, NAME, RIVALS)
    simulated = cuts(samples, SIMULATED, f"{NAME}_sim", NAME, RIVALS)
    return live | simulated | tail_send_node.conclude(samples) | tail_send_kernel.conclude(samples)


def table(result: Result) -> list[str]:
    title = f"one of {TASKS} tasks bursts, queues of {MOST_TUPLES}, mean latencies in ms"
    words = (
        f"lbf() beside the better of round_robin() and fifo(): largest backlog {result['lbf_backlog_cut']:.0%} lower, "
        f"blocked for {result['lbf_blocked_ratio']:.2f} of the time, slowest task {result['lbf_slowest_cut']:.0%} lower"
    )
    own = [*aligned(rows_of(result, title, TITLES)), words]
    return [*own, "", *tail_send_node.table(result), "", *tail_send_kernel.table(result)]


LBF = Row(NAME, contests, conclude, table)
