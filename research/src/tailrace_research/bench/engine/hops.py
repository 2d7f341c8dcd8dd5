"""Three hops on Tailrace: source, two stages and a sink, alternating between two workers, at a fixed rate.

Latency is measured open loop, from when a tuple was due until the last function has it, as the bare hops do.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tailrace.connector import Reader, Record, Source, SplitStart
from tailrace.errors import TailraceError
from tailrace.metrics.histogram import Histogram
from tailrace.policy import local
from tailrace.runtime.connectors import at_rate, to_call
from tailrace.testing.processes import cpu_seconds
from tailrace.topology import Run, Topology
from tailrace_research.bench.engine.bare_hops import WARM_UP_S

TIMEOUT_S = 120.0


class _StampedReader:
    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.close = reader.close

    def poll(self, limit: int, now_ns: int) -> Sequence[Record]:
        return [Record(offset, due_ns, (due_ns, value)) for offset, due_ns, value in self._reader.poll(limit, now_ns)]

    @property
    def ready_ns(self) -> int:
        return self._reader.ready_ns

    @property
    def done(self) -> bool:
        return self._reader.done


@dataclass(frozen=True)
class Stamped:
    """A source whose values carry when they were due: all processes of a machine share one clock."""

    source: Source
    replayable: bool = True

    def splits(self, tasks: int) -> Sequence[str]:
        return self.source.splits(tasks)

    def open(self, start: SplitStart) -> Reader:
        return _StampedReader(self.source.open(start))


class Stopwatch:
    """The last stage: notes each tuple's latency, and writes them all down when it is closed."""

    def __init__(self, path: str, skip: int) -> None:
        self._path = Path(path)
        self._skip = skip
        self._latencies: list[int] = []

    def process(self, value: tuple[int, int]) -> None:
        self._latencies.append(time.monotonic_ns() - value[0])

    def close(self) -> None:
        histogram = Histogram.of(self._latencies[self._skip :])
        p50, p99, p999 = histogram.percentiles(0.5, 0.99, 0.999)
        figures = {"p50": p50, "p99": p99, "p999": p999, "max": histogram.max, "n": histogram.count}
        self._path.write_text(json.dumps(figures))


def read(count: int, split: int, splits: int) -> Iterable[int]:
    return range(count)


def same(value: Any) -> Any:
    return value


def run_hops(rate: int, seconds: float, spark: Any = None, *, ring: bool = True) -> dict[str, float]:
    """Latency over three hops at ``rate`` tuples a second, in milliseconds, and processor time a tuple."""
    return measure_hops(rate, seconds, lambda topology: topology.run(spark, workers=2, ring=ring))


def measure_hops(rate: int, seconds: float, start: Callable[[Topology], Run]) -> dict[str, float]:
    """``run_hops`` on two workers that the caller starts."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "latency.json"
        topology = Topology("hops")
        stream = topology.source("source", Stamped(at_rate(partial(read, round(rate * (WARM_UP_S + seconds))), rate)))
        stream = stream.map("first", same).map("second", same)
        stream.map("last", partial(Stopwatch, str(path), round(rate * WARM_UP_S))).sink(
            "out", to_call(same), grouping=local()
        )
        run = start(topology)
        cpu_us = _cpu_us_per_tuple(run, rate, seconds)
        if not run.awaitTermination(TIMEOUT_S):
            run.stop(0.0)
            raise TailraceError(f"hops did not finish: rate={rate} seconds={seconds}")
        figures = json.loads(path.read_text())
    latencies = {f"{name}_ms": figures[name] / 1e6 for name in ("p50", "p99", "p999", "max")}
    return {**latencies, "n": figures["n"], "cpu_us": cpu_us}


def _cpu_us_per_tuple(run: Run, rate: int, seconds: float) -> float:
    """Processor time of all workers in the middle of the run: starting and ending do not count."""
    run.awaitRunning(TIMEOUT_S)
    pids = run.workerPids().values()
    time.sleep(WARM_UP_S)
    before_s, began_s = sum(map(cpu_seconds, pids)), time.monotonic()
    time.sleep(0.8 * seconds)
    used_s, took_s = sum(map(cpu_seconds, pids)) - before_s, time.monotonic() - began_s
    return used_s * 1e6 / (rate * took_s)
