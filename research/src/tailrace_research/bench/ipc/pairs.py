"""Measures one way to get bytes from a process to another: see ``process``, which this starts and asks."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from typing import IO, Any, Self

from tailrace.errors import TailraceError
from tailrace_research.bench.children import OUTPUT_TAIL
from tailrace_research.bench.turns import Figures

FLAT_OUT = 0  # as a rate
RING_BYTES = 1 << 20  # fits a core's cache: with 4 MiB, messages of 160 and 320 KB took a third longer
GRACE_S = 30.0  # for a machine that cannot keep up with the rate
END_S = 5.0  # to clean up after a measurement that was interrupted
MODULE = "tailrace_research.bench.ipc.process"


class Pairs:
    """A context in which pairs of processes are measured, one at a time."""

    def __init__(self, warm_up_s: float) -> None:
        self._warm_up_s = warm_up_s
        self._output: IO[bytes]
        self._process: subprocess.Popen[str]

    def __enter__(self) -> Self:
        self._output = tempfile.TemporaryFile(prefix="tailrace-bench-")  # closed at the exit
        self._process = subprocess.Popen(
            [sys.executable, "-m", MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._output,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._process.communicate(timeout=END_S)  # closes its input, which ends it
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        self._output.close()

    def measure(self, name: str, message_bytes: int, rate: int, seconds: float, capacity: int = RING_BYTES) -> Figures:
        """``p50_us``, ``p99_us`` and ``mean_us`` from when a message was due, or ``msgs_per_s``; and ``cpu_us`` of both
        processes per message.
        """
        task = {
            "name": name,
            "bytes": message_bytes,
            "rate": rate,
            "seconds": seconds,
            "capacity": capacity,
            "warm_up_s": self._warm_up_s,
            "timeout_s": self._warm_up_s + seconds + GRACE_S,
        }
        answer = self._ask(task)
        if "error" in answer:
            place = f"contestant={name} bytes={message_bytes} rate={rate}"
            raise TailraceError(f"benchmark processes {answer['error']}: {place}\n{self._tail()}")
        return answer

    def _ask(self, task: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(task) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        answer: dict[str, Any] = json.loads(line) if line else {"error": f"failed: exit_code={self._process.wait()}"}
        return answer

    def _tail(self) -> str:
        self._output.seek(0)
        return self._output.read().decode("utf-8", "replace")[-OUTPUT_TAIL:].strip()
