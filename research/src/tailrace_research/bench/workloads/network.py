"""TurboStream's topologies (ICDCS 2018), whose tuples cost nothing but their way: SOL and the Throughput Test.

SOL is a source and five operators with five tasks each, at 5,000 tuples a second. The Throughput Test sends payloads
through an operator that passes them on, to one that counts them by their identity.
"""

from __future__ import annotations

from collections import Counter

from tailrace.policy import fields
from tailrace.topology import Stream
from tailrace_research.bench.workloads.timetable import Item
from tailrace_research.bench.workloads.workload import Declare, Draw, Workload

RATE_PER_S = 5_000
OPERATORS = 5
MESSAGE_BYTES = 100
IDENTITIES = 1_000


def sol(draw: Draw) -> Workload:
    body = bytes(MESSAGE_BYTES)
    return Workload("sol", draw, (body,) * draw.tuples, (0,) * draw.tuples, (), _due_ns(draw), _sol, _alike)


def throughput_test(draw: Draw) -> Workload:
    rng = draw.rng("identities")
    identities = tuple(rng.randrange(IDENTITIES) for _ in range(draw.tuples))
    payload = bytes(MESSAGE_BYTES)
    bodies = tuple((identity, payload) for identity in identities)
    return Workload("throughput-test", draw, bodies, identities, (), _due_ns(draw), _throughput, identity_of)


def _due_ns(draw: Draw) -> tuple[int, ...]:
    return draw.due_ns(draw.load * RATE_PER_S)


def _alike(body: bytes) -> int:
    return 0


def identity_of(body: tuple[int, bytes]) -> int:
    return body[0]


def same(item: Item) -> Item:
    return item


def identity_of_item(item: Item) -> int:
    return identity_of(item[2])


class Count:
    """How many tuples of each identity this task has seen."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def process(self, item: Item) -> Item:
        index, due_ns, (identity, _) = item
        self._counts[identity] += 1
        return index, due_ns, (identity, self._counts[identity])


def _sol(stream: Stream, declare: Declare) -> None:
    for number in range(OPERATORS):
        stream = stream.map(f"pass{number + 1}", same, tasks=declare.draw.tasks, grouping=declare.setup.grouping)
    declare.end(stream)


def _throughput(stream: Stream, declare: Declare) -> None:
    tasks = declare.draw.tasks
    passed = stream.map("pass", same, tasks=tasks, grouping=declare.setup.grouping)
    declare.end(passed.map("count", Count, tasks=tasks, grouping=fields(identity_of_item), stateful=True))
