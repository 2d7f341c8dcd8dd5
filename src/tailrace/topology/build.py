"""How a topology is written down: operators are declared on the streams they consume, and checked at once.

A topology knows nothing about how it runs: see ``launching``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar, Unpack

from tailrace.connector import Sink, Source
from tailrace.errors import TailraceError, TopologyError, did_you_mean, refuse_unknown, shorten
from tailrace.policy.groupings.api import Grouping
from tailrace.policy.groupings.shuffle import shuffle
from tailrace.topology import checks, drawing, placeholders, validation
from tailrace.topology.graph import Edge, Kind, Operator, Port, Role
from tailrace.topology.launching import DataFrame, SparkSession, StructType, the_applier, the_launcher
from tailrace.topology.options import ApplyOptions, RunOptions, SourceOptions
from tailrace.topology.run import Run
from tailrace.topology.shipping import check_shippable
from tailrace.topology.stream import Output, Stream

T = TypeVar("T")

Frame = TypeVar("Frame", bound=DataFrame)


class Topology:
    """A graph of named operators. It may grow until it runs.

    Args:
        name: 1 to 100 letters, digits, ``_``, ``-`` or ``.``; it appears in metrics, logs and Spark's user interface.

    Example:
        >>> topology = tr.Topology("doubles")
        >>> numbers = topology.source("numbers", tr.from_iterable(range(10)))
        >>> numbers.map("double", lambda number: 2 * number).sink("out", tr.to_list())
        >>> topology
        Topology('doubles', operators=3, edges=2)
    """

    def __init__(self, name: str) -> None:
        self.name = checks.check_name("topology", name)
        self._operators: dict[str, Operator] = {}
        self._edges: list[Edge] = []
        self._frozen = False

    def source(self, name: str, source: Source[T], **options: Unpack[SourceOptions]) -> Stream[T]:
        """Declare where tuples come from.

        Args:
            name: the operator's name, unique in the topology.
            source: a connector, such as ``from_lines(…)`` or ``from_iterable(…)``.
            options: see ``SourceOptions``.

        Returns:
            The stream of the tuples that the source reads.

        Example:
            >>> topology = tr.Topology("numbers")
            >>> topology.source("numbers", tr.from_iterable(range(10)), tasks=2)
            Stream(numbers.main)
        """
        self.check_new(name)
        refuse_unknown("parameter", options, SourceOptions.__annotations__, f"operator={name}")
        checks.check_source(name, source)
        kind = checks.check_choice(name, "kind", Kind, options.get("kind", "auto"))
        tasks = checks.check_positive(name, "tasks", options.get("tasks", 1))
        operator = Operator(name, Role.SOURCE, source, tasks, kind=kind)
        check_shippable(name, "source", source)
        return self.add(operator, (), None)

    def input(self, name: str = "input", **options: Unpack[SourceOptions]) -> Stream[dict[str, Any]]:
        """Declare where the rows of a DataFrame come in, to which ``apply`` applies the topology.

        Args:
            name: the operator's name, unique in the topology.
            options: see ``SourceOptions``.

        Returns:
            The stream of the rows, as dicts.

        Example:
            >>> topology = tr.Topology("users")
            >>> topology.input("users").filter("adult", lambda user: user["age"] >= 18).output("adults")
            >>> topology
            Topology('users', operators=3, edges=2)
        """
        placeholders.refuse_second(self.name, self.operators, placeholders.InputRows, name)
        return self.source(name, placeholders.InputRows(), **options)

    def connect(self, upstream: str, downstream: str, grouping: Grouping | None = None) -> None:
        """Add an edge between operators that exist already.

        Args:
            upstream: the name of the operator that tuples leave.
            downstream: the name of the operator that they reach.
            grouping: which task each tuple goes to; ``None`` means ``shuffle()``.

        Example:
            >>> topology = tr.Topology("numbers")
            >>> topology.source("small", tr.from_iterable(range(10))).sink("out", tr.to_list())
            >>> large = topology.source("large", tr.from_iterable(range(1000, 1010)))
            >>> topology.connect("large", "out")
        """
        self._check_not_frozen()
        self.operator(downstream)
        self._add_edges([self._edge(Output(self.operator(upstream).name, Port.MAIN), downstream, grouping)])

    def stream(self, name: str) -> Stream[Any]:
        """The output of an operator that exists already. For a sink, only its ``dead_letters`` can be consumed.

        Args:
            name: the operator's name.

        Example:
            >>> topology = tr.Topology("numbers")
            >>> numbers = topology.source("numbers", tr.from_iterable(range(10)))
            >>> topology.stream("numbers")
            Stream(numbers.main)
        """
        return Stream(self, (Output(self.operator(name).name, Port.MAIN),))

    def operator(self, name: str) -> Operator:
        """The operator of this name.

        Args:
            name: the operator's name.

        Example:
            >>> topology = tr.Topology("numbers")
            >>> numbers = topology.source("numbers", tr.from_iterable(range(10)), tasks=2)
            >>> topology.operator("numbers").tasks
            2
        """
        try:
            return self._operators[name]
        except (KeyError, TypeError):
            hint = did_you_mean(name, self._operators)
            raise TopologyError(f"no such operator: topology={self.name} operator={shorten(name)}: {hint}") from None

    @property
    def operators(self) -> tuple[Operator, ...]:
        """All operators, in the order of declaration.

        Example:
            >>> topology = tr.Topology("numbers")
            >>> topology.source("numbers", tr.from_iterable(range(10))).sink("out", tr.to_list())
            >>> [operator.name for operator in topology.operators]
            ['numbers', 'out']
        """
        return tuple(self._operators.values())

    @property
    def edges(self) -> tuple[Edge, ...]:
        """All edges, in the order of declaration.

        Example:
            >>> topology = tr.Topology("numbers")
            >>> topology.source("numbers", tr.from_iterable(range(10))).sink("out", tr.to_list())
            >>> [(edge.upstream, edge.downstream, edge.grouping.name) for edge in topology.edges]
            [('numbers', 'out', 'shuffle')]
        """
        return tuple(self._edges)

    def topological_order(self) -> tuple[Operator, ...]:
        """All operators, each after those that feed it; otherwise in the order of declaration.

        Example:
            >>> topology = tr.Topology("numbers")
            >>> topology.source("numbers", tr.from_iterable(range(10))).sink("out", tr.to_list())
            >>> [operator.name for operator in topology.topological_order()]
            ['numbers', 'out']
        """
        return validation.topological_order(self.operators, self.edges)

    def validate(self) -> None:
        """Raise ``TopologyError`` unless the topology as a whole can run. ``run`` calls it first.

        Example:
            >>> tr.Topology("empty").validate()
            Traceback (most recent call last):
            tailrace.errors.TopologyError: no source: topology=empty: did you forget topology.source(…)?
        """
        placeholders.refuse_placeholders(self.name, self.operators)
        validation.validate(self.name, self.operators, self.edges)

    def freeze(self) -> None:
        """Refuse any further operator or edge. ``run`` calls it.

        Example:
            >>> topology = tr.Topology("numbers")
            >>> topology.freeze()
            >>> topology.source("numbers", tr.from_iterable(range(10)))
            Traceback (most recent call last):
            tailrace.errors.TopologyError: a topology that runs cannot change: topology=numbers: did you declare ...
        """
        self._frozen = True

    def run(self, spark: SparkSession | None = None, **options: Unpack[RunOptions]) -> Run:
        """Start the topology on the executors of a Spark session, or on plain processes of this machine.

        Args:
            spark: a classic ``SparkSession``. ``None``: workers are processes of this machine.
            options: see ``RunOptions``. With a Spark session they may also be set as ``spark.tailrace.*``.

        Returns:
            The handle of the run, as soon as workers are being started.

        Example:
            >>> topology = tr.Topology("doubles")
            >>> numbers = topology.source("numbers", tr.from_iterable(range(4)))
            >>> doubles: list[int] = []
            >>> numbers.map("double", lambda number: 2 * number).sink("out", tr.to_list(doubles))
            >>> topology.run(workers=1).awaitTermination()
            True
            >>> sorted(doubles)
            [0, 2, 4, 6]
        """
        self.validate()
        launch = the_launcher(self.name)
        if "workers" in options and options["workers"] is None:
            del options["workers"]
        frozen = self._frozen
        self.freeze()
        try:
            return launch(self, spark, **options)
        except TailraceError:
            self._frozen = frozen  # it does not run
            raise

    def apply(self, df: Frame, schema: str | StructType, **options: Unpack[ApplyOptions]) -> Frame:
        """Run the topology on the rows of a DataFrame to the end, and return the rows of its output as a DataFrame.

        ``topology.input(…)`` says where the rows come in, ``stream.output(…)`` where those of the result go out. A call
        runs at once: a Spark job writes the rows to files, workers on the executors take them one by one, and the
        result is read from the files that they write, **each row once**. Ctrl-C drains, and what the run has failed
        with is raised. The topology may be applied again, to other DataFrames.

        Args:
            df: a DataFrame of a classic session that is not streaming. Its rows come as dicts.
            schema: the columns of the result, such as ``"id long, name string"``, or a ``StructType``. Rows that go out
                are dicts, tuples or ``Row``s of these columns.
            options: see ``ApplyOptions``. Without ``workers`` there are as many as the session has free slots. With
                ``checkpoint`` a call that was cut off goes on where it was, and one that was complete returns at once.

        Returns:
            A DataFrame over files, which are deleted when the driver ends unless there is a ``checkpoint``.

        Example:
            >>> topology = tr.Topology("lengths")
            >>> words = topology.input("words")
            >>> lengths = words.map("measure", lambda row: {**row, "length": len(row["word"])}, tasks=2)
            >>> lengths.output("lengths")
            >>> df = spark.createDataFrame([("so",), ("goes",)], "word string")
            >>> topology.apply(df, "word string, length int", workers=2).orderBy("length").collect()
            [Row(word='so', length=2), Row(word='goes', length=4)]
        """
        placeholders.check_placeholders(self.name, self.operators)
        validation.validate(self.name, self.operators, self.edges)
        result: Frame = the_applier(self.name)(self, df, schema, **options)
        return result

    def check_new(self, name: str) -> None:
        """Raise ``TopologyError`` unless an operator of this name may be declared now.

        Args:
            name: the operator's name.

        Example:
            >>> tr.Topology("numbers").check_new("double")
        """
        self._check_not_frozen()
        checks.check_name("operator", name)
        if name in self._operators:
            raise TopologyError(
                f"two operators have the same name: topology={self.name} operator={name}: "
                "is a piece of code that declares it run twice?"
            )

    def add(self, operator: Operator, inputs: Iterable[Output], grouping: Grouping | None) -> Stream[Any]:
        """Add a checked operator and the edges that feed it: all of them, or none when one is refused.

        ``source`` and the methods of ``Stream`` check operators and call this.

        Args:
            operator: the operator.
            inputs: the outputs that feed it.
            grouping: which task each tuple goes to; ``None`` means ``shuffle()``.

        Example:
            >>> from tailrace.topology import Operator, Role
            >>> operator = Operator("numbers", Role.SOURCE, tr.from_iterable(range(10)), 1)
            >>> tr.Topology("numbers").add(operator, (), tr.shuffle())
            Stream(numbers.main)
        """
        self._operators[operator.name] = operator
        try:
            self._add_edges([self._edge(output, operator.name, grouping) for output in inputs])
        except TopologyError:
            del self._operators[operator.name]
            raise
        return self.stream(operator.name)

    def _edge(self, output: Output, downstream: str, grouping: Grouping | None) -> Edge:
        if grouping is None:
            return Edge(output.operator, downstream, shuffle(), output.port, chosen=False)
        checks.check_grouping(downstream, grouping)
        check_shippable(downstream, "grouping", grouping)
        return Edge(output.operator, downstream, grouping, output.port)

    def _add_edges(self, edges: list[Edge]) -> None:
        together = list(self._edges)
        for edge in edges:
            checks.check_edge(self._operators, together, edge)
            together.append(edge)
        self._edges = together

    def _check_not_frozen(self) -> None:
        if self._frozen:
            raise TopologyError(
                f"a topology that runs cannot change: topology={self.name}: did you declare this after run()?"
            )

    def __str__(self) -> str:
        return drawing.draw(self.name, self.operators, self.edges)

    def __repr__(self) -> str:
        return f"Topology({self.name!r}, operators={len(self._operators)}, edges={len(self._edges)})"


def filled(topology: Topology, source: Source[Any], sink: Sink[Any], by_load: Grouping | None = None) -> Topology:
    """A copy with connectors in the place of ``input`` and ``output``. To run it leaves the original as it is.

    ``by_load``: the grouping of edges for which none was chosen, where load may decide.
    """
    copy = Topology(topology.name)
    copy._operators = {
        operator.name: placeholders.filled(operator, source, sink) for operator in topology._operators.values()
    }
    copy._edges = [
        replace(edge, grouping=by_load)
        if by_load is not None and not edge.chosen and placeholders.takes_by_load(copy.operator(edge.downstream))
        else edge
        for edge in topology._edges
    ]
    return copy
