"""What is wrong with a graph as a whole, and the order of a graph that is right."""

from __future__ import annotations

from typing import Any

import pytest

from kit.connectors import AnySink, AnySource
from tailrace.errors import TopologyError
from tailrace.policy import Grouping, broadcast, fields, local, shuffle
from tailrace.topology import Edge, Operator, Role, Stream, Topology, union
from tailrace.topology.validation import validate


@pytest.fixture
def topology() -> Topology:
    return Topology("enrich")


@pytest.fixture
def lines(topology: Topology) -> Stream:
    return topology.source("lines", AnySource(), tasks=2)


def text_of(call: Any, *args: Any) -> str:
    with pytest.raises(TopologyError) as caught:
        call(*args)
    return str(caught.value)


def test_a_sound_topology_passes(topology: Topology, lines: Stream) -> None:
    left = lines.map("left", str, on_error="dead_letter")
    union(left, lines.map("right", str), left.dead_letters).sink("out", AnySink(committing=True), tasks=4)
    topology.validate()


def test_no_source(topology: Topology) -> None:
    assert text_of(topology.validate) == "no source: topology=enrich: did you forget topology.source(…)?"


def test_no_sink(topology: Topology, lines: Stream) -> None:
    lines.map("split", str)
    assert text_of(topology.validate) == "no sink: topology=enrich: did you forget .sink(…)?"


@pytest.mark.parametrize(
    ("back", "cycle"),
    [(("c", "a"), "a -> b -> c -> a"), (("c", "b"), "b -> c -> b"), (("b", "b"), "b -> b")],
)
def test_a_cycle(topology: Topology, lines: Stream, back: tuple[str, str], cycle: str) -> None:
    lines.map("a", str).map("b", str).map("c", str).sink("out", AnySink())
    topology.connect(*back)
    expected = f"tuples would go round for ever: cycle={cycle}: is one of these edges the wrong way?"
    assert text_of(topology.validate) == expected
    assert text_of(topology.topological_order) == expected


def test_a_cycle_is_found_behind_the_operators_that_wait_for_it(topology: Topology, lines: Stream) -> None:
    b = lines.map("z", str).map("b", str)
    b.map("after", str).sink("out", AnySink())
    topology.connect("b", "z")
    assert "cycle=b -> z -> b:" in text_of(topology.validate)


def test_an_operator_without_a_path_from_a_source() -> None:
    operators = [
        Operator("lines", Role.SOURCE, AnySource(), 1),
        Operator("lost", Role.MAP, str, 1),
        Operator("out", Role.SINK, AnySink(), 1),
    ]
    edges = [Edge("lines", "out", shuffle()), Edge("lost", "out", shuffle())]
    assert text_of(validate, "enrich", operators, edges) == (
        "an operator has no path from a source: operator=lost: did you forget to connect it?"
    )


@pytest.mark.parametrize("unused", ["more", "split"])
def test_an_operator_without_a_path_to_a_sink(topology: Topology, lines: Stream, unused: str) -> None:
    lines.sink("out", AnySink())
    if unused == "more":
        topology.source("more", AnySource())
    else:
        lines.map("split", str)
    assert text_of(topology.validate) == (
        f"an operator does nothing with its output: operator={unused}: did you forget .sink(…)?"
    )


def test_dead_letters_alone_are_not_an_output(topology: Topology, lines: Stream) -> None:
    lines.map("parse", int, on_error="dead_letter").dead_letters.sink("bad", AnySink())
    assert text_of(topology.validate).startswith("an operator does nothing with its output: operator=parse: ")


def test_dead_letters_without_a_consumer(topology: Topology, lines: Stream) -> None:
    lines.map("parse", int, on_error="dead_letter").sink("out", AnySink())
    assert text_of(topology.validate) == (
        "dead letters go nowhere: operator=parse on_error='dead_letter': did you forget .dead_letters.sink(…)?"
    )


