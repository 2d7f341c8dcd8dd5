"""A stream is what operators are declared on: the output of one operator, or of several that were united."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tailrace.errors import TopologyError
from tailrace.policy.grouping import Grouping
from tailrace.policy.shuffle import shuffle
from tailrace.topology import checks
from tailrace.topology.body import check_body, is_async
from tailrace.topology.graph import Kind, OnError, Operator, Port, Role
from tailrace.topology.shipping import check_shippable

if TYPE_CHECKING:
    from tailrace.topology.build import Topology

DEFAULT_CONCURRENCY = 64
"""Calls of an async function that one task has under way: enough to hide 10 ms of waiting at 6,000 tuples/s."""

DEFAULT_MAX_SIZE = 32
DEFAULT_MAX_WAIT_MS = 5
"""A batch is called for when it has 32 tuples or its first has waited 5 ms: small beside a model's own time."""


class Output(NamedTuple):
    """One of the ends that a stream consists of."""

    operator: str
    port: Port


class _Declared(NamedTuple):
    """Options as the user gave them, not checked yet."""

    tasks: int | None
    grouping: Grouping | None
    kind: str = "auto"
    stateful: bool = False
    mergeable: bool = False
    idempotent: bool = True
    on_error: str = "fail"
    concurrency: int | None = None


