"""How a topology is written down: operators are declared on the streams they consume, and checked at once.

A topology knows nothing about how it runs. Whoever can run one registers with ``set_launcher``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tailrace.errors import TailraceError, TopologyError, shorten
from tailrace.policy.grouping import Grouping
from tailrace.policy.shuffle import shuffle
from tailrace.topology import checks, drawing, validation
from tailrace.topology.graph import Edge, Kind, Operator, Port, Role
from tailrace.topology.shipping import check_shippable
from tailrace.topology.stream import Output, Stream

Launcher = Callable[..., Any]
"""Called as ``launcher(topology, spark, workers=…, **options)``; what it returns is the handle of the run."""

_launcher: Launcher | None = None


def set_launcher(launcher: Launcher | None) -> None:
    """Say who runs topologies from now on."""
    global _launcher
    _launcher = launcher


class Topology:
    """A graph of named operators. Grows until ``freeze``, which ``run`` calls."""

    def __init__(self, name: str) -> None:
        self.name = checks.check_name("topology", name)
        self._operators: dict[str, Operator] = {}
        self._edges: list[Edge] = []
        self._frozen = False

    def source(self, name: str, source: Any, *, tasks: int = 1, kind: str = "auto") -> Stream:
        """Declare where tuples come from. ``kind="blocking"``: readers wait in ``poll``, so each task gets a thread."""
        self.check_new(name)
        checks.check_source(name, source)
        how = checks.check_choice(name, "kind", Kind, kind)
        operator = Operator(name, Role.SOURCE, source, checks.check_positive(name, "tasks", tasks), kind=how)
        check_shippable(name, "source", source)
        return self.add(operator, (), shuffle())

    def connect(self, upstream: str, downstream: str, grouping: Grouping | None = None) -> None:
        """Add an edge between operators that exist already."""
        self._check_not_frozen()
        self.operator(downstream)
        self._add_edges([self._edge(Output(self.operator(upstream).name, Port.MAIN), downstream, grouping)])

    def stream(self, name: str) -> Stream:
        """The output of an operator that exists already. For a sink, only its ``dead_letters`` can be consumed."""
        return Stream(self, (Output(self.operator(name).name, Port.MAIN),))

    def operator(self, name: str) -> Operator:
        """The operator of this name."""
        try:
            return self._operators[name]
        except (KeyError, TypeError):
            known = ", ".join(self._operators) or "none yet"
            raise TopologyError(
                f"no such operator: topology={self.name} operator={shorten(name)}: did you mean one of: {known}?"
            ) from None

    @property
    def operators(self) -> tuple[Operator, ...]:
        """In the order of declaration."""
        return tuple(self._operators.values())

    @property
    def edges(self) -> tuple[Edge, ...]:
        """In the order of declaration."""
        return tuple(self._edges)

    def topological_order(self) -> tuple[Operator, ...]:
        """Every operator after all that feed it; among equals in the order of declaration."""
        return validation.topological_order(self.operators, self.edges)

    def validate(self) -> None:
        """Raise ``TopologyError`` unless the topology as a whole can run."""
        validation.validate(self.name, self.operators, self.edges)

    def freeze(self) -> None:
        """Refuse any further operator or edge."""
        self._frozen = True

    def run(self, spark: Any = None, *, workers: int | None = None, **options: Any) -> Any:
        """Start the topology on ``workers`` workers, two unless said, and return the handle of the run."""
        self.validate()
        if _launcher is None:
            raise TopologyError(
                f"nobody can run a topology yet: topology={self.name} launcher=None: did you forget import tailrace?"
            )
        if workers is not None:
            options["workers"] = workers
        frozen = self._frozen
        self.freeze()
        try:
            return _launcher(self, spark, **options)
        except TailraceError:
            self._frozen = frozen  # it does not run
            raise

    def check_new(self, name: str) -> None:
        """Whether an operator of this name may be declared now."""
        self._check_not_frozen()
        checks.check_name("operator", name)
        if name in self._operators:
            raise TopologyError(
                f"two operators have the same name: topology={self.name} operator={name}: "
                "is a piece of code that declares it run twice?"
            )

    def add(self, operator: Operator, inputs: Iterable[Output], grouping: Grouping) -> Stream:
        """Add a checked operator and the edges that feed it: all of them, or none when one is refused."""
        self._operators[operator.name] = operator
        try:
            self._add_edges([self._edge(output, operator.name, grouping) for output in inputs])
        except TopologyError:
            del self._operators[operator.name]
            raise
        return self.stream(operator.name)

    def _edge(self, output: Output, downstream: str, grouping: Grouping | None) -> Edge:
        grouping = shuffle() if grouping is None else checks.check_grouping(downstream, grouping)
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
