"""What ``Topology.run`` does: it chooses who hosts the workers."""

from __future__ import annotations

from typing import Any

from tailrace.runtime.coordinator import LOOPBACK
from tailrace.runtime.host import SubprocessHost
from tailrace.runtime.options import RunOptions
from tailrace.runtime.run import Run
from tailrace.topology import Topology


def launch(topology: Topology, spark: Any, **options: Any) -> Run:
    """Run on a Spark session's executors, or without one in subprocesses on this machine."""
    if spark is None:
        return Run(topology, RunOptions.of(options), SubprocessHost(), LOOPBACK)
    from tailrace.spark.run import launch_on_spark

    return launch_on_spark(topology, spark, options)
