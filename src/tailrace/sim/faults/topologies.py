"""The topologies that the fault simulation runs: small ones that together use every way of routing a tuple.

All functions are deterministic and keep the history of a tuple in its value. The expected rows follow from a plain
loop, and each row tells where it has been.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from tailrace.connector import Reader, Record, SinkContext, SplitStart, Writer
from tailrace.core.plan.plan import Plan
from tailrace.core.plan.planner import make_plan
from tailrace.policy import broadcast, fields, least_work, local, osg, partial_key, pull, shuffle
from tailrace.policy.techniques import NODE, WORKER, QueueScope
from tailrace.topology import Port, Role, Topology, union

Row = tuple[Any, ...]


class SimReader:
    """Reads ``(source, split, offset)`` tuples. Offsets are ``stride`` apart."""

    def __init__(self, source: str, start: SplitStart, roots: int, stride: int) -> None:
        self._source = source
        self._split = start.split
        self._next = -(-start.offset // stride)
        self._roots = roots
        self._stride = stride
        self.ready_ns = 0

    def poll(self, limit: int, now_ns: int) -> Sequence[Record]:
        last = min(self._next + max(limit, 0), self._roots)
        offsets = [n * self._stride for n in range(self._next, last)]
        self._next = last
        return [Record(offset, now_ns, (self._source, self._split, offset)) for offset in offsets]

    @property
    def done(self) -> bool:
        return self._next >= self._roots

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class SimSource:
    """A source with known contents."""

    name: str
    roots: int  # in every split
    stride: int = 1  # from one offset to the next
    replayable = True

    def splits(self, tasks: int) -> Sequence[str]:
        return [str(index) for index in range(tasks)]

    def open(self, start: SplitStart) -> Reader:
        return SimReader(self.name, start, self.roots, self.stride)


@dataclass(frozen=True)
class SimSink:
    """A placeholder for a sink; the cluster opens it on its own store."""

    committing: bool = True

    def open(self, context: SinkContext) -> Writer:
        raise AssertionError("the simulated cluster opens its sinks itself")


def mark(name: str) -> Callable[[Row], Row]:
    """Adds a name to a row."""
    return lambda row: (*row, name)


def fan(name: str) -> Callable[[Row], list[Row]]:
    """Emits no, one or two rows, depending on the root."""
    return lambda row: [(*row, name, index) for index in range(row[2] % 3)]


def several(name: str) -> Callable[[Row], list[Row]]:
    """Emits more rows than an operator has tasks, or none, so that some task gets two in one bundle."""
    return lambda row: [(*row, name, index) for index in range(row[2] % 2 * 5)]


def batch(name: str) -> Callable[[list[Row]], list[Row]]:
    """Adds a name to each row of a batch."""
    return lambda rows: [(*row, name) for row in rows]


def keep(row: Row) -> bool:
    """A filter that drops a quarter of all rows."""
    return int(row[2]) % 4 != 1


def key(row: Row) -> int:
    """One of five keys."""
    return int(row[2]) % 5


def _chain(topology: Topology, roots: int) -> None:
    """A common topology: shuffle, then fields, then several sink tasks."""
    stream = topology.source("s", SimSource("s", roots), tasks=2)
    stream = stream.map("a", mark("a"), tasks=3).map("b", mark("b"), tasks=2, grouping=fields(key))
    stream.sink("out", SimSink(), tasks=2)


def _fan(topology: Topology, roots: int) -> None:
    """Operators that emit no or several tuples, and a filter."""
    stream = topology.source("s", SimSource("s", roots), tasks=1).flat_map("f", fan("f"), tasks=2)
    stream = stream.filter("k", keep, tasks=2).flat_map("g", fan("g"), tasks=2, grouping=fields(key))
    stream.sink("out", SimSink(), tasks=3)


def _diamond(topology: Topology, roots: int) -> None:
    """Two branches that meet again in one operator; only the edges distinguish their tuples."""
    source = topology.source("s", SimSource("s", roots), tasks=2)
    left, right = source.map("l", mark("x"), tasks=2), source.map("r", mark("x"), tasks=1)
    union(left, right).map("m", mark("m"), tasks=2).sink("out", SimSink(), tasks=2)


def _broadcast(topology: Topology, roots: int) -> None:
    """Every task of an operator gets every tuple, and so does a sink."""
    source = topology.source("s", SimSource("s", roots), tasks=1)
    copied = source.map("a", mark("a"), tasks=3, grouping=broadcast())
    copied.sink("some", SimSink(), tasks=1)
    source.sink("all", SimSink(), tasks=2, grouping=broadcast())


def _fused(topology: Topology, roots: int) -> None:
    """Local chains, one of them from the source directly into a sink."""
    source = topology.source("s", SimSource("s", roots), tasks=2)
    source.map("a", mark("a"), grouping=local()).sink("near", SimSink(), tasks=2, grouping=local())
    far = source.flat_map("f", fan("f"), tasks=2).map("b", mark("b"), grouping=local(), tasks=2)
    far.sink("far", SimSink(), tasks=1)


def _two_sources(topology: Topology, roots: int) -> None:
    """Two ledgers, one of them with gaps between offsets, and a sink that does not commit beside one that does."""
    one = topology.source("s", SimSource("s", roots), tasks=1)
    two = topology.source("t", SimSource("t", roots, stride=3), tasks=2)
    merged = union(one, two).map("m", mark("m"), tasks=2, grouping=shuffle())
    merged.sink("out", SimSink(), tasks=2)
    merged.sink("loose", SimSink(committing=False), tasks=1)


def _batches(topology: Topology, roots: int) -> None:
    """Tuples that wait for the rest of their batch while later operators fail."""
    stream = topology.source("s", SimSource("s", roots), tasks=2).flat_map("f", fan("f"), tasks=2)
    stream = stream.map_batch("b", batch("b"), max_size=3, max_wait_ms=5, tasks=2)
    stream.sink("out", SimSink(), tasks=2, grouping=fields(key))


def _pulled(topology: Topology, roots: int) -> None:
    """Tuples that senders hold for credits, twice on their way, once in a unit with a fused operator."""
    stream = topology.source("s", SimSource("s", roots), tasks=2).flat_map("f", fan("f"), tasks=3, grouping=pull())
    stream = stream.map("b", mark("b"), tasks=3, grouping=local()).map("c", mark("c"), tasks=2, grouping=pull())
    stream.sink("out", SimSink(), tasks=2)


def _by_load(topology: Topology, roots: int) -> None:
    """All other kinds of feedback: sketches, syncs on tuples, reports; and a union with a plain edge."""
    source = topology.source("s", SimSource("s", roots), tasks=2)
    sketched = source.map("o", mark("o"), tasks=2, grouping=osg(key, window=2, tolerance=1.0))
    worked = sketched.flat_map("w", fan("w"), tasks=3, grouping=least_work(key))
    batched = worked.map_batch("p", batch("p"), max_size=3, max_wait_ms=5, tasks=2, grouping=pull())
    batched.map("k", mark("k"), tasks=2, grouping=partial_key(key)).sink("out", SimSink(), tasks=2)
    topology.connect("o", "p", shuffle())


def _drawn(topology: Topology, roots: int) -> None:
    """Tasks that draw from shared queues, also parts of bundles: one by one, with a fused operator, in batches."""
    stream = topology.source("s", SimSource("s", roots), tasks=2).flat_map("f", several("f"), tasks=3)
    stream = stream.map("d", mark("d"), tasks=4).map("n", mark("n"), tasks=4, grouping=local())
    stream = stream.map_batch("b", batch("b"), max_size=3, max_wait_ms=5, tasks=5)
    stream.sink("out", SimSink(), tasks=2)


def _drawn_by_load(topology: Topology, roots: int) -> None:
    """Shared queues behind load-aware edges: another task than the chosen one may run a tuple."""
    stream = topology.source("s", SimSource("s", roots), tasks=2)
    stream = stream.flat_map("f", several("f"), tasks=4, grouping=pull())
    stream = stream.map("w", mark("w"), tasks=4, grouping=least_work(key))
    stream = stream.map_batch("b", batch("b"), max_size=3, max_wait_ms=5, tasks=4, grouping=pull())
    stream.sink("out", SimSink(), tasks=2)


SHAPES: tuple[Callable[[Topology, int], None], ...] = (
    _chain,
    _fan,
    _diamond,
    _broadcast,
    _fused,
    _two_sources,
    _batches,
    _pulled,
    _by_load,
    _drawn,
    _drawn_by_load,
)

SHARED = {_drawn, _drawn_by_load}
"""Topologies whose tasks share queues from the start."""

MACHINE = 2
"""Number of workers on one machine."""


Rows = Mapping[str, Counter[Row]]
"""Sink -> its rows."""


@dataclass(frozen=True)
class Case:
    """A topology on some workers, and the rows that it must produce."""

    plan: Plan
    rows: Rows  # at each committing sink
    rows_by_root: Mapping[tuple[int, int], Rows]  # (split index, offset) -> the rows of this root
    shared_queues: QueueScope | None  # at the start
    other_sinks: tuple[Plan, ...]  # plans with one task less or more at sinks whose rows do not depend on it


@cache
def case_of(shape: int, workers: int, roots: int) -> Case:
    """The topology of this shape, its plan, and the rows that it must lead to."""
    topology = Topology(SHAPES[shape].__name__.strip("_"))
    SHAPES[shape](topology, roots)
    topology.validate()
    plan = make_plan(topology, workers)
    rows = _expected_rows(plan)
    others = tuple(_with_other_sinks(shape, workers, roots, change) for change in (-1, 1))
    return Case(plan, rows, _rows_by_root(plan, rows), _shared_by(SHAPES[shape], workers), others)


def _with_other_sinks(shape: int, workers: int, roots: int, change: int) -> Plan:
    topology = Topology(SHAPES[shape].__name__.strip("_"))
    SHAPES[shape](topology, roots)
    fixed = {edge.downstream for edge in topology.edges if edge.grouping.name in ("broadcast", "local")}
    for operator in topology.operators:
        if operator.role is Role.SINK and operator.name not in fixed and operator.tasks is not None:
            topology._operators[operator.name] = replace(operator, tasks=max(1, operator.tasks + change))
    topology.validate()
    return make_plan(topology, workers)


def _shared_by(shape: Callable[[Topology, int], None], workers: int) -> QueueScope | None:
    """How queues are shared: by node if there are several machines."""
    if shape not in SHARED:
        return None
    return NODE if shape is _drawn and workers > MACHINE else WORKER


def _rows_by_root(plan: Plan, expected: Rows) -> Mapping[tuple[int, int], Rows]:
    """Expected rows by root; each row begins with source, split and offset."""
    split_of = {(plan.operators[split.source].name, split.name): split.index for split in plan.splits}
    found: dict[tuple[int, int], dict[str, Counter[Row]]] = {}
    for sink, rows in expected.items():
        for row, count in rows.items():
            root = (split_of[row[0], row[1]], row[2])
            found.setdefault(root, {}).setdefault(sink, Counter())[row] += count
    return found


def _expected_rows(plan: Plan) -> Rows:
    """The rows of each committing sink, found by sending each root through the operators one at a time."""
    rows: dict[str, Counter[Row]] = {op.name: Counter() for op in plan.operators if op.committing}
    for split in plan.splits:
        source = plan.operators[split.source]
        for record in _all_of(source.operator.body, split.name):
            _follow(plan, source.index, record.value, rows)
    return rows


def _all_of(source: SimSource, split: str) -> Iterable[Record]:
    return source.open(SplitStart(split)).poll(source.roots, 0)


def _follow(plan: Plan, operator: int, row: Row, rows: dict[str, Counter[Row]]) -> None:
    for edge in plan.edges:
        if edge.upstream == operator and edge.port is Port.MAIN:
            downstream = plan.operators[edge.downstream]
            for _ in range(downstream.tasks if edge.grouping.name == "broadcast" else 1):
                if downstream.committing:
                    rows[downstream.name][row] += 1
                for result in _results(downstream.operator.role, downstream.operator.body, row):
                    _follow(plan, downstream.index, result, rows)


def _results(role: Role, body: Any, row: Row) -> Iterator[Row]:
    if role is Role.MAP:
        yield body(row)
    elif role is Role.MAP_BATCH:
        yield from body([row])
    elif role is Role.FLAT_MAP:
        yield from body(row)
    elif role is Role.FILTER and body(row):
        yield row
