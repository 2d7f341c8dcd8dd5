"""Declaring operators: what is recorded, and what run() does with it."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from kit.connectors import AnySink, AnySource
from tailrace.errors import OptionError, TopologyError
from tailrace.policy import Local, broadcast, fields, local, shuffle
from tailrace.runtime.connectors import from_iterable
from tailrace.topology import (
    Edge,
    Kind,
    OnError,
    Operator,
    Port,
    Role,
    Stream,
    Topology,
    is_async,
    is_factory,
    set_launcher,
    union,
)


class Scorer:
    def __init__(self, weight: int = 1) -> None:
        self.weight = weight

    def process(self, value: int) -> int:
        return value * self.weight


class AsyncScorer:
    async def process(self, value: int) -> int:
        return value


class Doubler:
    def __call__(self, value: int) -> int:
        return value * 2


class AsyncDoubler:
    async def __call__(self, value: int) -> int:
        return value * 2


class Both(Doubler):
    def process(self, value: int) -> int:
        return value


async def fetch(value: int, suffix: str = "") -> int:
    return value


def pieces(value: str) -> Iterator[str]:
    yield from value


@pytest.fixture
def topology() -> Topology:
    return Topology("enrich")


@pytest.fixture
def lines(topology: Topology) -> Stream:
    return topology.source("lines", AnySource(), tasks=2)


def text_of(call: Any, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(TopologyError) as caught:
        call(*args, **kwargs)
    return str(caught.value)


# What is recorded


def test_operators_and_edges_are_recorded_in_order(topology: Topology, lines: Stream) -> None:
    by_word = fields(str.lower)
    words = lines.flat_map("split", str.split, tasks=4, kind="blocking", idempotent=False)
    counts = words.map("count", Scorer, tasks=4, grouping=by_word, stateful=True, on_error="skip")
    sink = AnySink()
    assert counts.sink("out", sink, tasks=2) is None
    assert topology.operators[1:] == (
        Operator("split", Role.FLAT_MAP, str.split, 4, Kind.BLOCKING, idempotent=False),
        Operator("count", Role.MAP, Scorer, 4, stateful=True, on_error=OnError.SKIP),
        Operator("out", Role.SINK, sink, 2),
    )
    assert topology.edges == (
        Edge("lines", "split", shuffle()),
        Edge("split", "count", by_word),
        Edge("count", "out", shuffle()),
    )
    assert topology.operator("lines").role is Role.SOURCE
    assert repr(topology) == "Topology('enrich', operators=4, edges=3)"
    assert repr(counts) == "Stream(count.main)"


def test_one_stream_feeds_several_operators(topology: Topology, lines: Stream) -> None:
    lines.map("left", str)
    lines.filter("right", bool)
    assert [(edge.upstream, edge.downstream) for edge in topology.edges] == [("lines", "left"), ("lines", "right")]


def test_a_union_makes_one_edge_an_upstream(topology: Topology, lines: Stream) -> None:
    more = topology.source("more", AnySource())
    union(lines, more).map("merge", str, grouping=broadcast())
    assert topology.edges == (Edge("lines", "merge", broadcast()), Edge("more", "merge", broadcast()))


def test_dead_letters_start_from_their_own_port(topology: Topology, lines: Stream) -> None:
    parsed = lines.map("parse", int, on_error="dead_letter")
    parsed.dead_letters.sink("bad", AnySink())
    assert topology.edges[-1] == Edge("parse", "bad", shuffle(), Port.DEAD_LETTERS)


def test_dead_letters_of_a_sink_are_reached_by_its_name(topology: Topology, lines: Stream) -> None:
    lines.sink("out", AnySink(), on_error="dead_letter")
    topology.stream("out").dead_letters.sink("bad", AnySink())
    assert topology.edges[-1] == Edge("out", "bad", shuffle(), Port.DEAD_LETTERS)


def test_connect_adds_an_edge(topology: Topology, lines: Stream) -> None:
    more = topology.source("more", AnySource())
    more.map("merge", str)
    topology.connect("lines", "merge", grouping=broadcast())
    assert topology.edges[-1] == Edge("lines", "merge", broadcast())


@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        ({}, 1),
        ({"kind": "cpu"}, None),
        ({"kind": "cpu", "tasks": 3}, 3),
        ({"grouping": local()}, 2),
        ({"grouping": local(), "kind": "cpu"}, 2),
        ({"grouping": local(), "tasks": 2}, 2),
    ],
)
def test_how_many_tasks_an_operator_has(topology: Topology, lines: Stream, options: Any, tasks: int | None) -> None:
    lines.map("score", Scorer, **options)
    assert topology.operator("score").tasks == tasks


def test_a_local_sink_has_the_tasks_of_its_upstream(topology: Topology, lines: Stream) -> None:
    lines.sink("out", AnySink(), grouping=local())
    assert topology.operator("out").tasks == 2
    assert isinstance(topology.edges[0].grouping, Local)


def test_options_of_a_batch(topology: Topology, lines: Stream) -> None:
    lines.map_batch("plain", list)
    lines.map_batch("tuned", list, max_size=8, max_wait_ms=0.5)
    assert topology.operator("plain").options == {"max_size": 32, "max_wait_ms": 5}
    assert topology.operator("tuned").options == {"max_size": 8, "max_wait_ms": 0.5}
    assert topology.operator("plain").role is Role.MAP_BATCH


@pytest.mark.parametrize(
    ("body", "factory", "asynchronous"),
    [
        (str.split, False, False),
        (len, False, False),
        (int, False, False),
        (Decimal, False, False),
        (lambda value: value, False, False),
        (functools.partial(int, base=16), False, False),
        (Doubler(), False, False),
        (Doubler().__call__, False, False),
        (Scorer().process, False, False),
        (Both(), False, False),
        (Both, True, False),
        (Scorer, True, False),
        (functools.partial(Scorer, 3), True, False),
        (functools.partial(functools.partial(Scorer), weight=3), True, False),
        (fetch, False, True),
        (functools.partial(fetch, suffix="x"), False, True),
        (AsyncDoubler(), False, True),
        (AsyncScorer, True, True),
    ],
)
def test_every_kind_of_body(topology: Topology, lines: Stream, body: Any, factory: bool, asynchronous: bool) -> None:
    lines.map("score", body)
    assert (is_factory(body), is_async(body)) == (factory, asynchronous)
    assert topology.operator("score").options == ({"concurrency": 64} if asynchronous else {})


def test_a_generator_is_welcome_in_flat_map(topology: Topology, lines: Stream) -> None:
    lines.flat_map("pieces", pieces)
    assert topology.operator("pieces").body is pieces


def test_concurrency_of_an_async_function(topology: Topology, lines: Stream) -> None:
    lines.map("fetch", fetch, concurrency=8)
    assert topology.operator("fetch").options == {"concurrency": 8}


# Running


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What the launcher was called with; nobody else's launcher is disturbed."""
    calls: list[Any] = []

    def launch(*args: Any, **kwargs: Any) -> str:
        calls.append((args, kwargs))
        return "handle"

    monkeypatch.setattr("tailrace.topology.launching._launcher", None)
    set_launcher(launch)
    yield calls


