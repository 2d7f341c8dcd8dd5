"""What is to be computed: operators, the edges between them, and whether they make sense together."""

from tailrace.topology.body import is_async, is_factory
from tailrace.topology.build import Topology, set_launcher
from tailrace.topology.graph import Edge, Kind, OnError, Operator, Port, Role
from tailrace.topology.stream import Stream, union

__all__ = [
    "Edge",
    "Kind",
    "OnError",
    "Operator",
    "Port",
    "Role",
    "Stream",
    "Topology",
    "is_async",
    "is_factory",
    "set_launcher",
    "union",
]
