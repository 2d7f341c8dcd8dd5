"""One run of the engine on ``PYTHONPATH``: prints the processor time that its workers spent on each tuple.

Uses only what every version of the engine has, and nothing of this distribution, which needs the engine of its own
version. Run by its path, with the name of a topology and the number of tuples.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any

import tailrace as tr
from tailrace.testing.processes import cpu_seconds

WORKERS = 2
TIMEOUT_S = 180.0
VOCABULARY = 1_000


class RunningCount:
    """Each word with how often it has been seen so far."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def process(self, word: str) -> tuple[str, int]:
        self._counts[word] = count = self._counts[word] + 1
        return word, count


def numbers(total: int, split: int, splits: int) -> Iterable[int]:
    return range(split, total, splits)


def word(number: int) -> str:
    return f"word{number * 7919 % VOCABULARY}"


def itself(value: Any) -> Any:
    return value


def word_count(total: int) -> Any:
    topology = tr.Topology("words")
    words = topology.source("numbers", tr.from_iterable(partial(numbers, total)), tasks=2).map("word", word, tasks=2)
    counts = words.map("count", RunningCount, tasks=2, grouping=tr.fields(itself), stateful=True)
    counts.sink("out", tr.to_call(itself), tasks=2, grouping=tr.local())
    return topology


def chain(total: int, tasks: int = 2, maps: int = 3) -> Any:
    topology = tr.Topology("chain")
    stream = topology.source("numbers", tr.from_iterable(partial(numbers, total)), tasks=tasks)
    for number in range(maps):
        stream = stream.map(f"map{number}", itself, tasks=tasks)
    stream.sink("out", tr.to_call(itself), tasks=tasks)
    return topology


TOPOLOGIES: dict[str, Any] = {"words": word_count, "chain": chain, "sends": partial(chain, tasks=4, maps=1)}


def main() -> None:
    name, total = sys.argv[1], int(sys.argv[2])
    run = TOPOLOGIES[name](total).run(workers=WORKERS)
    run.awaitRunning(TIMEOUT_S)
    before_s = sum(map(cpu_seconds, run.workerPids().values()))  # spent before the first tuple: starting does not count
    if not run.awaitTermination(TIMEOUT_S):
        run.stop(0.0)
        sys.exit(f"did not finish: topology={name} tuples={total} timeout_s={TIMEOUT_S:.0f}")
    progress = run.lastProgress
    done = progress["operators"][-1]["received"]
    if done != total:
        sys.exit(f"not every tuple came through: topology={name} tuples={total} done={done}")
    used_s = sum(worker["cpuSeconds"] for worker in progress["workers"]) - before_s
    print(json.dumps({"us": used_s * 1e6 / total, "tailrace": tr.__file__}))


if __name__ == "__main__":
    main()
