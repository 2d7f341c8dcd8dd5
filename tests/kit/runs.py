"""What the tests of this folder share: small functions for topologies, and ways to look at a run and to hurt it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import tailrace as tr
from tailrace.core.plan.planner import make_plan
from tailrace.runtime.driver.run import HostedRun
from tailrace.runtime.driver.server import CoordinatorServer
from tailrace.testing.processes import processes_with, wait_until

MARK = "TAILRACE_TEST"
"""Inherited by whatever a test starts, at any depth, so that its processes are known even when they are orphans."""

LEAVE_S = 12.0
"""A worker whose driver is gone leaves at once, or when its lease of 8 s ends."""


def assert_none_left(mark: str) -> None:
    """Wait for the processes with this mark to leave. Those that do not are killed, and told."""
    try:
        wait_until(lambda: not processes_with(MARK, mark), LEAVE_S, "the test's processes to leave")
    except AssertionError:
        left = processes_with(MARK, mark)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        raise AssertionError(f"processes are left behind: pids={left}") from None


def same(value: Any) -> Any:
    return value


def row(number: int) -> dict[str, int]:
    return {"n": number}


def slowly(number: int) -> int:
    time.sleep(0.0005)
    return number


async def wait_a_little(number: int) -> int:
    await asyncio.sleep(0.001)
    return number


def add_one(numbers: list[int]) -> list[int]:
    return [number + 1 for number in numbers]


def key(number: int) -> int:
    """One of fifty."""
    return number % 50


def homes(topology: tr.Topology, workers: int, operator: str) -> list[int]:
    """The workers on which the tasks of an operator live."""
    plan = make_plan(topology, workers)
    return [plan.home[task] for task, index in enumerate(plan.operator_of) if plan.operators[index].name == operator]


def read_jsonl(folder: Path) -> list[Any]:
    return [json.loads(line) for file in sorted(folder.glob("part-*.jsonl")) for line in file.read_text().splitlines()]


def read_parquet(folder: Path, column: str = "n") -> list[Any]:
    found: list[Any] = []
    for file in sorted(folder.glob("part-*.parquet")):
        found += pq.read_table(file, columns=[column]).column(column).to_pylist()
    return found


def assert_same_rows(found: Iterable[Any], expected: Iterable[Any]) -> None:
    """Each as often as it should be, in any order."""
    there, wanted = Counter(found), Counter(expected)
    missing, extra = wanted - there, there - wanted
    assert not missing and not extra, (
        f"rows differ: missing={missing.total()} {sorted(missing)[:5]} too many={extra.total()} {sorted(extra)[:5]}"
    )


def assert_prefixes(numbers: Iterable[int], splits: int, at_least: int = 1) -> None:
    """The numbers are those that sources over ``range`` have read from each split up to some point, each once."""
    found = list(numbers)
    assert len(found) >= at_least, f"too few rows: rows={len(found)} at_least={at_least}"
    ends = [sum(number % splits == split for number in found) for split in range(splits)]
    assert_same_rows(found, (split + splits * index for split, end in enumerate(ends) for index in range(end)))


@contextmanager
def running(topology: tr.Topology, *, workers: int, **options: Any) -> Iterator[tr.Run]:
    """A run whose workers are up. Given up at the end, if it still goes on then."""
    run = topology.run(workers=workers, **options)
    try:
        assert run.awaitRunning(60)
        yield run
    finally:
        if run.isActive:
            run.stop(timeout=0.1)


def kill(run: tr.Run, worker: int) -> int:
    """kill -9, and wait until another process has taken the worker's place. Returns the victim's pid."""
    pid = run.workerPids()[worker]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: run.workerPids().get(worker, pid) != pid or not run.isActive, 30, "the worker to be replaced")
    return pid


def finish(run: tr.Run, timeout_s: float = 60) -> dict[str, Any]:
    """Wait for the end. Returns the last progress."""
    assert run.awaitTermination(timeout_s), f"still running: {run.lastProgress}"
    progress = run.lastProgress
    assert progress is not None
    return progress


def stop(run: tr.Run, timeout_s: float = 60) -> dict[str, Any]:
    """Drain and stop. Returns the last progress."""
    assert run.isActive, "the run ended before it was stopped"
    run.stop(timeout=timeout_s)
    assert run.exception() is None, run.exception()
    progress = run.lastProgress
    assert progress is not None
    return progress


def restarts(progress: dict[str, Any]) -> list[int]:
    return [worker["restarts"] for worker in progress["workers"]]


def progress_now(run: tr.Run) -> dict[str, Any]:
    """The progress as of now. ``run.lastProgress`` is up to a second old."""
    return coordinator(run).progress()


def operator_now(run: tr.Run, operator: str) -> dict[str, Any]:
    """What the progress says of one operator, as of now."""
    found: dict[str, Any] = next(one for one in progress_now(run)["operators"] if one["name"] == operator)
    return found


def received(run: tr.Run, operator: str) -> int:
    """How many tuples an operator has taken, as of now."""
    return int(operator_now(run, operator)["received"])


def durable(run: tr.Run) -> int:
    """How many roots are durable, as of now."""
    return int(progress_now(run)["durable"])


def recoveries(run: tr.Run) -> int:
    return coordinator(run).recoveries


def await_recovery(run: tr.Run, least: int = 1) -> None:
    """Wait until the run has recovered from so many losses."""
    wait_until(lambda: recoveries(run) >= least, 30, "the recovery")


def coordinator(run: tr.Run) -> CoordinatorServer:
    """The driver's side of a run that this process drives."""
    assert isinstance(run, HostedRun)
    return run.coordinator


class Script:
    """A driver in a process of its own. It runs ``source`` as its ``__main__``."""

    def __init__(self, folder: Path, source: str, *arguments: str) -> None:
        self.path = folder / "driver.py"
        self.path.write_text(source)
        command = [sys.executable, "-u", str(self.path), *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def line_with(self, word: str) -> str:
        """Read on until a line holds ``word``."""
        return self.lines_to(word)[-1]

    def lines_to(self, word: str) -> list[str]:
        """Read on until a line holds ``word``. Returns all lines up to it."""
        assert self.process.stdout is not None
        seen = []
        for line in self.process.stdout:
            seen.append(line)
            if word in line:
                return seen
        raise AssertionError(f"the driver never said {word!r}: output={''.join(seen)}")

    def end(self, timeout_s: float = 60) -> str:
        """All its remaining output."""
        try:
            output, _ = self.process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            output, _ = self.process.communicate()
            raise AssertionError(f"the driver did not end in time: output={output}") from None
        return output

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Script:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
