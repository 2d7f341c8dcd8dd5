"""The feed of a streaming DataFrame: a streaming query that hands each of its micro-batches over to the run.

The rows of a batch are written to files, and the driver publishes their names. Spark runs a batch again after a crash
between that and its own log. Its rows are then computed once more, because operators with state need that, and thrown
away.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from tailrace.connector import FeedContext
from tailrace.errors import TailraceError
from tailrace.spark.connectors.handover.batch_writer import BatchWriter
from tailrace.spark.connectors.handover.folder import About, HandoverFolder
from tailrace.spark.connectors.handover.keeper import Keeper
from tailrace.spark.host import explain
from tailrace.spark.interrupts import protect, unprotect
from tailrace.spark.run import slots_of
from tailrace.spark.shared_folder import path_to_write
from tailrace.spark.slots import HELD

LOOK_S = 1
"""How often batches that are durable are deleted, and the query's progress is read."""

GRACE_S = 30.0
"""How long a query that is stopped may take to finish its batch. Then Spark cancels it, and logs that as an error."""

HELD_BACK_S = 0.05
"""How often a batch that is held back looks whether fewer rows wait."""


@dataclass(frozen=True)
class QueryPlan:
    """What a streaming query computes, and where it hands that over. See ``from_stream``."""

    frame: DataFrame
    folder: HandoverFolder
    about: About
    trigger: Mapping[str, Any] | None
    name: str | None
    max_waiting: int


class QueryJobs:
    """The jobs of a streaming query, for ``protect``."""

    def __init__(self, context: Any, query: StreamingQuery) -> None:
        self._tracker = context.statusTracker()
        self._group = str(query.runId)

    def ids(self) -> set[int]:
        return set(self._tracker.getJobIdsForGroup(self._group))


