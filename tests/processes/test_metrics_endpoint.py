"""A real run, scraped while it works, while it recovers, and after it has ended."""

from __future__ import annotations

import re
import urllib.request
from itertools import pairwise

from kit import kill, row, running, stop

import tailrace as tr
from tailrace.metrics.prometheus import MetricsServer, serve_metrics
from tailrace.testing.processes import wait_until

PER_SECOND = 500
ENDLESS = 10_000_000
GROWS = re.compile(r"^(\S+(?:_total|_count|_bucket)\S*) (\S+)$", re.MULTILINE)


def scrape(server: MetricsServer) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=10) as response:
        return str(response.read().decode("utf-8"))


def growing(text: str) -> dict[str, float]:
    """The values of everything that may only grow."""
    return {name: float(value) for name, value in GROWS.findall(text)}


def number(text: str, name: str, labels: str = "") -> float:
    """The sum over all samples of this name whose labels contain ``labels``."""
    found = re.findall(rf"^{name}\{{([^}}]*)\}} (\S+)$", text, re.MULTILINE)
    return sum(float(value) for own, value in found if labels in own)


def test_a_run_is_scraped_through_a_kill_to_its_end() -> None:
    topology = tr.Topology("scraped")
    numbers = topology.source("numbers", tr.at_rate(range(ENDLESS), PER_SECOND))
    numbers.map("row", row, tasks=2).sink("out", tr.to_list())
    with running(topology, workers=2) as run, serve_metrics(run, 0) as server:
        scrapes = []

        def seen(name: str, labels: str = "") -> float:
            scrapes.append(scrape(server))
            return number(scrapes[-1], name, labels)

        wait_until(lambda: seen("tailrace_received_total", 'operator="row"') > 0, 20, "tuples")
        wait_until(lambda: seen("tailrace_worker_up") == 2, 20, "both workers to be up")
        kill(run, 1)
        wait_until(lambda: seen("tailrace_worker_restarts_total", 'worker="1"') == 1, 20, "a restart")
        wait_until(lambda: seen("tailrace_recoveries_total") >= 1, 20, "a recovery")
        progress = stop(run)
        assert seen("tailrace_run_active") == 0
        assert seen("tailrace_roots_durable_total") == progress["durable"] > 0
        assert seen("tailrace_roots_pending") == 0
        assert seen("tailrace_complete_latency_seconds_count") == progress["latencyMs"]["complete"]["count"]
        assert seen("tailrace_busy_seconds_total", 'operator="row"') > 0
    values = [growing(text) for text in scrapes]
    for earlier, later in pairwise(values):
        shrunk = [name for name, value in earlier.items() if "histogram" not in name and later.get(name, -1) < value]
        assert not shrunk, shrunk
