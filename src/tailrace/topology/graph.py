"""The frozen parts of a topology: operators and the edges between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tailrace.calls import Calls
from tailrace.policy.groupings.api import Grouping


class Role(Enum):
    """The role of an operator: what it does with a tuple."""

    SOURCE = "source"
    MAP = "map"
    FLAT_MAP = "flat_map"
    FILTER = "filter"
    MAP_BATCH = "map_batch"
    SINK = "sink"


class OnError(Enum):
    """The fate of a tuple whose function raised."""

    FAIL = "fail"
    SKIP = "skip"
    DEAD_LETTER = "dead_letter"


class Kind(Enum):
    """How a task shares its worker with the others."""

    AUTO = "auto"  # shares the worker's thread until its calls prove long, then gets one of its own
    CPU = "cpu"  # always shares the worker's thread
    BLOCKING = "blocking"  # a thread of its own from the start


class Port(Enum):
    """Which of an operator's outputs an edge starts from."""

    MAIN = "main"
    DEAD_LETTERS = "dead_letters"


@dataclass(frozen=True)
class Operator:
    """One operator as the user declared it."""

    name: str
    role: Role
    body: Any  # a function, a class, a Source or a Sink
    tasks: int | None  # None: one task a worker
    kind: Kind = Kind.AUTO
    stateful: bool = False
    mergeable: bool = False  # state of one key may lie in several tasks; something downstream puts it together
    idempotent: bool = True
    on_error: OnError = OnError.FAIL
    options: dict[str, Any] = field(default_factory=dict)  # max_size, max_wait_ms, concurrency
    calls: Calls | None = None  # how its function is called; None: directly


@dataclass(frozen=True)
class Edge:
    """Tuples flow from one operator to another by a grouping."""

    upstream: str
    downstream: str
    grouping: Grouping
    port: Port = Port.MAIN
    chosen: bool = field(default=True, compare=False)  # False: this grouping was not asked for, it is the default
