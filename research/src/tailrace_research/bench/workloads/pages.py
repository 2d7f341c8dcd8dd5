"""Topologies whose tuples all cost the same: Exclamation, and two that Yahoo published as typical of its own.

As Du ran them (UIUC 2016): every operator with as many tasks, all edges shuffle, each operator busy for a millisecond.
Every edge behind the source is under study; a model of one is that of its first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tailrace.topology import Stream
from tailrace_research.bench.workloads.content import constant
from tailrace_research.bench.workloads.workload import Build, Declare, Draw, Workload, itself

UNITS = 4  # of every operator: the paper's millisecond, at the usual unit
LETTERS = 100  # of a page


def exclamation(draw: Draw) -> Workload:
    """Four operators in a row, the source being one of them."""
    bodies = tuple(f"word-{number}" for number in range(draw.tuples))
    return _workload("exclamation", draw, bodies, _exclaim)


def page_load(draw: Draw) -> Workload:
    return _workload("page-load", draw, _pages(draw), _load)


def processing(draw: Draw) -> Workload:
    return _workload("processing", draw, _pages(draw), _process)


def _workload(name: str, draw: Draw, bodies: tuple[str, ...], build: Build) -> Workload:
    works_ns = (UNITS * draw.unit_ns,) * draw.tuples
    return Workload(name, draw, bodies, (0,) * draw.tuples, works_ns, draw.due_by_load_ns(works_ns), build, _alike)


def _pages(draw: Draw) -> tuple[str, ...]:
    rng = draw.rng("pages")
    return tuple(f"page-{rng.randrange(10**6):06d}-".ljust(LETTERS, "x") for _ in range(draw.tuples))


def _alike(body: str) -> int:
    return 0


def exclaim(word: str) -> str:
    return f"{word}!"


def most_of(page: str) -> str:
    return page[: len(page) * 4 // 5]


def counted(page: str) -> str:
    return page + "-counted"


def _through(stream: Stream, declare: Declare, operators: dict[str, Callable[[Any], Any]]) -> Stream:
    cost_ns = partial(constant, UNITS * declare.draw.unit_ns)
    for name, result in operators.items():
        stream = declare.map(stream, name, cost_ns, result)
    return stream


def _exclaim(stream: Stream, declare: Declare) -> None:
    declare.end(_through(stream, declare, dict.fromkeys(("exclaim1", "exclaim2", "exclaim3"), exclaim)))


def _load(stream: Stream, declare: Declare) -> None:
    passing = dict.fromkeys(("filter1", "join", "filter2"), itself)
    declare.end(_through(stream, declare, {"transform": most_of, **passing, "aggregate": counted}))


def _process(stream: Stream, declare: Declare) -> None:
    transformed = _through(stream, declare, {"transform": itself})
    declare.end(_through(transformed, declare, {"filter": itself, "join1": itself}), "sink1")
    declare.end(_through(transformed, declare, {"join2": most_of, "normalise": str.lower}), "sink2")
