"""A driver of ``bench hosts``: runs a topology until a line comes, and tells where its workers are.

``python -m tailrace_research.bench.hosts.driver OPTIONS``, as JSON. With the configuration of a Spark session the
topology runs on Spark.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import tailrace as tr

WORKERS = 3
TASKS = 6
SAY_S = 0.05
START_S = 250.0
STOP_S = 150.0


class Stamps:
    """A sink that writes down when each row came."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._file: TextIO | None = None

    def open(self, context: Any) -> None:
        name = f"{context.task}-{socket.gethostname()}-{os.getpid()}.stamps"
        self._file = Path(self._folder, name).open("a", buffering=1)  # noqa: SIM115
        self._host = socket.gethostname()

    def process(self, number: int) -> None:
        assert self._file is not None
        self._file.write(f"{number} {time.monotonic_ns()} {self._host}\n")

    def close(self) -> None:
        assert self._file is not None
        self._file.close()


def work(number: int) -> int:
    time.sleep(0.001)
    return number


def topology(folder: str, per_s: float) -> tr.Topology:
    """Three operators on all workers, so that each worker is in the way of most rows."""
    topology = tr.Topology("hosts")
    numbers = topology.source("numbers", tr.at_rate(range(10**9), per_s))
    worked = numbers.map("work", work, tasks=TASKS, kind="blocking")
    worked.sink("stamps", tr.to_call(partial(Stamps, folder)), tasks=WORKERS)
    return topology


def main() -> None:
    options: dict[str, Any] = json.loads(sys.argv[1])
    spark = None
    if options["conf"] is not None:
        from pyspark.sql import SparkSession

        builder = SparkSession.builder
        for name, value in options["conf"].items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
    run = topology(options["folder"], options["per_s"]).run(spark, workers=WORKERS)
    assert run.awaitRunning(START_S)
    asked = threading.Event()
    threading.Thread(target=_listen, args=(asked,), daemon=True).start()
    while run.isActive and not asked.wait(SAY_S):
        _say(run)
    if run.isActive:
        run.stop(timeout=STOP_S)
    error = run.exception()
    _say(run)
    if spark is not None:
        spark.stop()
    if error is not None:
        raise error


def _listen(asked: threading.Event) -> None:
    sys.stdin.readline()
    asked.set()


def _say(run: tr.Run) -> None:
    progress = run.lastProgress
    restarts = [] if progress is None else [worker["restarts"] for worker in progress["workers"]]
    print(json.dumps({"pids": run.workerPids(), "restarts": restarts}), flush=True)


if __name__ == "__main__":
    main()
