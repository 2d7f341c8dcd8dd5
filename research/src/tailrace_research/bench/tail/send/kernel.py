"""More of the row about send schedulers: over a link that the kernel limits, with ``tc tbf`` in a network namespace.

The worker that sends is alone in the namespace. Nothing limits it before the kernel does, so tuples wait in sockets.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tailrace.policy import SendScheduler, Tail, fifo, lbf
from tailrace.runtime.driver.host import SubprocessHost
from tailrace.runtime.driver.run import HostedRun
from tailrace.runtime.listening import Place
from tailrace.runtime.options import RunSettings
from tailrace.testing.namespaces import Namespaces, why_no_namespaces
from tailrace.topology import Topology
from tailrace_research.bench.tail.run import Result, Samples, TailSizes
from tailrace_research.bench.tail.send.bursts import Bursts, run_bursts
from tailrace_research.bench.tail.send.figures import NAME, contests_of, cuts, live_figures, rows_of
from tailrace_research.bench.turns import Contest, Figures, aligned
from tailrace_research.bench.workloads.hosting import host

ORDERS: dict[str, tuple[SendScheduler, bool]] = {
    "kernel": (lbf(), False),
    "kernel_fifo": (fifo(), False),
    "kernel_own": (lbf(), True),
}
"""The order, and whether ``link_mbps`` keeps tuples in front of it."""
TITLES = {"kernel": "lbf()", "kernel_fifo": "fifo()", "kernel_own": "lbf(), link_mbps"}
KEY = f"{NAME}_kernel"
FRAMES = 1.2
"""The kernel's limit as a multiple of what the tuples need: it counts headers and acks as well."""
SPARE = 1.6
"""The same where ``link_mbps`` is what limits."""


def _start(network: Namespaces, topology: Topology, **options: Any) -> HostedRun:
    """With the first worker, which sends, in the namespace and the other here."""
    workers = SubprocessHost({0: network.machines[0].prefix})
    return HostedRun(topology, RunSettings.of(options), workers, Place(network.address, network.address))


def measure(name: str, seed: int, bursts: Bursts) -> Figures:
    scheduler, limited = ORDERS[name]
    mbps = bursts.bytes_per_s * 8 / 1e6
    with Namespaces(1) as network:
        network.machines[0].limit(mbps * (SPARE if limited else FRAMES))
        start, link_mbps = partial(_start, network), mbps if limited else None
        return live_figures(name, run_bursts(bursts, Tail(send=scheduler), start=start, link_mbps=link_mbps))


def contests(sizes: TailSizes) -> list[Contest]:
    """None on Spark: its executors are where they are."""
    return [] if host() is not None or why_no_namespaces() else contests_of(tuple(ORDERS), measure, sizes)


def conclude(samples: Samples) -> Samples:
    """Largest backlog first beside FIFO, both without ``link_mbps``."""
    return cuts(samples, "_", KEY, "kernel", ["kernel_fifo"]) if f"{KEY}_largest" in samples else {}


def table(result: Result) -> list[str]:
    if f"{KEY}_backlog_cut" not in result:
        return [f"left out, a link that the kernel limits: {why_no_namespaces() or 'it was not measured'}"]
    words = (
        f"lbf() beside fifo() where tuples wait in sockets: largest backlog {result[f'{KEY}_backlog_cut']:.0%} lower, "
        f"slowest task {result[f'{KEY}_slowest_cut']:.0%} lower"
    )
    return [*aligned(rows_of(result, "the same over a link that the kernel limits", TITLES)), words]
