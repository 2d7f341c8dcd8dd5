"""Probes look at executors from the inside. Spark places tasks as it likes, so it takes some to reach every executor.

Each probe is a job of its own: were they tasks of one job, an executor that fails them at once would end it before the
others have answered. Which executor a probe was on, and which one failed it, Spark's books tell.
"""

from __future__ import annotations

import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

PROBE_S = 60.0
"""For all probes: a cold executor starts an interpreter first, and its slots may be busy."""

LINGER_S = 0.5
"""A probe stays so long in its slot, so that the next one goes to another."""

MOST_PROBES = 64
"""At a time. Each costs the driver a thread; where there are more slots, several rounds find all executors."""

VAIN_ROUNDS = 3
"""So many in a row that reach no further executor: those left have no slot to give."""

BOOKS_S = 5.0
"""How long to wait for Spark to write down where a probe was. It takes some milliseconds."""

GLANCE_S = 0.05

JAVA = "reflect('java.lang.System', 'getProperty', 'java.version') AS java"
"""Asked in the executor's JVM, on the way to its Python."""

LOCAL = "driver"
"""What Spark calls the one executor of a local master; elsewhere, the driver itself, which runs no tasks."""

Report = dict[str, str]


@dataclass(frozen=True)
class Executor:
    """One that is there, by Spark's books."""

    id: str
    host: str
    slots: int


@dataclass(frozen=True)
class Probed:
    """An executor and what its probe reported; or else why there is no report."""

    executor: Executor
    report: Report | None
    error: str = ""


def probe_all(spark: SparkSession, address: tuple[str, int], expected: int | None) -> list[Probed]:
    """Every executor, in the order of their ids. ``address``: of the driver; ``expected``: how many there should be."""
    books = Books(spark.sparkContext)
    deadline = time.monotonic() + PROBE_S
    _wait(lambda: len(books.executors()) >= (expected or 1), deadline)
    function = probe(*address, LINGER_S)
    reports: dict[str, Report] = {}
    errors: dict[str, str] = {}
    vain = 0
    while time.monotonic() < deadline and vain < VAIN_ROUNDS:
        known = len(reports.keys() | errors.keys())
        _round(spark, books, function, deadline, reports, errors)
        vain = vain + 1 if len(reports.keys() | errors.keys()) == known else 0
        if books.executors().keys() <= reports.keys() | errors.keys():
            break
    gone = {name: Executor(name, "", 0) for name in errors}
    executors = sorted({**gone, **books.executors()}.values(), key=lambda executor: (len(executor.id), executor.id))
    return [Probed(executor, reports.get(executor.id), errors.get(executor.id, "")) for executor in executors]


def _round(
    spark: SparkSession,
    books: Books,
    function: Any,
    deadline: float,
    reports: dict[str, Report],
    errors: dict[str, str],
) -> None:
    """As many probes as there are slots, at the same time. What they find is added to ``reports`` and ``errors``."""
    group = f"tailrace-doctor-{uuid.uuid4().hex[:8]}"
    slots = sum(executor.slots for executor in books.executors().values())
    found: list[Report] = []
    threads = [
        threading.Thread(target=_send, args=(spark, group, function, found), name="tailrace-doctor", daemon=True)
        for _ in range(max(1, min(slots, MOST_PROBES)))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    spark.sparkContext.cancelJobGroup(group)
    by_task = {int(report["task"]): report for report in tuple(found)}
    _wait(lambda: by_task.keys() <= {task.id for task in books.tasks(group)}, time.monotonic() + BOOKS_S)
    for task in books.tasks(group):
        if task.id in by_task:
            reports[task.executor] = by_task[task.id]
        elif task.error:
            errors[task.executor] = task.error


def _send(spark: SparkSession, group: str, function: Any, found: list[Report]) -> None:
    spark.sparkContext.setJobGroup(group, "tailrace doctor")
    try:
        (row,) = spark.range(0, 1, 1, 1).selectExpr(JAVA).mapInArrow(function, "report string").collect()
        found.append(json.loads(row.report))
    except Exception:
        pass  # in the books, and there with the executor


def _wait(condition: Callable[[], bool], deadline: float) -> None:
    while not condition() and time.monotonic() < deadline:
        time.sleep(GLANCE_S)


# -- Spark's books


@dataclass(frozen=True)
class Task:
    """One attempt. ``error`` is empty unless it failed."""

    id: int
    executor: str
    error: str


class Books:
    """What Spark has written down about executors and tasks, as its web interface shows it."""

    def __init__(self, context: Any) -> None:
        self._tracker = context.statusTracker()
        self._store = context._jsc.sc().statusStore()

    def executors(self) -> dict[str, Executor]:
        """Those that are alive."""
        found = {}
        for entry in _each(self._store.executorList(True)):
            if entry.maxTasks() > 0 or entry.id() != LOCAL:
                host = re.sub(r":\d+$", "", str(entry.hostPort()))
                found[str(entry.id())] = Executor(str(entry.id()), host, int(entry.maxTasks()))
        return found

    def tasks(self, group: str) -> list[Task]:
        """Attempts that a job group has made so far."""
        jobs = [self._tracker.getJobInfo(job) for job in self._tracker.getJobIdsForGroup(group)]
        stages = [stage for job in jobs if job is not None for stage in job.stageIds]
        return [_task(entry) for stage in stages for entry in _each(self._store.taskList(stage, 0, 1_000))]


def _task(entry: Any) -> Task:
    error = str(entry.errorMessage().get()) if entry.status() == "FAILED" else ""
    return Task(int(entry.taskId()), str(entry.executorId()), error)


def _each(sequence: Any) -> Iterator[Any]:
    """The elements of a Scala sequence."""
    for index in range(sequence.size()):
        yield sequence.apply(index)


# -- in the executor


def probe(address: str, port: int, linger_s: float) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """The function of ``mapInArrow``; pickled by value, as an executor may have no tailrace."""

    def task(batches: Iterable[Any]) -> Iterator[Any]:
        import importlib
        import json
        import platform
        import socket
        import sys
        import time

        import pyarrow as pa
        from pyspark import TaskContext

        java = [version for batch in batches for version in batch.column(0).to_pylist()]
        context = TaskContext.get()
        report = {
            "task": str(context.taskAttemptId() if context is not None else -1),
            "host": socket.gethostname(),
            "java": str(java[0]),
            "python": platform.python_version(),
            "executable": sys.executable,
        }
        for name in ("tailrace", "pyarrow", "cloudpickle"):
            try:
                report[name] = importlib.import_module(name).__version__
            except Exception as error:
                report[name] = ""
                report[f"{name}_error"] = f"{type(error).__name__}: {error}"
        try:
            socket.create_connection((address, port), timeout=3).close()
            report["unreachable"] = ""
        except OSError as error:
            report["unreachable"] = str(error)
        time.sleep(linger_s)
        yield pa.RecordBatch.from_arrays([pa.array([json.dumps(report)])], names=["report"])

    return task
