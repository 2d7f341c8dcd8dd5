"""A driver on the cluster in a box: a topology over its hosts that writes each number once, into a folder.

This module is also the driver's script.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from tailrace.testing.cluster import Box
from tailrace.testing.processes import wait_until

TESTS = Path(__file__).parents[2]
SAY_S = 0.1
START_S, END_S = 240.0, 240.0


class Job:
    """A context in which a driver runs the topology. ``said`` is what it said last."""

    def __init__(self, box: Box, folder: Path, rows: int, per_s: float, **options: Any) -> None:
        self.box = box
        asked = {"conf": box.conf, "folder": str(folder), "rows": rows, "per_s": per_s, "options": options}
        self._process: subprocess.Popen[str] = box.start(
            [sys.executable, "-u", "-m", "kit.network.boxed", json.dumps(asked)],
            environment={"PYTHONPATH": str(TESTS)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.said: dict[str, Any] = {}
        self._lines: deque[str] = deque(maxlen=40)  # others, for errors
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self.said = json.loads(line)
            else:
                self._lines.append(line)

    def until(self, condition: Callable[[dict[str, Any]], object], what: str, timeout_s: float = START_S) -> None:
        """Wait until what it says fulfils this."""
        wait_until(lambda: (self.said and condition(self.said)) or self._process.poll() is not None, timeout_s, what)
        assert self._process.poll() is None, f"the driver has ended: {''.join(self._lines)}"

    def until_durable(self, rows: int) -> None:
        self.until(lambda said: said["durable"] >= rows, f"{rows} durable rows")

    @property
    def pids(self) -> dict[int, int]:
        """Process ids by worker."""
        return {int(worker): pid for worker, pid in self.said["pids"].items()}

    def end(self) -> dict[str, Any]:
        """Wait for the end of the run. Returns what was said last."""
        try:
            code = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running: said={self.said} lines={''.join(self._lines)}") from None
        self._thread.join(10)
        assert code == 0, f"the driver has failed: code={code} {''.join(self._lines)}"
        return self.said

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing of the driver is left, nor of what it has started."""
        if self._process.poll() is None:
            for pid in self.box.driver.pids():
                subprocess.run(["kill", "-9", str(pid)], check=False, capture_output=True)
        self._process.wait()


def drive(asked: dict[str, Any]) -> None:
    """In the driver."""
    from pyspark.sql import SparkSession

    import tailrace as tr
    from kit.runs import coordinator, progress_now, row, slowly

    builder = SparkSession.builder
    for name, value in asked["conf"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    topology = tr.Topology("boxed")
    numbers = topology.source("numbers", tr.at_rate(range(asked["rows"]), asked["per_s"]))
    numbers.map("slowly", slowly, tasks=6).map("row", row, tasks=3).sink("out", tr.to_jsonl(asked["folder"]), tasks=3)
    run = topology.run(spark, **asked["options"])

    def say() -> None:
        progress = progress_now(run)
        said = {
            "durable": progress["durable"],
            "pids": run.workerPids(),
            "restarts": [worker["restarts"] for worker in progress["workers"]],
            "recoveries": coordinator(run).recoveries,
        }
        print(json.dumps(said), flush=True)

    assert run.awaitRunning(START_S)
    while run.isActive:
        say()
        time.sleep(SAY_S)
    run.awaitTermination()
    say()
    spark.stop()


if __name__ == "__main__":
    drive(json.loads(sys.argv[1]))
