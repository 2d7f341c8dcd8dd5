"""Probes examine executors from the inside. Spark decides where tasks run, so reaching every executor takes several.

Each probe is a job of its own: if they were tasks of one job, an executor that fails at once would end it before the
others have answered. Spark's status store tells on which executor a probe ran or failed.
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
"""Timeout of all probes together: an executor may have to start an interpreter first, and its slots may be busy."""

LINGER_S = 0.5
"""How long a probe occupies its slot, so that Spark places the next one elsewhere."""

MOST_PROBES = 64
"""Probes at a time: each needs a thread on the driver. If there are more slots, several rounds reach all executors."""

VAIN_ROUNDS = 3
"""Stop after this many rounds in a row without a new executor: the others have no free slot."""

STATUS_DELAY_S = 5.0
"""How long to wait until Spark's status store lists a probe. It usually takes some milliseconds."""

POLL_S = 0.05

JAVA = "reflect('java.lang.System', 'getProperty', 'java.version') AS java"
"""SQL expression for the Java version, evaluated in the executor's JVM before its Python."""

LOCAL = "driver"
"""Spark's id for the only executor of a local master. On a cluster it is the driver, which runs no tasks."""

Report = dict[str, str]


@dataclass(frozen=True)
class Executor:
    """An executor, as listed in Spark's status store."""

    id: str
    host: str
    slots: int
    busy: int = 0  # slots with a task
    since_ms: int = 0  # when it registered, by the driver's clock


@dataclass(frozen=True)
class Probed:
    """An executor with the report of its probe, or the error if the probe failed."""

    executor: Executor
    report: Report | None
    error: str = ""


def probe_all(spark: SparkSession, address: tuple[str, int], expected: int | None) -> list[Probed]:
    """Probe every executor, in the order of ids. ``address``: the driver's; ``expected``: how many there should be."""
    store = StatusStore(spark.sparkContext)
    deadline = time.monotonic() + PROBE_S
    _wait(lambda: len(store.executors()) >= (expected or 1), deadline)
    function = probe(*address, LINGER_S)
    reports: dict[str, Report] = {}
    errors: dict[str, str] = {}
    vain = 0
    while time.monotonic() < deadline and vain < VAIN_ROUNDS:
        known = len(reports.keys() | errors.keys())
        _round(spark, store, function, deadline, reports, errors)
        vain = vain + 1 if len(reports.keys() | errors.keys()) == known else 0
        if store.executors().keys() <= reports.keys() | errors.keys():
            break
    gone = {name: Executor(name, "", 0) for name in errors}
    executors = sorted({**gone, **store.executors()}.values(), key=lambda executor: (len(executor.id), executor.id))
    return [Probed(executor, reports.get(executor.id), errors.get(executor.id, "")) for executor in executors]


def _round(
    spark: SparkSession,
    store: StatusStore,
    function: Any,
    deadline: float,
    reports: dict[str, Report],
    errors: dict[str, str],
) -> None:
    """Send as many probes as there are slots, concurrently. Adds their results to ``reports`` and ``errors``."""
    group = f"tailrace-doctor-{uuid.uuid4().hex[:8]}"
    slots = sum(executor.slots for executor in store.executors().values())
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
    _wait(lambda: by_task.keys() <= {task.id for task in store.tasks(group)}, time.monotonic() + STATUS_DELAY_S)
    for task in store.tasks(group):
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
        pass  # the status store has the error, with the executor


def _wait(condition: Callable[[], bool], deadline: float) -> None:
    while not condition() and time.monotonic() < deadline:
        time.sleep(POLL_S)


# -- Spark's status store


@dataclass(frozen=True)
class Task:
    """One attempt at a task. ``error`` is empty unless it failed."""

    id: int
    executor: str
    error: str
    host: str = ""


class StatusStore:
    """Executors and tasks in Spark's status store, which its web interface shows."""

    def __init__(self, context: Any) -> None:
        self._tracker = context.statusTracker()
        self._store = context._jsc.sc().statusStore()

    def executors(self) -> dict[str, Executor]:
        """The executors that are alive, by id."""
        found = {}
        for entry in _each(self._store.executorList(True)):
            if entry.maxTasks() > 0 or entry.id() != LOCAL:
                host = re.sub(r":\d+$", "", str(entry.hostPort()))
                facts = int(entry.maxTasks()), int(entry.activeTasks()), int(entry.addTime().getTime())
                found[str(entry.id())] = Executor(str(entry.id()), host, *facts)
        return found

    def tasks(self, group: str) -> list[Task]:
        """The task attempts of a job group so far."""
        jobs = [self._tracker.getJobInfo(job) for job in self._tracker.getJobIdsForGroup(group)]
        stages = [stage for job in jobs if job is not None for stage in job.stageIds]
        return [_task(entry) for stage in stages for entry in _each(self._store.taskList(stage, 0, 1_000))]


def _task(entry: Any) -> Task:
    error = str(entry.errorMessage().get()) if entry.status() == "FAILED" else ""
    return Task(int(entry.taskId()), str(entry.executorId()), error, str(entry.host()))


def _each(sequence: Any) -> Iterator[Any]:
    """Iterates over a Scala sequence."""
    for index in range(sequence.size()):
        yield sequence.apply(index)


# -- in the executor


def probe(address: str, port: int, linger_s: float) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """The function for ``mapInArrow``. It is pickled by value, because an executor may not have tailrace."""

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