def test_run_hands_the_frozen_topology_to_the_launcher(topology: Topology, lines: Stream, launches: list[Any]) -> None:
    lines.sink("out", AnySink())
    assert topology.run("spark", workers=3, checkpoint="ckpt/") == "handle"
    assert launches == [((topology, "spark"), {"workers": 3, "checkpoint": "ckpt/"})]
    assert text_of(lines.map, "x", str).startswith("a topology that runs cannot change: ")


def test_run_has_defaults(topology: Topology, lines: Stream, launches: list[Any]) -> None:
    lines.sink("out", AnySink())
    topology.run()
    assert launches == [((topology, None), {})], "how many workers there are is up to the launcher"


def test_run_validates_first(topology: Topology, lines: Stream, launches: list[Any]) -> None:
    assert text_of(topology.run).startswith("no sink: ")
    assert launches == []
    lines.sink("out", AnySink())  # not frozen by the attempt


def test_run_without_a_launcher(topology: Topology, lines: Stream, launches: list[Any]) -> None:
    set_launcher(None)
    lines.sink("out", AnySink())
    assert text_of(topology.run) == (
        "nothing can run a topology yet: topology=enrich launcher=None: did you forget import tailrace?"
    )


def test_a_refused_run_leaves_the_topology_as_it_was(topology: Topology, lines: Stream, launches: list[Any]) -> None:
    def refuse(topology: Topology, spark: Any, **options: Any) -> Any:
        raise OptionError("not so")

    set_launcher(refuse)
    lines.sink("out", AnySink())
    with pytest.raises(OptionError):
        topology.run()
    lines.map("late", str.upper)


def test_a_source_may_say_that_its_readers_wait() -> None:
    topology = Topology("t")
    topology.source("s", from_iterable([1]), kind="blocking")
    assert topology.operator("s").kind is Kind.BLOCKING
    with pytest.raises(TopologyError, match=r"unknown kind: operator=r kind='waits': did you mean one of 'auto'"):
        topology.source("r", from_iterable([1]), kind="waits")
