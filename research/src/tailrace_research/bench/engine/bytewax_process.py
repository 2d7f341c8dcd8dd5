"""One of the two processes of ``bytewax_words``: the dataflow itself."""

# `strict` refuses base classes that are Any, as they are without bytewax, and a call of its untyped function with it.
# mypy: disable-error-code="misc, no-untyped-call"

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.operators import StatefulBatchLogic
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import cluster_main

from tailrace_research.bench.children import child_options, report
from tailrace_research.bench.engine.sentences import sentences

BUCKETS = 16  # of `bundles`; few enough for long lists, enough for both processes to get their share


class Stopwatch:
    """The times of this process: its first poll and last write, and how many updates it wrote."""

    def __init__(self) -> None:
        self.first_ns = 0
        self.first_cpu_s = 0.0
        self.last_ns = 0
        self.words = 0

    def poll(self) -> None:
        if not self.first_ns:
            self.first_ns = time.monotonic_ns()
            self.first_cpu_s = time.process_time()

    def wrote(self, words: int) -> None:
        self.words += words
        self.last_ns = time.monotonic_ns()


class Lines(DynamicSource[str], StatelessSourcePartition[str]):
    """The same sentences in every process, ``batch`` at a time."""

    def __init__(self, lines: list[str], batch: int, watch: Stopwatch) -> None:
        self.lines = lines
        self.batch = batch
        self.watch = watch
        self.position = 0

    def build(self, step_id: str, worker_index: int, worker_count: int) -> StatelessSourcePartition[str]:
        return self

    def next_batch(self) -> list[str]:
        self.watch.poll()
        start = self.position
        if start >= len(self.lines):
            raise StopIteration
        self.position = start + self.batch
        return self.lines[start : self.position]


class Discard(DynamicSink[Any], StatelessSinkPartition[Any]):
    """Counts what it drops: items, or the updates in each item's list."""

    def __init__(self, lists: bool, watch: Stopwatch) -> None:
        self.lists = lists
        self.watch = watch

    def build(self, step_id: str, worker_index: int, worker_count: int) -> StatelessSinkPartition[Any]:
        return self

    def write_batch(self, items: list[Any]) -> None:
        self.watch.wrote(sum(len(updates) for _, updates in items) if self.lists else len(items))


class Count(StatefulBatchLogic[None, int, int]):
    """The running count of one word. Bytewax itself puts the key beside each number that comes out."""

    def __init__(self, resumed: int | None) -> None:
        self.count = resumed or 0

    def on_batch(self, values: list[None]) -> tuple[Iterable[int], bool]:
        before = self.count
        self.count = before + len(values)
        return range(before + 1, self.count + 1), StatefulBatchLogic.RETAIN

    def snapshot(self) -> int:
        return self.count


class CountBucket(StatefulBatchLogic[list[str], list[tuple[str, int]], dict[str, int]]):
    """The running counts of all words of one bucket."""

    def __init__(self, resumed: dict[str, int] | None) -> None:
        self.counts = resumed or {}

    def on_batch(self, values: list[list[str]]) -> tuple[Iterable[list[tuple[str, int]]], bool]:
        counts = self.counts
        updates = []
        for words in values:
            for word in words:
                count = counts[word] = counts.get(word, 0) + 1
                updates.append((word, count))
        return [updates], StatefulBatchLogic.RETAIN

    def snapshot(self) -> dict[str, int]:
        return dict(self.counts)


def split(lines: list[str]) -> list[tuple[str, None]]:
    return [(word, None) for line in lines for word in line.split()]


class SplitIntoBuckets:
    """All words of a batch of sentences, one list per bucket. The bucket of a word is computed once."""

    def __init__(self) -> None:
        self.bucket_of: dict[str, str] = {}

    def __call__(self, lines: list[str]) -> Iterable[tuple[str, list[str]]]:
        bucket_of = self.bucket_of
        bundles: dict[str, list[str]] = {}
        for line in lines:
            for word in line.split():
                bucket = bucket_of.get(word)
                if bucket is None:
                    bucket = bucket_of[word] = str(zlib.crc32(word.encode()) % BUCKETS)
                bundle = bundles.get(bucket)
                if bundle is None:
                    bundles[bucket] = [word]
                else:
                    bundle.append(word)
        return bundles.items()


def word_count(source: Lines, bundles: bool, watch: Stopwatch) -> Dataflow:
    flow = Dataflow("wordcount")
    lines = op.input("lines", flow, source)
    if bundles:
        op.output(
            "out",
            op.stateful_batch("count", op.flat_map_batch("split", lines, SplitIntoBuckets()), CountBucket),
            Discard(True, watch),
        )
    else:
        op.output(
            "out", op.stateful_batch("count", op.flat_map_batch("split", lines, split), Count), Discard(False, watch)
        )
    return flow


def main() -> None:
    options = child_options()
    watch = Stopwatch()
    source = Lines(list(sentences(options["seed"], options["sentences"])), options["batch"], watch)
    flow = word_count(source, options["flow"] == "bundles", watch)
    cluster_main(flow, options["addresses"], options["process"], epoch_interval=timedelta(seconds=options["epoch_s"]))
    cpu_s = time.process_time() - watch.first_cpu_s
    report(options, {"first_ns": watch.first_ns, "last_ns": watch.last_ns, "words": watch.words, "cpu_s": cpu_s})


if __name__ == "__main__":
    main()
