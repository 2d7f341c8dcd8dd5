"""``Topology.apply``: stages the rows of a DataFrame, runs the topology on them, and reads what it has written.

Rows go through files on both ways. Spark could pipe them through tasks of its own instead, but what leaves a task that
still runs comes late there, and is lost with it: see ``docs/decisions/apply.md``.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from tailrace.errors import OptionError, TailraceError, refuse_unknown, shorten
from tailrace.policy import Grouping, pull
from tailrace.runtime.connectors import to_parquet
from tailrace.runtime.connectors.commits.files import absolute
from tailrace.runtime.driver.run import HostedRun, check_start
from tailrace.runtime.listening import Place
from tailrace.runtime.options import RunSettings
from tailrace.spark.apply.home import finished_home, lasting_home, temporary_home
from tailrace.spark.apply.result_schema import result_schema
from tailrace.spark.connectors.passing_types import described, row_reader, writable
from tailrace.spark.connectors.staged_rows import rows_in
from tailrace.spark.connectors.staged_source import DataFrameSource, files_in
from tailrace.spark.connectors.staging import check_splits, stage
from tailrace.spark.run import (
    check_session,
    configuration,
    free_slots,
    options_of,
    place_of,
    settings_of,
    slots_of,
    start_on_spark,
)
from tailrace.spark.shared_folder import check_shared, path_to_read
from tailrace.spark.slots import HELD
from tailrace.topology import ApplyOptions, Run, Topology, filled
from tailrace.topology.placeholders import InputRows, OutputRows

MOST_SPLITS = 64
"""Files beyond that are read one after another: each that is open takes memory for its columns and some rows."""

ROLL_S = 30.0
"""A file of the result is complete so long after its first row. A worker that dies loses no more work than that, and an
hour leaves 120 files for each task of the output."""

logger = logging.getLogger("tailrace")


def apply_on_spark(
    topology: Topology, df: Any, schema: Any, attend: Callable[[Run], None], options: ApplyOptions
) -> DataFrame:
    """See ``Topology.apply``. ``attend`` waits for the end of the run."""
    refuse_unknown("option", options, ApplyOptions.__annotations__)
    frame = check_dataframe(df)
    session = frame.sparkSession
    check_session(session)
    known: dict[str, Any] = dict(options)
    folder, splits, checkpoint = (known.pop(name, None) for name in ("folder", "splits", "checkpoint"))
    check_splits(splits)
    settings = settings_for(session, topology, known)
    reader = row_reader(frame.schema, "apply=df")
    result = result_schema(schema)
    columns = writable(result, "schema")
    about = topology.name, described(frame.schema), described(result)
    finished = None if checkpoint is None else finished_home(checkpoint, *about)
    start = check_run(session, topology, settings) if finished is None else None
    check_places(session, folder, checkpoint)
    home = finished or (temporary_home(folder, *about) if checkpoint is None else lasting_home(checkpoint, *about))
    try:
        if start is None or home.complete:
            logger.warning("the result is there already, and is returned as it is: checkpoint=%s", home.path)
        else:
            source = DataFrameSource(home.rows, reader, MOST_SPLITS)
            sink = to_parquet(home.output, schema=columns, roll_seconds=ROLL_S)
            whole = filled(topology, source, sink, start.by_load)
            whole.validate()
            stage(frame, home.rows, splits, durable=home.lasting)
            run = start_on_spark(whole, session, replace(settings, checkpoint=home.run), start.place)
            see_through(run, attend, source)
    except BaseException:
        home.give_up()
        raise
    home.finish()
    return read_back(session, home.output, result)


def check_dataframe(df: Any) -> DataFrame:
    if not isinstance(df, DataFrame):
        raise OptionError(f"not a DataFrame: apply={shorten(df)} type={type(df).__name__}: is it a table?")
    if df.isStreaming:
        raise OptionError(
            "DataFrame is streaming: apply takes bounded ones: did you mean topology.source(…, tr.from_stream(df, …))?"
        )
    return df


def default_workers(session: Any, topology: Topology) -> dict[str, int]:
    """As many as there are free slots, but none without a task. Nothing if Spark does not say how many there are.

    Without any free slot it is one, which is refused with the reason.
    """
    free = free_slots(session)
    if free is None:
        return {}
    tasks = [operator.tasks for operator in topology.operators]
    wanted = free if None in tasks else min(free, sum(number or 0 for number in tasks))
    return {"workers": max(1, wanted)}


def settings_for(session: Any, topology: Topology, options: Mapping[str, Any]) -> RunSettings:
    """The settings of the run. The checkpoint of the session is not for it: all calls would return the first result."""
    conf = configuration(session)
    given = options_of(conf, options)
    if "workers" not in given:
        given.update(default_workers(session, topology))
    return replace(settings_of(session.sparkContext.master, conf, given), checkpoint=None)


class Start(NamedTuple):
    """Decisions made before rows are staged: where the driver listens, and the grouping where none was chosen."""

    place: Place
    by_load: Grouping | None


def check_run(session: Any, topology: Topology, settings: RunSettings) -> Start:
    """Raise what the run would raise, before rows are staged for it.

    All rows are there from the start, and some may take long: a task that is free takes the next one. With shared
    queues tasks do so already.
    """
    context = session.sparkContext
    HELD.check(context.applicationId, settings.workers, slots_of(session), context.master)
    by_load = pull() if settings.tail.shared_queues is None else None
    place = place_of(context.master, configuration(session))
    check_start(filled(topology, InputRows(), OutputRows(), by_load), settings, place)
    return Start(place, by_load)


def check_places(session: Any, folder: Any, checkpoint: Any) -> None:
    if folder is not None and checkpoint is not None:
        raise OptionError(
            f"rows cannot be in two places: folder={shorten(folder)} checkpoint={shorten(checkpoint)}: "
            "should they last, in checkpoint=, or be deleted when the driver ends, in folder=?"
        )
    place = tempfile.gettempdir() if folder is None else folder
    if checkpoint is None:
        check_shared(session, absolute(place), "folder")
    else:
        check_shared(session, absolute(checkpoint), "checkpoint")


def see_through(run: Run, attend: Callable[[Run], None], source: DataFrameSource) -> None:
    """Wait for the end of a run, which has then read all of its source and committed what followed from it."""
    try:
        attend(run)
    except BaseException:
        if run.isActive:
            run.stop(0)
        raise
    check_all_read(run, source)


def check_all_read(run: Run, source: DataFrameSource) -> None:
    """Raise TailraceError if the run was drained before its end, as the end of the driver's main thread does."""
    assert isinstance(run, HostedRun)
    coordinator = run.coordinator
    plan, positions = coordinator.plan, coordinator.positions
    mine = [split for split in plan.splits if plan.operators[split.source].operator.body is source]
    read = sum(positions[split.index].offset for split in mine)
    rows = sum(map(rows_in, files_in(source.folder)))
    if read < rows:
        raise TailraceError(
            f"the run was stopped before it had read all rows: run={run.name} read={read} rows={rows}: "
            "did the driver end while apply was at work in another thread?"
        )


def read_back(session: Any, output: Path, schema: StructType) -> DataFrame:
    """The result. Dates of all centuries are written as they are: nothing needs to be rebased."""
    reader = session.read.schema(schema).option("datetimeRebaseMode", "CORRECTED")
    frame: DataFrame = reader.parquet(path_to_read(output))
    return frame
