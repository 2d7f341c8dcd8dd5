"""What if: a run is recorded once, and played again under other groupings on virtual time.

Prices take from a quarter of a millisecond to eight, and shuffle does not know which.
"""

import tempfile
import time
from random import Random

import tailrace as tr
from tailrace.sim import Playback, read_trace

UNIT_S = 0.00025
QUOTES = [min(32, int(Random(number).paretovariate(1.0))) for number in range(400)]
TASKS = 5
LOAD = 0.8


def price(quote: int) -> int:
    time.sleep(quote * UNIT_S)
    return quote


def discard(quote: int) -> None:
    pass


def main() -> None:
    mean_s = UNIT_S * sum(QUOTES) / len(QUOTES)
    topology = tr.Topology("quotes")
    quotes = topology.source("quotes", tr.at_rate(QUOTES, TASKS * LOAD / mean_s))
    quotes.map("price", price, tasks=TASKS, kind="blocking").sink("out", tr.to_call(discard))
    with tempfile.TemporaryDirectory() as folder:
        topology.run(workers=2, record=folder).awaitTermination()
        playback = Playback(read_trace(folder))
    reports = [playback.recorded(), playback.play(), *map(playback.play, ("osg", "least_work", "pull"))]
    for report in reports:
        p50_ms, p99_ms = (report.percentile_ns(q) / 1e6 for q in (0.5, 0.99))
        print(f"{report.policy}: p50 {p50_ms:.2f} ms, p99 {p99_ms:.2f} ms")


if __name__ == "__main__":
    main()
