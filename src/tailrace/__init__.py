"""Tailrace runs Python stream topologies record by record, and keeps their latency tail short."""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from tailrace.calls import CallErrorAction, Calls, RetryAfter, limit
from tailrace.connector import Sink, Source
from tailrace.dashboard import watch
from tailrace.errors import (
    NotRepeatable,
    OptionError,
    SparkMissing,
    TailraceError,
    TaskError,
    TopologyError,
    WorkerLost,
    WorkersMissing,
)
from tailrace.launch import apply as _apply
from tailrace.launch import launch
from tailrace.policy import (
    Grouping,
    HedgeRule,
    QueueScope,
    SendScheduler,
    Tail,
    Techniques,
    adaptive_timeout,
    broadcast,
    fields,
    fifo,
    fixed_timeout,
    latency_balanced,
    lbf,
    lbf_work,
    least_work,
    local,
    osg,
    partial_key,
    power_of_two,
    pull,
    replicate,
    round_robin,
    shuffle,
)
from tailrace.runtime.connectors import (
    at_rate,
    from_iterable,
    from_lines,
    to_call,
    to_jsonl,
    to_list,
    to_parquet,
)
from tailrace.runtime.worker.opening import Context
from tailrace.topology import (
    ApplyOptions,
    DeadLetter,
    ErrorAction,
    OperatorOptions,
    Processor,
    Run,
    RunOptions,
    SinkOptions,
    SourceOptions,
    Stream,
    TaskKind,
    Topology,
    set_applier,
    set_launcher,
    union,
)
from tailrace.version import VERSION

if TYPE_CHECKING:
    from tailrace import sim
    from tailrace.spark.calls.map_rows import map_rows
    from tailrace.spark.calls.udf import udf
    from tailrace.spark.connectors.data_sink import to_data_source
    from tailrace.spark.connectors.data_source import from_data_source
    from tailrace.spark.connectors.dataframe import from_dataframe
    from tailrace.spark.connectors.streaming import from_stream
    from tailrace.spark.connectors.tables import read_stream
    from tailrace.spark.session import local_session

__version__ = VERSION

__all__ = [
    "ApplyOptions",
    "CallErrorAction",
    "Calls",
    "Context",
    "DeadLetter",
    "ErrorAction",
    "Grouping",
    "HedgeRule",
    "NotRepeatable",
    "OperatorOptions",
    "OptionError",
    "Processor",
    "QueueScope",
    "RetryAfter",
    "Run",
    "RunOptions",
    "SendScheduler",
    "Sink",
    "SinkOptions",
    "Source",
    "SourceOptions",
    "SparkMissing",
    "Stream",
    "Tail",
    "TailraceError",
    "TaskError",
    "TaskKind",
    "Techniques",
    "Topology",
    "TopologyError",
    "WorkerLost",
    "WorkersMissing",
    "adaptive_timeout",
    "at_rate",
    "broadcast",
    "fields",
    "fifo",
    "fixed_timeout",
    "from_data_source",
    "from_dataframe",
    "from_iterable",
    "from_lines",
    "from_stream",
    "latency_balanced",
    "lbf",
    "lbf_work",
    "least_work",
    "limit",
    "local",
    "local_session",
    "map_rows",
    "osg",
    "partial_key",
    "power_of_two",
    "pull",
    "read_stream",
    "replicate",
    "round_robin",
    "shuffle",
    "sim",
    "to_call",
    "to_data_source",
    "to_jsonl",
    "to_list",
    "to_parquet",
    "udf",
    "union",
    "watch",
]

set_launcher(launch)
set_applier(_apply)

_ON_SPARK = {
    "from_data_source": "connectors.data_source",
    "from_dataframe": "connectors.dataframe",
    "from_stream": "connectors.streaming",
    "local_session": "session",
    "map_rows": "calls.map_rows",
    "read_stream": "connectors.tables",
    "udf": "calls.udf",
    "to_data_source": "connectors.data_sink",
}


def __getattr__(name: str) -> Any:
    """Import the parts that need pyspark, and the simulator, when asked for: a worker starts faster without them."""
    if name == "sim":
        return import_module("tailrace.sim")
    if name in _ON_SPARK:
        try:
            return getattr(import_module(f"tailrace.spark.{_ON_SPARK[name]}"), name)
        except SparkMissing as missing:
            return _refusing(str(missing))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _refusing(why: str) -> Callable[..., NoReturn]:
    """Stands for a function that needs Spark where there is none, so that ``from tailrace import *`` works there."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise SparkMissing(why)

    return refuse
