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
from tailrace.spark.connectors.handover.batch_gate import BatchGate
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
"""How long a query may take to finish its batch when the run drains. Then Spark cancels the batch."""

CLOSING_GRACE_S = 5.0
"""The time that a batch gets when the run is over. It must leave Spark time to cancel the batch before the run
leaves the feed alone: until then neither folder nor slot is free for the next run."""

HELD_BACK_S = 0.05
"""How often a batch that is held back looks whether fewer rows wait."""

STOPPED_S = 0.01
"""How often a batch that may not begin looks whether Spark knows of the stop."""

SPARK_FORGIVES = "py4j.protocol.Py4JJavaError: An error occurred while calling o: java.lang.InterruptedException"
"""By this text in an error of a batch Spark knows that a stop has caused it. The query then ends without an error."""


@dataclass(frozen=True)
class QueryPlan:
    """A streaming DataFrame, and the folder in which its rows are handed over. See ``from_stream``."""

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
        self._cut = False  # a batch was broken off by a stop of the query
        self._closed = False
        self._lock = threading.Lock()  # of the keeper
        self._gate = BatchGate()
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
        self._stop(GRACE_S)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            self._stop(CLOSING_GRACE_S)
            self._clean()
        finally:
            if self._jobs is not None:
                unprotect(self._spark.sparkContext, self._jobs)
            HELD.give_back(self._application, 1)
            with self._lock:
                self._keeper.close()

    def _stop(self, grace_s: float) -> None:
        """End the query, in the middle of a batch that takes longer than this. Any number of threads may wait here."""
        if self._query is None or self._watcher is None:
            return
        if self._is_active:
            self._gate.shut_after_batch(grace_s)
            try:
                self._query.stop()
            except Exception:
                if self._has_session:
                    raise
                # Spark has noted that it is to end, and its thread ends; only its jobs could not be cancelled.
        self._watcher.join()
        self._end()

    # -- in the thread that watches the query

    def _watch(self, query: StreamingQuery) -> None:
        error: TailraceError | None = None
        try:
            while self._has_session and not query.awaitTermination(LOOK_S):
                self._look(query)
            self._look(query)
            if not self._gate.shut:
                if not self._has_session:
                    raise RuntimeError("there is no session")
                self._end()
        except Exception as cause:
            if self._cut and self._has_session:  # a stop is an ordinary end, also where Spark does not see it as one
                self._end()
            else:
                error = self._explain(self._fault or cause)
        if not self._gate.shut:  # else the run stops it, and knows
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
            with self._gate.batch(number):
                self._carry(frame, number)
            return
        except Exception as error:
            self._cut = self._is_stopped()
            if not self._cut:
                self._fault = error
        cause = f" cause={SPARK_FORGIVES}" if self._cut else ""
        raise TailraceError(f"batch was not handed over: batch={number}{cause}")

    def _is_stopped(self) -> bool:
        """Whether the query was stopped: Spark notes that before it breaks a batch off.

        A batch that the gate refuses is ahead of its stop, which is a moment away.
        """
        until_s = time.monotonic() + CLOSING_GRACE_S
        while self._gate.shut and self._is_active and time.monotonic() < until_s:
            time.sleep(STOPPED_S)
        return self._is_active is False

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
        while not self._gate.shut and self._waiting() > self._plan.max_waiting:
            if not self._is_active:  # it waits for this batch
                raise TailraceError("the query was stopped while it was held back")
            time.sleep(HELD_BACK_S)

    @property
    def _is_active(self) -> bool | None:
        """Whether Spark means the query to go on; None if there is no JVM to ask.

        The first batch may begin before the query has a handle.
        """
        try:
            return self._query is None or self._query.isActive
        except Exception:
            return None


def in_a_line(error: BaseException) -> str:
    """The error in a line: of a Python traceback the line that it is about, otherwise what Spark says first."""
    text = str(error).partition("=== Streaming Query ===")[0]
    told = re.findall(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)*(\S.*)", text, re.MULTILINE)
    line = told[-1] if told else explain(Exception(text))
    return str(line).rpartition(" terminated with exception: ")[2].strip()[:300]
