"""A stream is what operators are declared on: the output of one operator, or of several that were united.

``Stream[T]`` carries tuples of type ``T``. ``T`` is covariant, because tuples only leave a stream, and its default is
``Any``, so that ``Stream`` alone is a valid annotation.

The body of an operator has four forms. Overloads tell them apart, in this order: an async function, a class with an
async ``process``, a class with ``process``, a function. The function comes last, because the others fit it as well: an
async function returns a coroutine, and calling a ``functools.partial`` of a class returns an instance.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypedDict, Unpack, overload

from tailrace.calls import Calls
from tailrace.calls.options import DEFAULT_CONCURRENCY
from tailrace.connector import Sink
from tailrace.errors import TopologyError, refuse_unknown
from tailrace.policy.groupings.api import Grouping
from tailrace.policy.groupings.shuffle import shuffle
from tailrace.topology import checks
from tailrace.topology.body import Processor, check_body, is_async
from tailrace.topology.calling import check_calls, on_error_of
from tailrace.topology.graph import Kind, OnError, Operator, Port, Role
from tailrace.topology.options import OperatorOptions, SinkOptions
from tailrace.topology.placeholders import OutputRows, refuse_second
from tailrace.topology.shipping import check_shippable

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", covariant=True, default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T", covariant=True)

U = TypeVar("U")
V = TypeVar("V")

DEFAULT_MAX_SIZE = 32
DEFAULT_MAX_WAIT_MS = 5
"""A batch is called for when it has 32 tuples or its first has waited 5 ms: small beside a model's own time."""


class Output(NamedTuple):
    """One of the ends that a stream consists of."""

    operator: str
    port: Port


class Growing(Protocol):
    """The topology of a stream, as the stream sees it: operators can be added to it."""

    @property
    def name(self) -> str: ...

    def operator(self, name: str) -> Operator: ...

    @property
    def operators(self) -> Sequence[Operator]: ...

    def check_new(self, name: str) -> None:
        """Raise TopologyError unless an operator of this name may be added."""
        ...

    def add(self, operator: Operator, inputs: Iterable[Output], grouping: Grouping | None) -> Stream[Any]: ...


class _Declared(NamedTuple):
    """Parameters as the user gave them, not checked yet."""

    tasks: int | None = None
    grouping: Grouping | None = None
    kind: str = "auto"
    stateful: bool = False
    mergeable: bool = False
    idempotent: bool = True
    on_error: str = "fail"
    concurrency: int | None = None
    calls: Calls | None = None


class DeadLetter(TypedDict):
    """A tuple whose function raised, as it comes out of ``stream.dead_letters``: made of JSON types.

    Example:
        >>> def line(letter: tr.DeadLetter) -> str:
        ...     return f"{letter['operator']} failed: {letter['error']} on {letter['value']}"
        >>> lines = tr.Topology("numbers").source("lines", tr.from_iterable(["1", "x"]))
        >>> lines.map("parse", int, on_error="dead_letter").dead_letters.map("describe", line)
        Stream(describe.main)
    """

    operator: str
    task: int
    error: str
    """Type and message of what was raised, in one line."""

    value: Any
    """The tuple; or, if it cannot be written as JSON, its ``repr``, shortened."""

    traceback: str


