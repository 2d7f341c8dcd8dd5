"""The row about limits: three workers call a service together, and its own count says whether they keep the limit.

After a third of the time one worker is killed. In the last third the service refuses, with 429, whatever is above half
the limit, for some seconds.
"""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from math import floor
from typing import Any

import tailrace as tr
from tailrace.errors import TailraceError
from tailrace.testing.service import Behaviour, Service, serving
from tailrace_research.bench.dataframe.client import ask
from tailrace_research.bench.dataframe.run import DataFrameSizes, Result, Row, Samples
from tailrace_research.bench.turns import Contest, Figures, aligned, range_of

RATES = (20, 200)
WORKERS = 3
CONCURRENCY = 32
REFUSING_S = 4.0
REFUSED_ABOVE = 0.5  # of the limit
TIMEOUT_S = 120


class Asked:
    """One call as an operator."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def process(self, key: str) -> str:
        return await ask(self._port, key)


def contests(sizes: DataFrameSizes, spark: Any) -> list[Contest]:
    return [Contest(f"limit of {rate}/s, 3 workers", partial(_measure, rate, sizes)) for rate in RATES]


def _measure(rate: int, sizes: DataFrameSizes) -> Figures:
    from_s = sizes.seconds * 2 / 3
    behaviour = Behaviour(
        refuse_above=int(rate * REFUSED_ABOVE), refuse_from_s=from_s, refuse_until_s=from_s + REFUSING_S
    )
    with serving(behaviour) as service:
        _call(service, rate, sizes.seconds)
        report = service.report()
    sizes.traces[f"limit_{rate}"] = report["begun_s"]
    lower = (from_s, from_s + REFUSING_S)
    excess, use = kept(report["begun_s"], report["taken_s"], rate, lower, REFUSED_ABOVE)
    return {
        f"limit_{rate}_excess": excess,
        f"limit_{rate}_use": use,
        f"limit_{rate}_refused": float(report["refused"]),
    }


def _call(service: Service, rate: int, seconds: float) -> None:
    calls = tr.Calls(concurrency=CONCURRENCY, retries=3, limit=tr.limit(f"service-{rate}", per_s=rate))
    topology = tr.Topology("limited")
    keys = topology.source("keys", tr.from_iterable([f"{rate}-{number}" for number in range(int(rate * seconds))]))
    keys.map("ask", partial(Asked, service.port), tasks=WORKERS, calls=calls).sink("out", tr.to_call(_drop))
    run = topology.run(workers=WORKERS)
    try:
        run.awaitRunning(60)
        time.sleep(seconds / 3)
        os.kill(run.workerPids()[1], signal.SIGKILL)
        if not run.awaitTermination(TIMEOUT_S + 3 * seconds):
            raise TailraceError(f"the run did not end: progress={run.lastProgress}")
    finally:
        if run.isActive:
            run.stop(timeout=1)


def _drop(answer: str) -> None:
    """The answer is not needed."""


def kept(
    begun_s: list[float], taken_s: list[float], rate: float, lower: tuple[float, float], factor: float
) -> tuple[float, float]:
    """How far the fullest second is above the limit, and which share of what was allowed was used.

    All calls count against the limit, and as use only those that the service took. Seconds are counted from the first
    call on. The last one, in which the work ran out, does not count as use.
    """
    first_s = begun_s[0]
    whole = floor(begun_s[-1] - first_s)
    used = sum(moment_s - first_s < whole for moment_s in taken_s)
    allowed = rate * (whole - (1 - factor) * _overlap(lower, (0.0, float(whole))))
    return fullest_second(begun_s) / rate - 1, used / allowed


def fullest_second(begun_s: list[float]) -> int:
    """The most calls in any stretch of one second, wherever it begins."""
    most = oldest = 0
    for newest, moment_s in enumerate(begun_s):
        while begun_s[oldest] <= moment_s - 1:
            oldest += 1
        most = max(most, newest - oldest + 1)
    return most


def _overlap(one: tuple[float, float], other: tuple[float, float]) -> float:
    return max(0.0, min(one[1], other[1]) - max(one[0], other[0]))


def conclude(samples: Samples) -> Samples:
    """The worst of all rates, repeat by repeat."""
    excess = zip(*(samples[f"limit_{rate}_excess"] for rate in RATES), strict=True)
    use = zip(*(samples[f"limit_{rate}_use"] for rate in RATES), strict=True)
    return {"limit_excess": [max(rates) for rates in excess], "limit_use": [min(rates) for rates in use]}


def table(result: Result) -> list[str]:
    lines = [("limit, 3 workers, one killed, 4 s of 429", "fullest second", "", "use", "", "refused")]
    lines += [
        (
            f"{rate}/s",
            f"{result[f'limit_{rate}_excess']:+.1%}",
            range_of(result, f"limit_{rate}_excess", "{:+.1%}"),
            f"{result[f'limit_{rate}_use']:.1%}",
            range_of(result, f"limit_{rate}_use", "{:.1%}"),
            f"{result[f'limit_{rate}_refused']:,.0f}",
        )
        for rate in RATES
    ]
    return aligned(lines)


LIMIT = Row("limit", contests, conclude, table)