class QueryFeed:
    """See ``Feed``. It has the folder of the source, and a slot of the session, until it is closed."""

    def __init__(self, plan: QueryPlan, context: FeedContext, started: Callable[[StreamingQuery], None]) -> None:
        self._plan = plan
        self._started = started  # is told of the query
        self._context = context
        self._spark = plan.frame.sparkSession
        self._name = plan.name or f"{context.topology}/{context.operator}"
        spark_context = self._spark.sparkContext
        self._application = spark_context.applicationId
        self._keeper = Keeper(plan.folder, plan.about, context.job_id, context.starts)
        wanted = f"and a streaming query needs one: source={context.operator} query={self._name}"
        try:
            HELD.take(self._application, 1, slots_of(self._spark), str(spark_context.master), wanted)
        except BaseException:
            self._keeper.close()
            raise
        self._writer = BatchWriter(plan.folder.rows, plan.about.splits)
        self._query: StreamingQuery | None = None
        self._jobs: QueryJobs | None = None
        self._watcher: threading.Thread | None = None
        self._fault: Exception | None = None  # what has ended a batch: Spark tells of it with much around it
        self._stopping = False
        self._closed = False
        self._lock = threading.Lock()  # of the keeper
        self._in_batch = threading.Lock()  # held during a batch
        self._progress: Mapping[str, Any] | None = None

    @property
    def progress(self) -> Mapping[str, Any] | None:
        return None if self._progress is None else {**self._progress, "waitingRows": self._waiting()}

    def start(self) -> None:
        plan = self._plan
        writer = plan.frame.writeStream.foreachBatch(self._run_batch).outputMode("append").queryName(self._name)
        writer = writer.option("checkpointLocation", path_to_write(plan.folder.query))
        if plan.trigger is not None:
            writer = writer.trigger(**plan.trigger)
        try:
            self._query = writer.start()
        except Exception as error:  # of Spark, which refuses some plans here, and names that are taken
            raise TailraceError(
                f"the streaming query cannot start: source={self._context.operator} query={self._name} "
                f"cause={explain(error)}; does it aggregate without a watermark, or is its name taken?"
            ) from error
        self._started(self._query)
        context = self._spark.sparkContext
        self._jobs = QueryJobs(context, self._query)
        protect(context, self._jobs)
        self._watcher = threading.Thread(target=self._watch, args=(self._query,), name="tailrace-query", daemon=True)
        self._watcher.start()

    def stop(self) -> None:
        if self._query is None or self._watcher is None:
            return
        if _is_active(self._query):
            self._stopping = True
            between = self._in_batch.acquire(timeout=GRACE_S)
            try:
                self._query.stop()
            except Exception:
                if self._has_session:
                    raise
                # Spark has noted that it is to end, and its thread ends; only its jobs could not be cancelled.
            finally:
                if between:
                    self._in_batch.release()
        self._watcher.join()
        self._end()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            self.stop()
            self._clean()
        finally:
            if self._jobs is not None:
                unprotect(self._spark.sparkContext, self._jobs)
            HELD.give_back(self._application, 1)
            self._keeper.close()

    # -- in the thread that watches the query

    def _watch(self, query: StreamingQuery) -> None:
        error: TailraceError | None = None
        try:
            while self._has_session and not query.awaitTermination(LOOK_S):
                self._look(query)
            self._look(query)
            if not self._stopping:
                if not self._has_session:
                    raise RuntimeError("there is no session")
                self._end()
        except Exception as cause:
            error = self._explain(self._fault or cause)
        if not self._stopping:  # else it was interrupted in a batch, which it has not handed over
            self._context.ended(error)

    def _look(self, query: StreamingQuery) -> None:
        last = query.lastProgress
        if last is not None:
            self._progress = json.loads(last.json)
        self._clean()

    def _clean(self) -> None:
        with self._lock:
            self._keeper.clean(self._context.durable())

    @property
    def _has_session(self) -> bool:
        """False once the session was stopped, which leaves a query alive that has nothing to do."""
        return self._spark.sparkContext._jsc is not None

    def _waiting(self) -> int:
        with self._lock:
            return self._keeper.waiting(self._context.durable())

    def _end(self) -> None:
        with self._lock:
            self._keeper.end()

    def _explain(self, cause: Exception) -> TailraceError:
        place = f"source={self._context.operator} query={self._name}"
        if isinstance(cause, TailraceError):
            return cause
        if not self._has_session:
            return TailraceError(
                f"the Spark session was stopped under a streaming query: {place}; was spark.stop() called?"
            )
        text = f"the streaming query failed: {place} cause={in_a_line(cause)}; is it its data, or one of its own steps?"
        error = TailraceError(text)
        error.__cause__ = cause
        return error

    # -- in a thread of Spark's, once a batch

    def _run_batch(self, frame: DataFrame, number: int) -> None:
        """The errors that it raises are short: Spark matches their text with a pattern that recurs for each letter."""
        try:
            if not self._in_batch.acquire(blocking=not self._stopping):
                raise TailraceError(f"the query is being stopped: batch={number}")
            try:
                self._carry(frame, number)
            finally:
                self._in_batch.release()
            return
        except Exception as error:
            self._fault = error
        raise TailraceError(f"batch was not handed over: batch={number}")

    def _carry(self, frame: DataFrame, number: int) -> None:
        if self._keeper.wants(number):
            self._hold_back()
            files = self._writer.write(frame, number)
            with self._lock:
                self._keeper.hand_over(number, files)
        else:
            frame.write.format("noop").mode("overwrite").save()

    def _hold_back(self) -> None:
        """Wait while too many rows wait for the run, unless the query is being stopped."""
        while not self._stopping and self._waiting() > self._plan.max_waiting:
            time.sleep(HELD_BACK_S)


def _is_active(query: StreamingQuery) -> bool:
    try:
        return query.isActive
    except Exception:  # there is no JVM any more
        return False


def in_a_line(error: BaseException) -> str:
    """What happened: of a Python traceback the line that it is about, otherwise what Spark says first."""
    text = str(error).partition("=== Streaming Query ===")[0]
    told = re.findall(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)*(\S.*)", text, re.MULTILINE)
    line = told[-1] if told else explain(Exception(text))
    return str(line).rpartition(" terminated with exception: ")[2].strip()[:300]
