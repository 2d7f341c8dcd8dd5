"""A host that runs each worker as a Spark job of its own, with one task that lasts as long as the worker.

A barrier stage would not do, because one lost task aborts it; nor would one job for all workers, because a task that
never ends never resets Spark's count of its failures. A worker that dies is restarted as a new job. If Spark itself
retries the task of the old one, the coordinator refuses it, and it ends. After a worker has left, Spark keeps its idle
interpreter for the next Python task, as after any other job, and ends it after a minute.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from tailrace.core.protocol.messages import Failed
from tailrace.errors import ProtocolError, TailraceError
from tailrace.runtime.driver.host import Exited
from tailrace.runtime.links.auth import dial
from tailrace.runtime.links.control import Bootstrap, ControlConnection
from tailrace.spark.interrupts import protect, unprotect
from tailrace.spark.jobs import Jobs
from tailrace.spark.slots import HELD
from tailrace.spark.spreading import Spreading, one_row
from tailrace.spark.task import SCHEMA, entry
from tailrace.version import VERSION

LEAVE_S = 5.0
"""How long jobs may take to end by themselves once their workers have left. It usually takes a few milliseconds."""

CLOSE_S = 10.0
"""How long cancelled jobs may take to end. Spark kills their Python processes after two or three seconds."""

POLL_S = 0.02

STATUS_DELAY_S = 0.3
"""How far Spark's status store may lag behind the events."""

STOPPED = "the Spark session was stopped before the run; was spark.stop() called before run.stop()?"


class SparkHost:
    """A ``Host`` whose workers are tasks of Spark jobs."""

    def __init__(self, spark: SparkSession, run: str, name: str, slots: int) -> None:
        """``slots`` were taken from ``HELD`` for this host, which returns them when it is closed."""
        self._spark = spark
        self._context = spark.sparkContext
        self._application = self._context.applicationId
        self._jobs = Jobs(self._context, run)
        self._spreading = Spreading(self._context, self._jobs.group)
        self._name = name
        self._slots = slots
        self._threads: dict[tuple[int, int], threading.Thread] = {}
        self._closed = False
        self._lock = threading.Lock()
        protect(self._context, self._jobs)

    def start(self, bootstrap: Bootstrap, exited: Exited) -> None:
        place = (bootstrap.worker, bootstrap.epoch)
        name = f"tailrace-spark-{bootstrap.worker}"
        thread = threading.Thread(target=self._job, args=(bootstrap, exited), name=name, daemon=True)
        with self._lock:
            self._threads[place] = thread
        thread.start()

    def _job(self, bootstrap: Bootstrap, exited: Exited) -> None:
        place = (bootstrap.worker, bootstrap.epoch)
        why, hopeless = "its Spark task ended", None
        try:
            hopeless = self._run_job(bootstrap)
        except Exception as error:
            why = explain(error)
            hopeless = STOPPED if self._is_stopped(why) else self._hopeless(bootstrap, error)
        with self._lock:
            self._threads.pop(place, None)
        if hopeless is None or not give_up(bootstrap, hopeless):
            exited(*place, hopeless or why)

    def _run_job(self, bootstrap: Bootstrap) -> str | None:
        """Run the job until its worker has left. Returns None, or the reason why no worker can run there."""
        if self._closed:
            return None
        description = f"tailrace {self._name}: worker {bootstrap.worker}"
        self._jobs.begin(bootstrap.worker, bootstrap.epoch, description)
        function: Any = entry(bootstrap, [str(folder) for folder in sys.path if folder], VERSION)
        host = self._spreading.choose(bootstrap.worker, bootstrap.epoch)
        (row,) = one_row(self._spark, host).mapInArrow(function, SCHEMA).collect()
        why: str | None = row.why
        return why

    def _hopeless(self, bootstrap: Bootstrap, error: Exception) -> str | None:
        if hopeless_cause(str(error)) is None:
            return None
        group = self._jobs.group(bootstrap.worker, bootstrap.epoch)
        return hopeless_cause(str(error), host_of_failure(self._context, group), self._context.pythonExec)

    def _is_stopped(self, why: str) -> bool:
        return self._context._jsc is None or "SparkContext was shut down" in why or "stopped SparkContext" in why

    def abandon(self, worker: int, epoch: int, silent: bool = False) -> None:
        """Cancel the job at once: its task holds a slot, perhaps the one that its successor needs."""
        with self._lock:
            known = (worker, epoch) in self._threads
        if silent:
            self._spreading.avoid(worker)
        if known:
            self._jobs.cancel(worker, epoch)

    def close(self) -> None:
        """Wait for all jobs and their tasks to end. The workers must have left or been abandoned."""
        if self._closed:
            return
        self._closed = True
        if not wait_for(lambda: not self._threads, LEAVE_S):
            with self._lock:
                left = list(self._threads)
            for worker, epoch in left:
                self._jobs.cancel(worker, epoch)
            wait_for(lambda: not self._threads, CLOSE_S)
        wait_for(lambda: not self._jobs.tasks_left(), CLOSE_S)
        unprotect(self._context, self._jobs)
        HELD.give_back(self._application, self._slots)