class Stream(Generic[T]):
    """The output of an operator, on which further operators are declared. ``T`` is the type of its tuples.

    A stream may feed any number of operators; each gets all of its tuples.

    Example:
        >>> topology = tr.Topology("words")
        >>> lines = topology.source("lines", tr.from_iterable(["the mill", "the wheel"]))
        >>> words = lines.flat_map("split", str.split)
        >>> words.sink("out", tr.to_list())
        >>> print(topology)
        topology words
        lines: source, 1 task
        └─ shuffle ─▶ split: flat_map, 1 task
           └─ shuffle ─▶ out: sink, 1 task
    """

    def __init__(self, topology: Growing, outputs: tuple[Output, ...]) -> None:
        self.topology = topology
        self.outputs = outputs

    @overload
    def map(self, name: str, fn: Callable[[T], Awaitable[U]], **options: Unpack[OperatorOptions]) -> Stream[U]: ...

    @overload
    def map(
        self, name: str, fn: Callable[[], Processor[T, Awaitable[U]]], **options: Unpack[OperatorOptions]
    ) -> Stream[U]: ...

    @overload
    def map(self, name: str, fn: Callable[[], Processor[T, U]], **options: Unpack[OperatorOptions]) -> Stream[U]: ...

    @overload
    def map(self, name: str, fn: Callable[[T], U], **options: Unpack[OperatorOptions]) -> Stream[U]: ...

    def map(self, name: str, fn: Any, **options: Unpack[OperatorOptions]) -> Stream[Any]:
        """Declare an operator that makes one tuple of each.

        Args:
            name: the operator's name, unique in the topology.
            fn: a function of one tuple, which may be ``async def``; or a class with ``process(self, value)``, or a
                ``functools.partial`` of one, of which each task gets an instance.
            options: see ``OperatorOptions``.

        Returns:
            The stream of what ``fn`` returns.

        Example:
            >>> numbers = tr.Topology("numbers").source("numbers", tr.from_iterable(range(10)))
            >>> numbers.map("double", lambda number: 2 * number, tasks=2)
            Stream(double.main)
        """
        return self._transform(Role.MAP, name, fn, options, {})

    @overload
    def flat_map(
        self, name: str, fn: Callable[[T], Awaitable[Iterable[U]]], **options: Unpack[OperatorOptions]
    ) -> Stream[U]: ...

    @overload
    def flat_map(
        self, name: str, fn: Callable[[], Processor[T, Awaitable[Iterable[U]]]], **options: Unpack[OperatorOptions]
    ) -> Stream[U]: ...

    @overload
    def flat_map(
        self, name: str, fn: Callable[[], Processor[T, Iterable[U]]], **options: Unpack[OperatorOptions]
    ) -> Stream[U]: ...

    @overload
    def flat_map(self, name: str, fn: Callable[[T], Iterable[U]], **options: Unpack[OperatorOptions]) -> Stream[U]: ...

    def flat_map(self, name: str, fn: Any, **options: Unpack[OperatorOptions]) -> Stream[Any]:
        """Declare an operator that makes any number of tuples of each.

        Args:
            name: the operator's name, unique in the topology.
            fn: as for ``map``, but it returns or yields any number of tuples.
            options: see ``OperatorOptions``.

        Returns:
            The stream of the tuples that ``fn`` returned or yielded.

        Example:
            >>> lines = tr.Topology("words").source("lines", tr.from_iterable(["the mill", "the wheel"]))
            >>> lines.flat_map("split", str.split)
            Stream(split.main)
        """
        return self._transform(Role.FLAT_MAP, name, fn, options, {})

    @overload
    def filter(
        self, name: str, fn: Callable[[], Processor[T, object]], **options: Unpack[OperatorOptions]
    ) -> Stream[T]: ...

    @overload
    def filter(self, name: str, fn: Callable[[T], object], **options: Unpack[OperatorOptions]) -> Stream[T]: ...

    def filter(self, name: str, fn: Any, **options: Unpack[OperatorOptions]) -> Stream[T]:
        """Declare an operator that lets those tuples pass for which ``fn`` returns something true.

        Args:
            name: the operator's name, unique in the topology.
            fn: as for ``map``, but what it returns only decides whether the tuple passes.
            options: see ``OperatorOptions``.

        Returns:
            The stream of the tuples that pass.

        Example:
            >>> numbers = tr.Topology("numbers").source("numbers", tr.from_iterable(range(10)))
            >>> numbers.filter("even", lambda number: number % 2 == 0)
            Stream(even.main)
        """
        return self._transform(Role.FILTER, name, fn, options, {})

    @overload
    def map_batch(
        self,
        name: str,
        fn: Callable[[], Processor[list[T], Sequence[U]]],
        max_size: int = ...,
        max_wait_ms: float = ...,
        **options: Unpack[OperatorOptions],
    ) -> Stream[U]: ...

    @overload
    def map_batch(
        self,
        name: str,
        fn: Callable[[list[T]], Sequence[U]],
        max_size: int = ...,
        max_wait_ms: float = ...,
        **options: Unpack[OperatorOptions],
    ) -> Stream[U]: ...

    def map_batch(
        self,
        name: str,
        fn: Any,
        max_size: int = DEFAULT_MAX_SIZE,
        max_wait_ms: float = DEFAULT_MAX_WAIT_MS,
        **options: Unpack[OperatorOptions],
    ) -> Stream[Any]:
        """Declare an operator that takes a list of tuples and returns a list of the same length, as models like it.

        Args:
            name: the operator's name, unique in the topology.
            fn: as for ``map``, but it takes a list and returns one tuple for each element, in the same order.
            max_size: how many tuples a batch has at most.
            max_wait_ms: how long the first tuple of a batch waits for others.
            options: see ``OperatorOptions``.

        Returns:
            The stream of the elements of the lists that ``fn`` returned.

        Example:
            >>> numbers = tr.Topology("numbers").source("numbers", tr.from_iterable(range(10)))
            >>> numbers.map_batch("double", lambda batch: [2 * number for number in batch], max_size=8)
            Stream(double.main)
        """
        checks.check_name("operator", name)
        batch = {
            "max_size": checks.check_positive(name, "max_size", max_size),
            "max_wait_ms": checks.check_wait(name, max_wait_ms),
        }
        return self._transform(Role.MAP_BATCH, name, fn, options, batch)

    def sink(self, name: str, sink: Sink[T], **options: Unpack[SinkOptions]) -> None:
        """Declare where tuples end.

        Args:
            name: the operator's name, unique in the topology.
            sink: a connector, such as ``to_jsonl(…)`` or ``to_list()``.
            options: see ``SinkOptions``.

        Example:
            >>> numbers = tr.Topology("numbers").source("numbers", tr.from_iterable(range(10)))
            >>> numbers.sink("out", tr.to_list())
        """
        self.topology.check_new(name)
        checks.check_sink(name, sink)
        how = _declared(name, options, SinkOptions)
        self._add(name, Role.SINK, sink, how, {})

    def output(self, name: str = "output", **options: Unpack[SinkOptions]) -> None:
        """Declare where the rows of the DataFrame go out that ``Topology.apply`` returns.

        Args:
            name: the operator's name, unique in the topology.
            options: see ``SinkOptions``.

        Example:
            >>> topology = tr.Topology("users")
            >>> topology.input("users").map("name", lambda user: {"name": user["name"]}).output("names")
        """
        refuse_second(self.topology.name, self.topology.operators, OutputRows, name)
        self.sink(name, OutputRows(), **options)

    @property
    def dead_letters(self) -> Stream[DeadLetter]:
        """The tuples whose function raised, of an operator with ``on_error="dead_letter"``, each with its error.

        Example:
            >>> lines = tr.Topology("numbers").source("lines", tr.from_iterable(["1", "x"]))
            >>> numbers = lines.map("parse", int, on_error="dead_letter")
            >>> numbers.dead_letters.sink("failed", tr.to_list())
        """
        for output in self.outputs:
            on_error = self.topology.operator(output.operator).on_error
            if on_error is not OnError.DEAD_LETTER or output.port is not Port.MAIN:
                raise TopologyError(
                    f"no dead letters here: operator={output.operator} port={output.port.value} "
                    f"on_error={on_error.value!r}: did you forget on_error='dead_letter'?"
                )
        return Stream(self.topology, tuple(Output(output.operator, Port.DEAD_LETTERS) for output in self.outputs))

    def _transform(
        self, role: Role, name: str, fn: Any, given_options: OperatorOptions, options: dict[str, Any]
    ) -> Stream[Any]:
        self.topology.check_new(name)
        how = _declared(name, given_options, OperatorOptions)
        check_body(name, role, fn, with_calls=how.calls is not None)
        asynchronous = is_async(fn)
        if how.calls is not None:
            calls = check_calls(name, role, how.calls, given_options)
            options["concurrency"] = calls.concurrency
            how = how._replace(on_error=on_error_of(name, calls, given_options))
        elif asynchronous or how.concurrency is not None:
            given = DEFAULT_CONCURRENCY if how.concurrency is None else how.concurrency
            options["concurrency"] = checks.check_concurrency(name, given, asynchronous)
        return self._add(name, role, fn, how, options)

    def _add(self, name: str, role: Role, body: Any, how: _Declared, options: dict[str, Any]) -> Stream[Any]:
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
            calls=how.calls,
        )
        check_shippable(name, "sink" if role is Role.SINK else "function", body)
        return self.topology.add(operator, self.outputs, None if how.grouping is None else grouping)

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


def _declared(operator: str, given: Mapping[str, Any], known: type) -> _Declared:
    """The parameters of an operator, if all are known by the TypedDict ``known``."""
    refuse_unknown("parameter", given, known.__annotations__, f"operator={operator}")
    return _Declared(**given)


@overload
def union(first: Stream[T], second: Stream[U], /) -> Stream[T | U]: ...


@overload
def union(first: Stream[T], second: Stream[U], third: Stream[V], /) -> Stream[T | U | V]: ...


@overload
def union(*streams: Stream[T]) -> Stream[T]: ...


def union(*streams: Stream[Any]) -> Stream[Any]:
    """The tuples of all these streams as one stream, in no particular order.

    Args:
        streams: at least one, all of the same topology.

    Example:
        >>> topology = tr.Topology("both")
        >>> small = topology.source("small", tr.from_iterable(range(10)))
        >>> large = topology.source("large", tr.from_iterable(range(1000, 1010)))
        >>> tr.union(small, large).sink("out", tr.to_list())
    """
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