def test_the_order_keeps_declaration_order_among_equals(topology: Topology, lines: Stream) -> None:
    late = topology.source("late", AnySource())
    first = lines.map("first", str)
    second = late.map("second", str)
    merged = union(first, second).map("merge", str)
    merged.sink("out", AnySink())
    lines.sink("raw", AnySink())
    assert [operator.name for operator in topology.topological_order()] == [
        "lines", "late", "first", "second", "merge", "out", "raw",
    ]  # fmt: skip


def test_the_order_follows_edges_that_were_added_later(topology: Topology, lines: Stream) -> None:
    lines.map("a", str).sink("out", AnySink())
    lines.map("b", str)
    topology.connect("b", "a")
    assert [operator.name for operator in topology.topological_order()] == ["lines", "b", "a", "out"]


# A committing sink behind a local edge


def refusal(upstream: str, loose: str) -> str:
    return (
        "a re-emitted tuple could reach another task of a committing sink, which does not know that it was committed: "
        f"sink=out grouping=local upstream={upstream}: could {loose} be grouped by fields(…), or out by shuffle()?"
    )


@pytest.mark.parametrize("grouping", [fields(str), broadcast()])
def test_a_committing_sink_may_follow_a_settled_operator(topology: Topology, lines: Stream, grouping: Grouping) -> None:
    keyed = lines.map("a", str, tasks=3).map("b", str, tasks=3, grouping=grouping)
    keyed.map("c", str, grouping=local()).sink("out", AnySink(committing=True), grouping=local())
    topology.validate()


def test_a_committing_sink_may_follow_a_source(topology: Topology, lines: Stream) -> None:
    lines.map("a", str, grouping=local()).sink("out", AnySink(committing=True), grouping=local())
    topology.validate()


def test_a_committing_sink_may_follow_a_single_task(topology: Topology, lines: Stream) -> None:
    lines.map("a", str, tasks=1).sink("out", AnySink(committing=True), grouping=local())
    topology.validate()


def test_a_committing_sink_may_not_follow_a_shuffled_operator(topology: Topology, lines: Stream) -> None:
    lines.map("a", str, tasks=3).sink("out", AnySink(committing=True), grouping=local())
    assert text_of(topology.validate) == refusal("a", "a")


def test_a_committing_sink_may_not_follow_one_task_per_worker(topology: Topology, lines: Stream) -> None:
    lines.map("a", str, kind="cpu").sink("out", AnySink(committing=True), grouping=local())
    assert text_of(topology.validate) == refusal("a", "a")


def test_the_operator_that_is_to_blame_is_named(topology: Topology, lines: Stream) -> None:
    shuffled = lines.map("a", str, tasks=3)
    shuffled.map("b", str, grouping=local()).sink("out", AnySink(committing=True), grouping=local())
    assert text_of(topology.validate) == refusal("b", "a")


def test_the_operator_nearest_to_the_sink_is_to_blame(topology: Topology, lines: Stream) -> None:
    shuffled = lines.map("a", str, tasks=3).map("b", str, tasks=2)
    shuffled.sink("out", AnySink(committing=True), grouping=local())
    topology.connect("lines", "b", local())
    assert text_of(topology.validate) == refusal("b", "b")


def test_one_loose_input_is_enough(topology: Topology, lines: Stream) -> None:
    lines.map("a", str, tasks=3, grouping=fields(str)).sink("out", AnySink(committing=True), grouping=local())
    lines.filter("side", bool)
    topology.connect("side", "a", shuffle())
    assert text_of(topology.validate) == refusal("a", "a")


def test_a_sink_that_does_not_commit_may_follow_anything(topology: Topology, lines: Stream) -> None:
    lines.map("a", str, tasks=3).sink("out", AnySink(), grouping=local())
    topology.validate()


def test_a_committing_sink_may_be_shuffled(topology: Topology, lines: Stream) -> None:
    lines.map("a", str, tasks=3).sink("out", AnySink(committing=True), tasks=3)
    topology.validate()
