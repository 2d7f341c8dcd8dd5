"""Word count on Tailrace: sentences in, running counts out, acks on, two workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from time import monotonic
from typing import Any

from tailrace.errors import TailraceError
from tailrace.policy import fields, local
from tailrace.runtime.connectors import from_iterable, to_call
from tailrace.topology import Topology
from tailrace_research.bench.engine.sentences import count_words, sentences

WORKERS = 2
TIMEOUT_S = 180.0
SEED = 1  # of the text; both splits read the same one, as with the engine we compare with


class RunningCount:
    """Each word with how often it has been seen so far."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def process(self, word: str) -> tuple[str, int]:
        self._counts[word] = count = self._counts[word] + 1
        return word, count


def read(total: int, split: int, splits: int) -> Iterable[str]:
    return sentences(SEED, total // splits)


def discard(value: Any) -> None:
    pass


def itself(word: str) -> str:
    return word


def word_count(total: int) -> Topology:
    topology = Topology("word-count")
    lines = topology.source("lines", from_iterable(partial(read, total)), tasks=WORKERS)
    words = lines.flat_map("split", str.split, tasks=WORKERS)
    counts = words.map("count", RunningCount, tasks=WORKERS, grouping=fields(itself), stateful=True)
    counts.sink("out", to_call(discard), tasks=WORKERS, grouping=local())
    return topology


def run_words(total: int, spark: Any = None, *, ring: bool = True) -> dict[str, float]:
    """Count the words of ``total`` sentences. The clock runs from when all workers are ready."""
    run = word_count(total).run(spark, workers=WORKERS, ring=ring)
    run.awaitRunning()
    started = monotonic()
    if not run.awaitTermination(TIMEOUT_S):
        run.stop(0.0)
        raise TailraceError(f"word count did not finish: sentences={total} timeout_s={TIMEOUT_S}")
    seconds = monotonic() - started
    progress = run.lastProgress
    words = progress["operators"][-1]["received"]
    expected = WORKERS * count_words(SEED, total // WORKERS)
    if words != expected:
        raise TailraceError(f"word count is off: words={words} expected={expected}")
    cpu_s = sum(worker["cpuSeconds"] for worker in progress["workers"])
    return {"words_per_s": words / seconds, "cpu_s": cpu_s, "words": words}
