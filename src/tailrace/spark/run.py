"""Running a topology on the executors of a Spark session."""

from __future__ import annotations

import uuid
from typing import Any

from tailrace.errors import TopologyError
from tailrace.runtime.coordinator import Place
from tailrace.runtime.options import RunOptions
from tailrace.runtime.run import Run
from tailrace.spark.host import SparkHost
from tailrace.topology import Topology


def launch_on_spark(topology: Topology, spark: Any, options: dict[str, Any]) -> Run:
    if "connect" in type(spark).__module__:
        raise TopologyError("Spark Connect cannot host workers: spark=connect; could you use a classic SparkSession?")
    context = spark.sparkContext
    address = context.getConf().get("spark.driver.host", "127.0.0.1")
    bind = context.getConf().get("spark.driver.bindAddress", address)
    host = SparkHost(spark, uuid.uuid4().hex[:8], topology.name)
    return Run(topology, RunOptions.of(options), host, Place(bind, address))
