"""The row about feedback: the share of a core that load-aware groupings spend on it, at several input rates.

Calls do next to nothing, so that there is as much to tell as there can be, or sleep for a millisecond or two, which is
long enough for each to be worth telling of. What is shown is the largest share that any worker had in any interval of a
run, choosing left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tailrace.clock import MILLISECOND_NS, SECOND_NS
from tailrace.metrics.progress import Progress
from tailrace.policy import Grouping, latency_balanced, least_work, osg, power_of_two, pull
from tailrace.runtime.connectors import at_rate, from_iterable, to_call
from tailrace.topology import Run, Topology
from tailrace_research.bench.tail.groupings import WORKERS
from tailrace_research.bench.tail.run import Result, Row, Samples, TailSizes
from tailrace_research.bench.turns import Contest, Figures, aligned, range_of
from tailrace_research.bench.workloads.hosting import host

NAME = "feedback"
TASKS = 4
KEYS = 64
LOOK_S = 0.25
MOST_S = 3  # of a run at a rate
FLAT_OUT = 20  # times as many tuples where they come as fast as they can


@dataclass(frozen=True)
class Pace:
    """How fast tuples come, and from how many tasks."""

    title: str
    rate_per_s: int | None  # as fast as they can
    senders: int = 1
    call_ns: int = 0  # how long a call sleeps

    def tuples(self, sizes: TailSizes) -> int:
        return FLAT_OUT * sizes.tuples if self.rate_per_s is None else MOST_S * min(sizes.tuples, self.rate_per_s)


PACES: Mapping[str, Pace] = {
    "slow": Pace("1,000/s", 1_000),
    "fast": Pace("10,000/s", 10_000),
    "flat_out": Pace("flat out", None),
    "senders": Pace("flat out, 3 senders", None, 3),
    "long": Pace("2,700/s, 1 ms each", 2_700, call_ns=MILLISECOND_NS),
    "long_senders": Pace("1,600/s, 2 ms each, 3 senders", 1_600, 3, 2 * MILLISECOND_NS),
}

GROUPINGS: Mapping[str, Callable[[], Grouping]] = {
    "osg": lambda: osg(_key),
    "least_work": lambda: least_work(_key),
    "power_of_two": power_of_two,
    "pull": pull,
    "latency_balanced": latency_balanced,
    "latency_balanced_fast": lambda: latency_balanced(fast=True),
}


def _key(number: int) -> int:
    return number % KEYS


def _next(number: int) -> int:
    return number + 1


def _after(call_ns: int, number: int) -> int:
    if call_ns:
        time.sleep(call_ns / SECOND_NS)
    return number + 1


def _nothing(number: int) -> None:
    """Where tuples end."""


def start(grouping: Grouping, pace: Pace, tuples: int) -> Run:
    topology = Topology("feedback")
    numbers = range(tuples)
    source = from_iterable(numbers) if pace.rate_per_s is None else at_rate(numbers, pace.rate_per_s)
    stream = topology.source("numbers", source)
    if pace.senders > 1:
        stream = stream.map("spread", _next, tasks=pace.senders)
    work = partial(_after, pace.call_ns)
    stream.map("work", work, tasks=TASKS, grouping=grouping).sink("end", to_call(_nothing), tasks=TASKS)
    run: Run = topology.run(host(), workers=WORKERS)
    return run


def progress_of(grouping: Grouping, pace: Pace, tuples: int) -> list[Progress]:
    """Run a stream, and return each progress that was seen."""
    run = start(grouping, pace, tuples)
    seen: list[Progress] = []
    try:
        over = False
        while not over:
            over = run.awaitTermination(LOOK_S)
            if run.lastProgress is not None:
                seen.append(run.lastProgress)
    finally:
        run.stop()
    return seen


def measure(policy: str, place: str, sizes: TailSizes) -> Figures:
    pace = PACES[place]
    tuples = pace.tuples(sizes)
    seen = progress_of(GROUPINGS[policy](), pace, tuples)
    costs = [[worker["feedback"] for worker in progress["workers"]] for progress in seen]
    key = f"{NAME}_{policy}_{place}"
    return {
        f"{key}_share": max(cost["share"] for workers in costs for cost in workers),
        f"{key}_bytes": sum(cost["bytes"] for cost in costs[-1]) / tuples,
        f"{key}_messages": sum(cost["messages"] for cost in costs[-1]) / tuples,
        f"{key}_mean_ms": seen[-1]["latencyMs"]["complete"]["mean"],
    }


def contests(sizes: TailSizes) -> list[Contest]:
    return [
        Contest(f"{NAME}, {policy}, {pace.title}", partial(measure, policy, place, sizes))
        for place, pace in PACES.items()
        for policy in GROUPINGS
    ]


def conclude(samples: Samples) -> Samples:
    """The largest share of all, repeat by repeat."""
    shares = [values for key, values in samples.items() if key.startswith(f"{NAME}_") and key.endswith("_share")]
    return {f"{NAME}_share": [max(repeat) for repeat in zip(*shares, strict=True)]}


def table(result: Result) -> list[str]:
    titles = [cell for pace in PACES.values() for cell in (pace.title, "")]
    rows: list[Sequence[str]] = [("feedback, share of a core", *titles, "messages a tuple")]
    for policy in GROUPINGS:
        keys = [f"{NAME}_{policy}_{place}" for place in PACES]
        shares = [cell for key in keys for cell in _share(result, f"{key}_share")]
        rows.append((policy, *shares, ", ".join(f"{result[f'{key}_messages']:.2f}" for key in keys)))
    return [*aligned(rows), "Of the worker that spends most, in the interval in which it does."]


def _share(result: Result, key: str) -> tuple[str, str]:
    return f"{result[key]:.1%}", range_of(result, key, "{:.1%}")


FEEDBACK = Row(NAME, contests, conclude, table)
