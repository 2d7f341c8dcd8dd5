"""A host that runs each worker as a Spark job of its own, with one task that lasts as long as the worker.

Not a barrier stage, where one lost task aborts the job, and not one job for all, because a task that never ends never
resets Spark's count of its failures. A worker that dies is started again as a new job; what Spark itself tries again of
the old one is refused, and ends.
"""

from __future__ import annotations

import functools
import sys
import threading
from typing import Any

from pyspark.sql import SparkSession

from tailrace.runtime.control import Bootstrap
from tailrace.runtime.host import Exited
from tailrace.spark.task import SCHEMA, as_worker

CLOSE_S = 10.0
"""How long cancelled jobs may take to end. Spark kills their Python processes after two or three seconds."""


class SparkHost:
    """Workers are tasks of Spark jobs."""

    def __init__(self, spark: SparkSession, run: str, name: str) -> None:
        self._spark = spark
        self._run = run
        self._name = name
        self._threads: dict[tuple[int, int], threading.Thread] = {}
        self._lock = threading.Lock()

    def start(self, bootstrap: Bootstrap, exited: Exited) -> None:
        place = (bootstrap.worker, bootstrap.epoch)
        name = f"tailrace-spark-{bootstrap.worker}"
        thread = threading.Thread(target=self._job, args=(bootstrap, exited), name=name, daemon=True)
        with self._lock:
            self._threads[place] = thread
        thread.start()

    def _job(self, bootstrap: Bootstrap, exited: Exited) -> None:
        place = (bootstrap.worker, bootstrap.epoch)
        try:
            self._run_job(bootstrap)
            why = "its Spark task ended"
        except Exception as error:
            why = explain(error)
        with self._lock:
            self._threads.pop(place, None)
        exited(*place, why)

    def _run_job(self, bootstrap: Bootstrap) -> None:
        context = self._spark.sparkContext
        context.setJobGroup(
            self._group(bootstrap.worker, bootstrap.epoch), f"tailrace {self._name}: worker {bootstrap.worker}"
        )
        function: Any = functools.partial(as_worker, bootstrap, [entry for entry in sys.path if entry])
        self._spark.range(0, 1, 1, 1).mapInArrow(function, SCHEMA).collect()

    def _group(self, worker: int, epoch: int) -> str:
        return f"tailrace-{self._run}-{worker}-{epoch}"

    def abandon(self, worker: int, epoch: int) -> None:
        """At once: as long as the old task is there it holds a slot, perhaps the one its successor needs."""
        with self._lock:
            known = (worker, epoch) in self._threads
        if known:
            self._cancel(worker, epoch)

    def _cancel(self, worker: int, epoch: int) -> None:
        try:
            self._spark.sparkContext.cancelJobGroup(self._group(worker, epoch))
        except Exception:
            pass  # the session has been stopped, and all its jobs with it

    def close(self) -> None:
        with self._lock:
            threads = dict(self._threads)
        for worker, epoch in threads:
            self._cancel(worker, epoch)
        for thread in threads.values():
            if thread is not threading.current_thread():
                thread.join(CLOSE_S)


def explain(error: BaseException) -> str:
    """The one line of a Spark error that says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    for line in lines:
        if "ModuleNotFoundError: No module named" in line:
            return f"{line.rpartition('ModuleNotFoundError: ')[2]} on an executor; is tailrace installed there?"
    return lines[0][:300] if lines else type(error).__name__
