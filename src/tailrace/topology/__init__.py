"""A description of what is to be computed: operators, the edges between them, and checks that they fit together."""

from tailrace.topology.body import Processor, is_async, is_async_method, is_factory
from tailrace.topology.build import Topology, filled
from tailrace.topology.graph import Edge, Kind, OnError, Operator, Port, Role
from tailrace.topology.launching import set_applier, set_launcher
from tailrace.topology.options import (
    ApplyOptions,
    ErrorAction,
    OperatorOptions,
    RunOptions,
    SinkOptions,
    SourceOptions,
    TaskKind,
)
from tailrace.topology.run import Run
from tailrace.topology.stream import DeadLetter, Stream, union

__all__ = [
    "ApplyOptions",
    "DeadLetter",
    "Edge",
    "ErrorAction",
    "Kind",
    "OnError",
    "Operator",
    "OperatorOptions",
    "Port",
    "Processor",
    "Role",
    "Run",
    "RunOptions",
    "SinkOptions",
    "SourceOptions",
    "Stream",
    "TaskKind",
    "Topology",
    "filled",
    "is_async",
    "is_async_method",
    "is_factory",
    "set_applier",
    "set_launcher",
    "union",
]
