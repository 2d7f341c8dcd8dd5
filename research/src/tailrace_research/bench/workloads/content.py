"""Costs that depend on content: OSG's streams (Middleware 2016); one whose tuples all cost the same, one at random.

Each of 4,096 items costs one of 64 amounts, 1 to 64 units, dealt at random; items come by a Zipf law.
"""

from __future__ import annotations

from functools import partial

from tailrace.sim import ByContent, Exponential
from tailrace.topology import Stream
from tailrace_research.bench.workloads.workload import Declare, Draw, Workload

ITEMS = 4_096
COSTS = 64
ALPHA = 1.0
PLAIN_UNITS = 4
MEAN_UNITS = 16


def content(draw: Draw) -> Workload:
    """OSG's default stream."""
    service = ByContent(ITEMS, ALPHA, COSTS, draw.unit_ns, COSTS * draw.unit_ns)
    items, works_ns = service.draw(draw.tuples, draw.rng("service"))
    cost_of = dict(zip(items, works_ns, strict=True))
    bodies, due_ns = tuple(items), draw.due_by_load_ns(works_ns)
    return Workload("content", draw, bodies, bodies, tuple(works_ns), due_ns, partial(_one_operator, cost_of))


def _one_operator(cost_of: dict[int, int], stream: Stream, declare: Declare) -> None:
    declare.end(declare.map(stream, "work", cost_of.__getitem__))


def micro(draw: Draw) -> Workload:
    """Du's smallest topology: a source and an operator, every tuple alike."""
    work_ns = PLAIN_UNITS * draw.unit_ns
    works_ns = (work_ns,) * draw.tuples
    keys = (0,) * draw.tuples
    return Workload("micro", draw, keys, keys, works_ns, draw.due_by_load_ns(works_ns), partial(_constant, work_ns))


def _constant(work_ns: int, stream: Stream, declare: Declare) -> None:
    declare.end(declare.map(stream, "work", partial(constant, work_ns)))


def exponential(draw: Draw) -> Workload:
    """Du's operator behind which the shared queue was measured: costs without memory, and nothing tells them."""
    service = Exponential(MEAN_UNITS * draw.unit_ns)
    keys, works_ns = service.draw(draw.tuples, draw.rng("service"))
    due_ns = draw.due_by_load_ns(works_ns)
    return Workload("exponential", draw, tuple(works_ns), tuple(keys), tuple(works_ns), due_ns, _as_given)


def _as_given(stream: Stream, declare: Declare) -> None:
    declare.end(declare.map(stream, "work", int))


def constant(work_ns: int, body: object) -> int:
    return work_ns