def wait_for(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Poll until the condition holds. False if it does not within the timeout."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def give_up(bootstrap: Bootstrap, why: str) -> bool:
    """Fail the run on behalf of a worker that cannot be started, because starting it again would not help.

    True if the coordinator got the message. It also learns that the worker is gone, because the connection then ends.
    """
    hello = {"role": "worker", "worker": bootstrap.worker, "epoch": bootstrap.epoch}
    try:
        contact = dial(bootstrap.address, bootstrap.secret, hello, bootstrap.fingerprint)
    except (OSError, ProtocolError):
        return False  # the run is over, or has replaced this worker
    control = ControlConnection(contact.connection, contact.seals)
    try:
        control.send(Failed(bootstrap.worker, bootstrap.epoch, TailraceError(why)))
    except OSError:
        return False
    finally:
        control.close()
    return True


def explain(error: BaseException) -> str:
    """The line of a Spark error that says what happened. In Py4J errors it comes after the name of an internal call."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix(": ") for line in lines if line.startswith(": ")]
    return (causes or lines or [type(error).__name__])[0][:300]


def host_of_failure(context: Any, group: str) -> str:
    """The host of a job group's last task, from Spark's status store: PySpark's errors do not name it. Or empty."""
    time.sleep(STATUS_DELAY_S)
    try:
        tracker, store = context.statusTracker(), context._jsc.sc().statusStore()
        job = tracker.getJobInfo(max(tracker.getJobIdsForGroup(group)))
        tasks = store.taskList(max(job.stageIds), 0, 100)
        return str(tasks.apply(tasks.size() - 1).host())
    except Exception:  # the status store is not a public interface
        return ""


def hopeless_cause(text: str, host: str = "", python: str = "") -> str | None:
    """If Spark's report of a failed job shows that the executor can never run a worker, why, in one sentence."""
    where = re.search(r"\((\S+) executor (?:driver|\d+)\)", text)
    host = where[1] if where else host
    executor = f"executor={host} " if host else ""
    if found := re.search(r"different version: \D*([\d.]+)\D* than that in driver: \D*([\d.]+)", text):
        versions = f"python={found[1]} driver={found[2].rstrip('.')}"
        return f"an executor has another Python: {executor}{versions}; is PYSPARK_PYTHON the same everywhere?"
    if found := re.search(r'Cannot run program "([^"]+)"', text):
        return f"an executor cannot start Python: {executor}python={found[1]}; does PYSPARK_PYTHON exist there?"
    if found := re.search(r"No module named '?(pyarrow|pandas|cloudpickle|pyspark)\b", text):
        python = f"python={python} " if python else ""
        return (
            f"an executor has no {found[1]}: {executor}{python}driver_python={sys.executable}; "
            "is PYSPARK_PYTHON a Python that has it?"
        )
    return None
