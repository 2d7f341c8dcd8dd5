"""What is refused in the very call that is wrong, and in which words."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest

from kit.connectors import AnySink, AnySource
from tailrace.errors import OptionError, TopologyError
from tailrace.policy import Shuffle, fields, local, shuffle
from tailrace.topology import (
    Stream,
    Topology,
    union,
)


class Scorer:
    def __init__(self, weight: int = 1) -> None:
        self.weight = weight

    def process(self, value: int) -> int:
        return value * self.weight


class NoProcess:
    def proces(self, value: int) -> int:
        return value


async def fetch(value: int, suffix: str = "") -> int:
    return value


def pieces(value: str) -> Iterator[str]:
    yield from value


async def async_pieces(value: str) -> Any:
    yield value


@pytest.fixture
def topology() -> Topology:
    return Topology("enrich")


@pytest.fixture
def lines(topology: Topology) -> Stream:
    return topology.source("lines", AnySource(), tasks=2)


def text_of(call: Any, *args: Any, error: type[Exception] = TopologyError, **kwargs: Any) -> str:
    with pytest.raises(error) as caught:
        call(*args, **kwargs)
    return str(caught.value)


def test_two_operators_of_one_name(lines: Stream) -> None:
    assert text_of(lines.map, "lines", str) == (
        "two operators have the same name: topology=enrich operator=lines: "
        "is a piece of code that declares it run twice?"
    )


@pytest.mark.parametrize("name", ["", "a b", "-a", ".a", "a/b", "x" * 101, None, 7])
def test_names(lines: Stream, name: Any) -> None:
    rest = f"name={name!r}: is it 1 to 100 letters, digits, '_', '-' or '.', not beginning with '-' or '.'?"
    assert text_of(lines.map, name, str) == f"not a valid operator name: {rest}"
    assert text_of(Topology, name) == f"not a valid topology name: {rest}"


@pytest.mark.parametrize("tasks", [0, -1, 1.0, True, "2"])
def test_tasks(topology: Topology, lines: Stream, tasks: Any) -> None:
    expected = (
        f"tasks is not a positive integer: operator=x tasks={tasks!r}: "
        "is it computed from something that can be zero or a fraction?"
    )
    assert text_of(lines.map, "x", str, tasks=tasks) == expected
    assert text_of(lines.sink, "x", AnySink(), tasks=tasks) == expected
    assert text_of(topology.source, "x", AnySource(), tasks=tasks) == expected


def test_more_tasks_than_anyone_means(lines: Stream) -> None:
    assert text_of(lines.map, "x", str, tasks=10**30) == (
        f"too many tasks: operator=x tasks={10**30} most=10000: is it the right number?"
    )


def test_a_source_needs_a_number_of_tasks(topology: Topology) -> None:
    nothing: Any = None
    assert text_of(topology.source, "x", AnySource(), tasks=nothing).startswith("tasks is not a positive integer: ")


def test_unknown_kind(lines: Stream) -> None:
    assert text_of(lines.map, "x", str, kind="gpu") == ("unknown kind: operator=x kind='gpu': did you mean 'cpu'?")


def test_unknown_parameters(topology: Topology, lines: Stream) -> None:
    for declare, body in ((lines.map, str), (lines.flat_map, str.split), (lines.filter, bool), (lines.map_batch, list)):
        expected = "unknown parameter: operator=x statefull=…: did you mean stateful=…?"
        assert text_of(declare, "x", body, statefull=True, error=OptionError) == expected
    expected = "unknown parameter: operator=x taks=…: did you mean tasks=…?"
    assert text_of(lines.sink, "x", AnySink(), taks=2, error=OptionError) == expected
    assert text_of(topology.source, "x", AnySource(), taks=2, error=OptionError) == expected
    expected = "unknown parameter: operator=x stateful=…: did you mean one of tasks=…, grouping=…, kind=…, on_error=…?"
    assert text_of(lines.sink, "x", AnySink(), stateful=True, error=OptionError) == expected
    assert [operator.name for operator in topology.operators] == ["lines"]


def test_unknown_on_error(lines: Stream) -> None:
    expected = "unknown on_error: operator=x on_error='ignore': did you mean one of 'fail', 'skip', 'dead_letter'?"
    assert text_of(lines.map, "x", str, on_error="ignore") == expected
    assert text_of(lines.sink, "x", AnySink(), on_error="ignore") == expected


@pytest.mark.parametrize(("grouping", "name"), [(shuffle, "shuffle"), (fields, "fields"), (Shuffle, "Shuffle")])
def test_a_grouping_that_was_not_called(lines: Stream, grouping: Any, name: str) -> None:
    assert text_of(lines.map, "x", str, grouping=grouping) == (
        f"not a grouping: operator=x grouping={name}: did you forget the parentheses?"
    )


def test_a_grouping_that_is_none(topology: Topology, lines: Stream) -> None:
    expected = "not a grouping: operator=x grouping='shuffle': did you mean shuffle() or fields(…)?"
    wrong: Any = "shuffle"
    assert text_of(lines.map, "x", str, grouping=wrong) == expected
    lines.map("x", str)
    assert text_of(topology.connect, "lines", "x", wrong) == expected


def test_a_body_that_cannot_be_called(lines: Stream) -> None:
    assert text_of(lines.map, "x", "text") == (
        "not a function: operator=x type=str: did you pass the result of calling it?"
    )


def test_an_object_instead_of_its_class(lines: Stream) -> None:
    assert text_of(lines.map, "x", Scorer(3)) == (
        "an object cannot be shared by all tasks: operator=x type=Scorer: "
        "did you mean the class Scorer, or functools.partial(Scorer, …), so that each task has its own?"
    )


@pytest.mark.parametrize("body", [NoProcess, functools.partial(NoProcess)])
def test_a_class_without_process(lines: Stream, body: Any) -> None:
    assert text_of(lines.map, "x", body) == (
        "a class has no process method: operator=x class=NoProcess: did you forget to define process(self, value)?"
    )


@pytest.mark.parametrize("role", ["map", "filter", "map_batch"])
def test_a_generator_outside_flat_map(lines: Stream, role: str) -> None:
    assert text_of(getattr(lines, role), "x", pieces) == (
        f"a generator gives no single result: operator=x role={role}: did you mean flat_map?"
    )


def test_an_async_generator(lines: Stream) -> None:
    assert text_of(lines.flat_map, "x", async_pieces) == (
        "an async generator cannot be an operator: operator=x role=flat_map: "
        "could it be an async function that returns a list, in flat_map?"
    )


def test_concurrency_without_async(lines: Stream) -> None:
    assert text_of(lines.map, "x", str, concurrency=8) == (
        "concurrency is for async functions only: operator=x concurrency=8: did you mean tasks=8, or an async def?"
    )


def test_concurrency_of_nothing(lines: Stream) -> None:
    assert text_of(lines.map, "x", fetch, concurrency=0) == (
        "concurrency is not a positive integer: operator=x concurrency=0: "
        "is it computed from something that can be zero or a fraction?"
    )


def test_batches_of_nothing(lines: Stream) -> None:
    assert text_of(lines.map_batch, "x", list, max_size=0) == (
        "max_size is not a positive integer: operator=x max_size=0: "
        "is it computed from something that can be zero or a fraction?"
    )


@pytest.mark.parametrize("wait", [-1, float("inf"), float("nan"), True, "5", None])
def test_batches_that_wait_for_ever(lines: Stream, wait: Any) -> None:
    assert text_of(lines.map_batch, "x", list, max_wait_ms=wait) == (
        f"max_wait_ms is not a time: operator=x max_wait_ms={wait!r}: is it a number of milliseconds, zero or more?"
    )


def test_things_that_are_no_source(topology: Topology) -> None:
    assert text_of(topology.source, "x", [1, 2]) == (
        "not a source: operator=x type=list missing=splits,open,replayable: "
        "did you mean a connector such as from_iterable(…)?"
    )
    assert text_of(topology.source, "x", AnySource) == (
        "not a source but a class: operator=x class=AnySource: did you forget the parentheses?"
    )


def test_things_that_are_no_sink(lines: Stream) -> None:
    assert text_of(lines.sink, "x", "rows") == (
        "not a sink: operator=x type=str missing=open,committing: did you mean a connector such as to_jsonl(…)?"
    )
    assert text_of(lines.sink, "x", AnySink) == (
        "not a sink but a class: operator=x class=AnySink: did you forget the parentheses?"
    )


def test_union_of_two_topologies(lines: Stream) -> None:
    other = Topology("other").source("lines", AnySource())
    assert text_of(union, lines, other) == (
        "streams of two topologies cannot be united: topologies=enrich,other: is one of them left over?"
    )


def test_union_of_nothing() -> None:
    assert text_of(union) == "nothing to unite: streams=0: did you mean union(a, b)?"


def test_union_of_a_list(lines: Stream) -> None:
    wrong: Any = [lines, lines]
    assert text_of(union, wrong) == "not a stream: type=list: did you mean union(a, b)?"


def test_union_of_a_stream_with_itself(topology: Topology, lines: Stream) -> None:
    assert text_of(union(lines, lines).map, "x", str) == (
        "an edge is there already, and a second one would double every tuple: upstream=lines downstream=x port=main: "
        "is a stream united with itself?"
    )
    assert [operator.name for operator in topology.operators] == ["lines"]
    assert topology.edges == ()


def test_dead_letters_that_nobody_makes(lines: Stream) -> None:
    assert text_of(lambda: lines.map("x", str, on_error="skip").dead_letters) == (
        "no dead letters here: operator=x port=main on_error='skip': did you forget on_error='dead_letter'?"
    )


def test_dead_letters_of_dead_letters(lines: Stream) -> None:
    letters = lines.map("x", str, on_error="dead_letter").dead_letters
    assert text_of(lambda: letters.dead_letters).startswith("no dead letters here: operator=x port=dead_letters ")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"tasks": 3}, "lines=2 x=3"),
        ({"tasks": 1}, "lines=2 x=1"),
    ],
)
def test_local_between_different_numbers_of_tasks(topology: Topology, lines: Stream, given: Any, text: str) -> None:
    assert text_of(lines.map, "x", str, grouping=local(), **given) == (
        f"a local edge joins operators with different numbers of tasks: {text}: could you leave out tasks of x?"
    )
    assert [operator.name for operator in topology.operators] == ["lines"]


def test_local_after_one_task_per_worker(lines: Stream) -> None:
    score = lines.map("score", Scorer, kind="cpu")
    assert text_of(score.map, "x", str, grouping=local(), tasks=2) == (
        "a local edge joins operators with different numbers of tasks: score=one-per-worker x=2: "
        "could you leave out tasks of x?"
    )


def test_connecting_what_is_not_there(topology: Topology, lines: Stream) -> None:
    assert text_of(topology.connect, "lines", "nowhere") == (
        "no such operator: topology=enrich operator='nowhere': did you mean one of lines?"
    )
    assert text_of(Topology("empty").operator, "x") == (
        "no such operator: topology=empty operator='x': is there none yet?"
    )


def test_connecting_the_wrong_way_round(topology: Topology, lines: Stream) -> None:
    lines.map("x", str).sink("out", AnySink())
    assert text_of(topology.connect, "x", "lines") == (
        "a source takes no input: upstream=x downstream=lines: did you swap the two?"
    )
    assert text_of(topology.connect, "out", "x") == (
        "a sink has no output: upstream=out downstream=x: did you mean the stream that feeds the sink?"
    )


def test_a_frozen_topology_does_not_change(topology: Topology, lines: Stream) -> None:
    lines.sink("out", AnySink())
    topology.freeze()
    expected = "a topology that runs cannot change: topology=enrich: did you declare this after run()?"
    assert text_of(topology.source, "x", AnySource()) == expected
    assert text_of(lines.map, "x", str) == expected
    assert text_of(lines.sink, "x", AnySink()) == expected
    assert text_of(topology.connect, "lines", "out") == expected