class Stream:
    """Tuples on their way. May feed any number of operators; each gets all of them."""

    def __init__(self, topology: Topology, outputs: tuple[Output, ...]) -> None:
        self.topology = topology
        self.outputs = outputs

    def map(
        self,
        name: str,
        fn: Any,
        *,
        tasks: int | None = None,
        grouping: Grouping | None = None,
        kind: str = "auto",
        stateful: bool = False,
        mergeable: bool = False,
        idempotent: bool = True,
        on_error: str = "fail",
        concurrency: int | None = None,
    ) -> Stream:
        """Declare an operator that makes one tuple of each. ``fn`` is a function, or a class with ``process``."""
        how = _Declared(tasks, grouping, kind, stateful, mergeable, idempotent, on_error, concurrency)
        return self._transform(Role.MAP, name, fn, how, {})

    def flat_map(
        self,
        name: str,
        fn: Any,
        *,
        tasks: int | None = None,
        grouping: Grouping | None = None,
        kind: str = "auto",
        stateful: bool = False,
        mergeable: bool = False,
        idempotent: bool = True,
        on_error: str = "fail",
        concurrency: int | None = None,
    ) -> Stream:
        """Declare an operator that makes any number of tuples of each: ``fn`` returns or yields them."""
        how = _Declared(tasks, grouping, kind, stateful, mergeable, idempotent, on_error, concurrency)
        return self._transform(Role.FLAT_MAP, name, fn, how, {})

    def filter(
        self,
        name: str,
        fn: Any,
        *,
        tasks: int | None = None,
        grouping: Grouping | None = None,
        kind: str = "auto",
        stateful: bool = False,
        mergeable: bool = False,
        idempotent: bool = True,
        on_error: str = "fail",
        concurrency: int | None = None,
    ) -> Stream:
        """Declare an operator that lets those tuples pass for which ``fn`` is true."""
        how = _Declared(tasks, grouping, kind, stateful, mergeable, idempotent, on_error, concurrency)
        return self._transform(Role.FILTER, name, fn, how, {})

    def map_batch(
        self,
        name: str,
        fn: Any,
        max_size: int = DEFAULT_MAX_SIZE,
        max_wait_ms: float = DEFAULT_MAX_WAIT_MS,
        *,
        tasks: int | None = None,
        grouping: Grouping | None = None,
        kind: str = "auto",
        stateful: bool = False,
        mergeable: bool = False,
        idempotent: bool = True,
        on_error: str = "fail",
        concurrency: int | None = None,
    ) -> Stream:
        """Declare an operator that takes a list and returns a list of the same length, as models like it."""
        checks.check_name("operator", name)
        batch = {
            "max_size": checks.check_positive(name, "max_size", max_size),
            "max_wait_ms": checks.check_wait(name, max_wait_ms),
        }
        how = _Declared(tasks, grouping, kind, stateful, mergeable, idempotent, on_error, concurrency)
        return self._transform(Role.MAP_BATCH, name, fn, how, batch)

    def sink(
        self,
        name: str,
        sink: Any,
        *,
        tasks: int | None = None,
        grouping: Grouping | None = None,
        kind: str = "auto",
        on_error: str = "fail",
    ) -> None:
        """Declare where tuples end."""
        self.topology.check_new(name)
        checks.check_sink(name, sink)
        how = _Declared(tasks, grouping, kind, on_error=on_error)
        self._add(name, Role.SINK, sink, how, {})

    @property
    def dead_letters(self) -> Stream:
        """The tuples whose function raised, from operators with ``on_error="dead_letter"``."""
        for output in self.outputs:
            on_error = self.topology.operator(output.operator).on_error
            if on_error is not OnError.DEAD_LETTER or output.port is not Port.MAIN:
                raise TopologyError(
                    f"no dead letters here: operator={output.operator} port={output.port.value} "
                    f"on_error={on_error.value!r}: did you forget on_error='dead_letter'?"
                )
        return Stream(self.topology, tuple(Output(output.operator, Port.DEAD_LETTERS) for output in self.outputs))

    def _transform(self, role: Role, name: str, fn: Any, how: _Declared, options: dict[str, Any]) -> Stream:
        self.topology.check_new(name)
        check_body(name, role, fn)
        asynchronous = is_async(fn)
        if asynchronous or how.concurrency is not None:
            given = DEFAULT_CONCURRENCY if how.concurrency is None else how.concurrency
            options["concurrency"] = checks.check_concurrency(name, given, asynchronous)
        return self._add(name, role, fn, how, options)

    def _add(self, name: str, role: Role, body: Any, how: _Declared, options: dict[str, Any]) -> Stream:
        grouping = shuffle() if how.grouping is None else checks.check_grouping(name, how.grouping)
        kind = checks.check_choice(name, "kind", Kind, how.kind)
        operator = Operator(
            name=name,
            role=role,
            body=body,
            tasks=self._tasks(name, how.tasks, grouping, kind),
            kind=kind,
            stateful=checks.check_flag(name, "stateful", how.stateful),
            mergeable=checks.check_flag(name, "mergeable", how.mergeable),
            idempotent=checks.check_flag(name, "idempotent", how.idempotent),
            on_error=checks.check_choice(name, "on_error", OnError, how.on_error),
            options=options,
        )
        check_shippable(name, "sink" if role is Role.SINK else "function", body)
        return self.topology.add(operator, self.outputs, grouping)

    def _tasks(self, name: str, given: int | None, grouping: Grouping, kind: Kind) -> int | None:
        """A local edge needs as many tasks as its upstream has; CPU-bound work gets one a worker, the rest just one."""
        if given is not None:
            return checks.check_positive(name, "tasks", given)
        if grouping.name == "local":
            return self.topology.operator(self.outputs[0].operator).tasks
        return None if kind is Kind.CPU else 1

    def __repr__(self) -> str:
        ends = (f"{output.operator}.{output.port.value}" for output in self.outputs)
        return f"Stream({', '.join(ends)})"


def union(*streams: Stream) -> Stream:
    """The tuples of all these streams as one stream, in no particular order."""
    if not streams:
        raise TopologyError("nothing to unite: streams=0: did you mean union(a, b)?")
    for stream in streams:
        if not isinstance(stream, Stream):
            raise TopologyError(f"not a stream: type={type(stream).__qualname__}: did you mean union(a, b)?")
        if stream.topology is not streams[0].topology:
            raise TopologyError(
                "streams of two topologies cannot be united: "
                f"topologies={streams[0].topology.name},{stream.topology.name}: is one of them left over?"
            )
    return Stream(streams[0].topology, tuple(output for stream in streams for output in stream.outputs))
