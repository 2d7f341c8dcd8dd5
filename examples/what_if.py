"""What if: a run is recorded once, and played again under other groupings on virtual time.

Prices take from half a millisecond to sixteen, and shuffle does not know which. The same from the command line:
tailrace run examples/what_if.py --record trace/ && tailrace sim --trace trace/
"""

import tempfile
import time
from random import Random

import tailrace as tr
from tailrace.sim import Playback, read_trace

UNIT_S = 0.0005
RNG = Random(7)
QUOTES = [min(32, int(RNG.paretovariate(1.0))) for _ in range(2000)]
TASKS = 5
LOAD = 0.8
PER_SECOND = TASKS * LOAD * len(QUOTES) / (UNIT_S * sum(QUOTES))


def price(quote: int) -> int:
    time.sleep(quote * UNIT_S)
    return quote


def discard(quote: int) -> None:
    pass


topology = tr.Topology("quotes")
prices = topology.source("quotes", tr.at_rate(QUOTES, PER_SECOND)).map("price", price, tasks=TASKS, kind="blocking")
prices.sink("out", tr.to_call(discard))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        topology.run(workers=2, record=folder).awaitTermination()
        playback = Playback(read_trace(folder))
    for report in (playback.recorded(), playback.play(), *map(playback.play, ("osg", "least_work", "pull"))):
        p50_ms, p99_ms = (report.percentile_ns(q) / 1e6 for q in (0.5, 0.99))
        print(f"{report.policy}: p50 {p50_ms:.2f} ms, p99 {p99_ms:.2f} ms")


if __name__ == "__main__":
    main()
