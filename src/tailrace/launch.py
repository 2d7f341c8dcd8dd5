"""Implements ``Topology.run``: chooses the host of the workers, and starts the run."""

from __future__ import annotations

import logging
import os
from typing import Any, Unpack

from tailrace.runtime.driver.host import SubprocessHost
from tailrace.runtime.driver.run import HostedRun
from tailrace.runtime.listening import LOOPBACK
from tailrace.runtime.options import RunSettings
from tailrace.runtime.resource_needs import check_workers, free_bytes, process_limit
from tailrace.topology import RunOptions, Topology


def launch(topology: Topology, spark: Any, /, **options: Unpack[RunOptions]) -> HostedRun:
    """Run on the executors of a Spark session, or, if it is None, in subprocesses on this machine."""
    if spark is None:
        chosen = RunSettings.of(options)
        cores = os.cpu_count() or 1
        warning = check_workers(chosen.workers, cores, free_bytes(), process_limit(), chosen.start_timeout_s)
        if warning is not None:
            logging.getLogger("tailrace").warning("%s", warning)
        return HostedRun(topology, chosen, SubprocessHost(), LOOPBACK)
    from tailrace.spark.run import launch_on_spark

    return launch_on_spark(topology, spark, options)
