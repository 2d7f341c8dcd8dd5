"""A streaming DataFrame is a source: a streaming query hands its micro-batches over, and workers read them.

Batches only carry rows from Spark to the run. Once there, each row goes its own way, and a slow one holds up no other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from tailrace.connector import Feed, FeedContext, Reader, SplitStart
from tailrace.errors import OptionError, did_you_mean, shorten
from tailrace.policy.numbers import is_whole
from tailrace.runtime.connectors.commits.files import absolute
from tailrace.spark.calls.driver import is_connect
from tailrace.spark.connectors.handover.folder import About, HandoverFolder
from tailrace.spark.connectors.handover.query_feed import QueryFeed, QueryPlan
from tailrace.spark.connectors.handover.reader import HandoverSource
from tailrace.spark.connectors.passing_types import described, of_any_length, row_reader
from tailrace.spark.connectors.staged_rows import RowReader
from tailrace.spark.shared_folder import check_shared

MOST_SPLITS = 1024
_TRIGGERS = ("processingTime", "availableNow", "once")


class StreamingSource:
    """See ``from_stream``. Workers get a ``HandoverSource`` in its place."""

    replayable = True

    def __init__(self, plan: QueryPlan, reader: RowReader) -> None:
        self.plan = plan
        self.in_workers = HandoverSource(plan.folder.path, plan.about.splits, reader)
        self.query: StreamingQuery | None = None
        """The streaming query of the newest run; None before the first."""

    def splits(self, tasks: int) -> Sequence[str]:
        return self.in_workers.splits(tasks)

    def open(self, start: SplitStart) -> Reader[dict[str, Any]]:
        return self.in_workers.open(start)

    def feed(self, context: FeedContext) -> Feed:
        return QueryFeed(self.plan, context, self._started)

    def _started(self, query: StreamingQuery) -> None:
        self.query = query

    def delete(self) -> None:
        """Delete the folder. The runs that use it must have ended, and their job begins anew without it."""
        self.plan.folder.delete()

    def __reduce__(self) -> tuple[Any, ...]:
        return HandoverSource, (self.in_workers.folder, self.in_workers.count, self.in_workers.reader)

    def __repr__(self) -> str:
        return f"from_stream(folder={str(self.plan.folder.path)!r}, splits={self.plan.about.splits})"


def from_stream(
    df: DataFrame,
    *,
    folder: str | Path,
    splits: int = 4,
    trigger: Mapping[str, Any] | None = None,
    name: str | None = None,
    max_waiting: int = 100_000,
) -> StreamingSource:
    """Read the rows of a streaming DataFrame, as dicts, each as soon as its micro-batch is there.

    A run of a topology with this source starts a streaming query, which writes each micro-batch to the folder at once
    and goes on. A row that takes long to process holds up no batch, and no row behind it. ``run.stop()`` stops the
    query, and then drains what it has handed over; when the query ends by itself, the run ends once all is processed.
    ``source.query`` is the query, and its progress is in ``run.lastProgress["queries"]``.

    Args:
        df: a streaming DataFrame.
        folder: where the query keeps its checkpoint, and batches until they are durable. One for each job and source,
            which the driver, executors and workers all reach. The next run with this folder and the same
            ``checkpoint=`` goes on where both stopped.
        splits: how many parts the rows are divided into, of which each task of the source reads some. They cannot be
            changed later.
        trigger: when a batch begins, as for ``df.writeStream.trigger(**trigger)``, such as
            ``{"processingTime": "1 second"}``, or ``{"availableNow": True}`` to end when nothing more is there. The
            default is as soon as the one before is done.
        name: the query's name. The default is made of the names of topology and source.
        max_waiting: how many rows may wait for the run. While there are more, the query begins no batch. Rows count
            that are not durable, and those that lie behind such a row in their split.

    Example:
        >>> numbers = spark.readStream.format("rate").option("rowsPerSecond", 10).load()
        >>> source = tr.from_stream(numbers, folder="handover/numbers")
        >>> topology = tr.Topology("numbers")
        >>> topology.source("rows", source, tasks=2).sink("out", tr.to_list())
    """
    _check_frame(df)
    if folder is None or folder == "":
        raise OptionError(
            f"folder is missing: from_stream folder={folder!r}, did you forget folder='…'? Without it nothing is known "
            "after a restart"
        )
    place = absolute(folder)
    if not is_whole(splits) or not 1 <= splits <= MOST_SPLITS:
        raise OptionError(
            f"splits must be a whole number from 1 to {MOST_SPLITS}: splits={shorten(splits)}, "
            "did you mean to leave it out?"
        )
    if not is_whole(max_waiting) or max_waiting < 1:
        raise OptionError(
            f"option must be a positive whole number: max_waiting={shorten(max_waiting)}, did you mean to leave it out?"
        )
    if name is not None and (not isinstance(name, str) or not name.strip()):
        raise OptionError(f"not a name of a query: name={shorten(name)}, did you mean to leave it out?")
    reader = row_reader(df.schema, "from_stream")
    about = About(splits, tuple(described(df.schema).items()))
    frame = of_any_length(df)
    plan = QueryPlan(frame, HandoverFolder(place), about, _checked_trigger(df, trigger), name, max_waiting)
    plan.folder.check(about)
    check_shared(df.sparkSession, place, "from_stream")
    return StreamingSource(plan, reader)


def _check_frame(df: Any) -> None:
    if is_connect(df):
        raise OptionError(
            f"Spark Connect cannot hand rows over to a run: type={type(df).__module__}.{type(df).__name__}, "
            "could you use a classic SparkSession?"
        )
    if not isinstance(df, DataFrame):
        raise OptionError(
            f"not a DataFrame: from_stream={shorten(df)} type={type(df).__name__}, "
            "did you mean spark.readStream.….load()?"
        )
    if not df.isStreaming:
        raise OptionError("DataFrame is not streaming: from_stream takes streaming ones, did you mean from_dataframe?")


def _checked_trigger(df: DataFrame, trigger: Any) -> Mapping[str, Any] | None:
    if trigger is None:
        return None
    if not isinstance(trigger, Mapping) or len(trigger) != 1:
        raise OptionError(
            f"not a trigger: trigger={shorten(trigger)}, did you mean a dict such as {{'processingTime': '1 second'}}?"
        )
    ((kind, value),) = trigger.items()
    if kind in ("continuous", "realTime"):
        raise OptionError(
            f"a handover takes micro-batches only: trigger={kind}={shorten(value)}, did you mean processingTime=…?"
        )
    if kind not in _TRIGGERS:
        raise OptionError(f"unknown trigger: {shorten(kind)}=…: {did_you_mean(kind, _TRIGGERS, '{}=…')}")
    try:
        df.writeStream.trigger(**trigger)
    except Exception as error:  # of PySpark, or of the JVM that reads the interval
        raise OptionError(f"not a trigger: {kind}={shorten(value)}, did you mean {_EXAMPLES[kind]}?") from error
    return dict(trigger)


_EXAMPLES = {"processingTime": "processingTime='1 second'", "availableNow": "availableNow=True", "once": "once=True"}
