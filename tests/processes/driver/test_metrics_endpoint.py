"""A real run, scraped while it works, while it recovers, and after it has ended."""

from __future__ import annotations

import re
import urllib.request
from itertools import pairwise

import tailrace as tr
from kit.runs import homes, kill, row, running, stop
from tailrace.metrics.prometheus import MetricsServer, serve_metrics
from tailrace.testing.processes import wait_until

PER_SECOND = 500
ENDLESS = 10_000_000
GROWS = re.compile(r"^(\w+(?:_total|_count|_sum|_bucket)(?:{.*})?) (\S+)$", re.MULTILINE)


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


def buckets(text: str, name: str) -> list[tuple[float, float]]:
    """``(bound, at or below it)``, ascending."""
    found = re.findall(rf'^{name}_bucket\{{.*le="(\S+)"\}} (\S+)$', text, re.MULTILINE)
    return [(float(bound), float(count)) for bound, count in found]


def check_histogram(text: str, name: str) -> None:
    """The sum lies between what it would be with every root at the lower end of its bucket and at the upper."""
    found = buckets(text, name)
    counts = [count for _, count in found]
    assert counts == sorted(counts)
    assert found[-1] == (float("inf"), number(text, f"{name}_count"))
    at_least = sum((after - before) * low * 31 / 32 for (low, before), (_, after) in pairwise(found))
    at_most = found[0][0] * counts[0] + sum((b - a) * high for (_, a), (high, b) in pairwise(found) if b > a)
    assert at_least <= number(text, f"{name}_sum") <= at_most


class Scrapes:
    """All that were taken of a run, in order."""

    def __init__(self, server: MetricsServer) -> None:
        self._server = server
        self.texts: list[str] = []

    def seen(self, name: str, labels: str = "") -> float:
        """A number as of now."""
        self.texts.append(scrape(self._server))
        return number(self.texts[-1], name, labels)

    def through_a_kill(self, run: tr.Run, worker: int, task: int) -> None:
        """Until a task of the worker has counted, died, and its successor has reported counts of its own."""
        rows = f'operator="row",task="{task}",worker="{worker}"'
        wait_until(lambda: self.seen("tailrace_received_total", rows) > 0, 20, "tuples")
        kill(run, worker)
        before = self.seen("tailrace_received_total", rows)
        wait_until(lambda: self.seen("tailrace_worker_restarts_total", f'worker="{worker}"') == 1, 20, "a restart")
        wait_until(lambda: self.seen("tailrace_worker_up") == 2, 20, "both workers to be up")
        wait_until(lambda: self.seen("tailrace_received_total", rows) > before, 20, "the successor's counts")


def test_nothing_steps_back_though_every_worker_dies() -> None:
    topology = tr.Topology("scraped")
    numbers = topology.source("numbers", tr.at_rate(range(ENDLESS), PER_SECOND))
    numbers.map("row", row, tasks=2).sink("out", tr.to_list())
    with running(topology, workers=2) as run, serve_metrics(run, 0) as server:
        scrapes = Scrapes(server)
        for task, worker in enumerate(homes(topology, 2, "row")):
            scrapes.through_a_kill(run, worker, task)
        assert scrapes.seen("tailrace_recoveries_total") >= 2
        progress = stop(run)
        assert scrapes.seen("tailrace_run_active") == 0
        assert scrapes.seen("tailrace_roots_durable_total") == progress["durable"] > 0
        assert scrapes.seen("tailrace_roots_pending") == 0
        assert scrapes.seen("tailrace_complete_latency_seconds_count") == progress["latencyMs"]["complete"]["count"]
        assert scrapes.seen("tailrace_busy_seconds_total", 'operator="row"') > 0
    check_histogram(scrapes.texts[-1], "tailrace_complete_latency_histogram_seconds")
    check_histogram(scrapes.texts[-1], "tailrace_durable_latency_histogram_seconds")
    for earlier, later in pairwise(map(growing, scrapes.texts)):
        shrunk = [name for name, value in earlier.items() if later.get(name, -1) < value]
        assert not shrunk, shrunk
