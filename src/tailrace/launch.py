"""Implements ``Topology.run``: chooses the host of the workers, and starts the run. ``Topology.apply`` is on Spark."""

from __future__ import annotations

import logging
import os
from typing import Any, Unpack

from tailrace.connector import FileSink
from tailrace.dashboard import watch
from tailrace.errors import OptionError, shorten
from tailrace.runtime.driver.host import SubprocessHost
from tailrace.runtime.driver.run import HostedRun
from tailrace.runtime.listening import LOOPBACK
from tailrace.runtime.options import RunSettings
from tailrace.runtime.resource_needs import check_workers, free_bytes, process_limit
from tailrace.topology import ApplyOptions, Run, RunOptions, Topology


def launch(topology: Topology, spark: Any, /, **options: Unpack[RunOptions]) -> HostedRun:
    """Run on the executors of a Spark session, or, if it is None, in subprocesses on this machine."""
    if spark is None:
        chosen = RunSettings.of(options)
        cores = os.cpu_count() or 1
        warning = check_workers(chosen.workers, cores, free_bytes(), process_limit(), chosen.start_timeout_s)
        if warning is not None:
            logging.getLogger("tailrace").warning("%s", warning)
        return HostedRun(topology, chosen, SubprocessHost(), LOOPBACK, read_table)
    from tailrace.spark.run import launch_on_spark

    return launch_on_spark(topology, spark, options)


def apply(topology: Topology, df: Any, schema: Any, /, **options: Unpack[ApplyOptions]) -> Any:
    """Run on the executors of the DataFrame's session, and show the progress if that is wanted."""
    from tailrace.spark.apply.apply import apply_on_spark

    watched = options.pop("watch", False)
    if not isinstance(watched, bool):
        raise OptionError(f"watch is neither True nor False: watch={shorten(watched)}: did you mix two up?")
    return apply_on_spark(topology, df, schema, watch if watched else _wait, options)


def _wait(run: Run) -> None:
    run.awaitTermination()


def read_table(spark: Any, sink: FileSink, pattern: str, schema: Any) -> Any:
    """The rows that a file sink has committed, as a DataFrame: the part of ``Run.table`` that needs Spark."""
    from tailrace.spark.connectors.tables import committed_table

    return committed_table(spark, sink, pattern, schema)
