"""Tailrace runs Python stream topologies record by record, and keeps their latency tail short."""

from tailrace.dashboard import watch
from tailrace.errors import (
    NotRepeatable,
    OptionError,
    TailraceError,
    TaskError,
    TopologyError,
    WorkerLost,
    WorkersMissing,
)
from tailrace.launch import launch
from tailrace.policy import broadcast, fields, local, shuffle
from tailrace.runtime.connectors import (
    at_rate,
    from_iterable,
    from_lines,
    to_call,
    to_jsonl,
    to_list,
    to_parquet,
)
from tailrace.runtime.opening import Context
from tailrace.runtime.run import Run
from tailrace.topology import Stream, Topology, set_launcher, union

__version__ = "0.1.0.dev0"

__all__ = [
    "Context",
    "NotRepeatable",
    "OptionError",
    "Run",
    "Stream",
    "TailraceError",
    "TaskError",
    "Topology",
    "TopologyError",
    "WorkerLost",
    "WorkersMissing",
    "at_rate",
    "broadcast",
    "fields",
    "from_iterable",
    "from_lines",
    "local",
    "shuffle",
    "to_call",
    "to_jsonl",
    "to_list",
    "to_parquet",
    "union",
    "watch",
]

set_launcher(launch)
