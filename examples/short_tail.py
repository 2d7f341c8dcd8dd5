"""Two reasons for a long tail, and what helps: tuples that cost much, and calls that hang.

A quote costs as much time as it has items: a grouping that knows this keeps the others from waiting behind it. One
call in a hundred hangs whatever is asked: a second one to another task is done sooner.
"""

import time
from random import Random
from typing import Any

import tailrace as tr

UNIT_S = 0.0005
RNG = Random(7)
QUOTES = [min(32, int(RNG.paretovariate(1.0))) for _ in range(800)]
TASKS = 5


def price(quote: int) -> int:
    time.sleep(quote * UNIT_S)
    return quote


def ask(quote: int) -> int:
    time.sleep(0.2 if RNG.random() < 0.01 else 0.002)
    return quote


def same(quote: int) -> int:
    return quote


def discard(quote: int) -> None:
    pass


def show(title: str, call: Any, per_second: float, grouping: Any = None, hedge: Any = None) -> None:
    topology = tr.Topology("quotes")
    quotes = topology.source("quotes", tr.at_rate(QUOTES, per_second))
    answers = quotes.map("answer", call, tasks=TASKS, grouping=grouping or tr.shuffle(), kind="blocking")
    answers.sink("out", tr.to_call(discard))
    run = topology.run(workers=2, tail=tr.Tail(hedge=hedge))
    run.awaitTermination()
    latency = run.lastProgress["latencyMs"]["complete"]
    print(f"{title}: p50 {latency['p50']:.2f} ms, p99 {latency['p99']:.2f} ms")


def main() -> None:
    busy = 0.85 * TASKS * len(QUOTES) / (UNIT_S * sum(QUOTES))
    show("by cost, shuffle", price, busy)
    show("by cost, least work", price, busy, grouping=tr.least_work(same))
    show("calls that hang, plain", ask, 250)
    show("calls that hang, hedged", ask, 250, hedge=tr.fixed_timeout(20))


if __name__ == "__main__":
    main()
