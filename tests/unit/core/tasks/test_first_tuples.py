"""What the first tuples of a run give away: a function that forgets to return, a key that is in no tuple."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

import tailrace as tr
from tailrace.core.bundles import LINEAGES
from tailrace.core.plan.planner import make_plan
from tailrace.core.routing.router import KEY_TRIALS, Lane, LaneEdge
from tailrace.core.tasks.empty_results import ENOUGH, EmptyResults
from tailrace.core.tasks.stages import MapStage, Wiring
from tailrace.metrics.counters import TaskCounters
from tailrace.policy.groupings.api import ALL
from tailrace.topology import OnError


class CountingEdge:
    """An edge that counts what it is given."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def send(self, emission: int, split: int, offset: int, values: list[Any], parents: Any, indices: Any) -> int:
        self.values += values
        return 5


def wired(said: list[tuple[str, str]]) -> tuple[Wiring, CountingEdge]:
    wiring = Wiring("clean", 0, OnError.FAIL, TaskCounters("clean", 0, 0), lambda: 0)
    out = CountingEdge()
    wiring.outs = (EmptyResults(wiring, lambda topic, text: said.append((topic, text))), out)
    return wiring, out


def test_a_function_that_returns_nothing_is_told_of_once() -> None:
    said: list[tuple[str, str]] = []
    wiring, out = wired(said)
    stage = MapStage(lambda value: None, wiring)
    for offset in range(ENOUGH - 1):
        assert stage.run(1, 0, offset, [offset], None) == 5
    assert said == []
    for offset in range(100):
        stage.run(1, 0, offset, [offset, offset], None)
    assert said == [
        (
            "empty clean",
            "an operator has returned None for all of its first tuples: operator=clean tuples=101: "
            "did you forget to return?",
        )
    ]
    assert out.values == [None] * (ENOUGH - 1 + 200)
    assert wiring.outs == (out,), "later tuples are not looked at"


def test_a_function_that_returns_something_once_is_not_told_of() -> None:
    said: list[tuple[str, str]] = []
    wiring, out = wired(said)
    stage = MapStage(lambda value: value if value == 7 else None, wiring)
    for offset in range(500):
        stage.run(1, 0, offset, [offset], None)
        assert (wiring.outs == (out,)) == (offset >= 7)
    assert said == []


def keyed_out(grouping: Any) -> LaneEdge:
    topology = tr.Topology("keys")
    topology.source("rows", tr.from_iterable([])).sink("out", tr.to_call(print), grouping=grouping)
    (edge,) = make_plan(topology, 1).edges
    return LaneEdge(edge, [Lane(0, 1)], edge.grouping.bind(1, Random(1)), Random(1))


@pytest.mark.parametrize("grouping", [tr.fields("nokey"), tr.partial_key("nokey")])
def test_a_key_is_worked_out_even_for_a_single_task(grouping: Any) -> None:
    out = keyed_out(grouping)
    with pytest.raises(LookupError, match=r"a tuple has no such key: grouping=\w+ key='nokey' tuple={'n': 1}: is the"):
        out.send(1, 0, 0, [{"n": 1}], None, None)
    assert not out.lanes[0].bundles


def test_only_the_first_keys_are_worked_out_for_a_single_task() -> None:
    asked: list[Any] = []
    out = keyed_out(tr.fields(lambda row: asked.append(row) or 1))
    for offset in range(3 * KEY_TRIALS):
        out.send(1, 0, offset, [offset], None, None)
    assert asked == list(range(KEY_TRIALS))
    assert [bundle[5] for bundle in out.lanes[0].bundles] == [[offset] for offset in range(3 * KEY_TRIALS)]


class EveryTask:
    """A grouping of a user's own that sends each tuple to all tasks, and has a key."""

    name = "every_task"
    keyed = False

    def key(self, row: Any) -> Any:
        return row

    def bind(self, tasks: int, rng: Random) -> EveryTask:
        return self

    def choose_many(self, values: Any) -> list[int]:
        return [ALL] * len(values)


def test_a_tuple_has_one_lineage_before_and_after_the_first_ones() -> None:
    """A committing sink knows a re-emitted tuple by its lineage, whenever its edge began."""
    topology = tr.Topology("lineages")
    rows = topology.source("rows", tr.from_iterable([])).map("same", lambda row: row, tasks=1, grouping=EveryTask())
    rows.sink("out", tr.to_jsonl("folder"))
    edge = next(edge for edge in make_plan(topology, 1).edges if edge.grouping.name == "every_task")
    out = LaneEdge(replace(edge, lineages=True), [Lane(0, 1)], edge.grouping.bind(1, Random(1)), Random(1))
    for _ in range(2 * KEY_TRIALS):
        out.send(1, 0, 5, ["same"], [77], None)
    assert len({tuple(bundle[LINEAGES]) for bundle in out.lanes[0].bundles}) == 1


def test_a_tuple_without_a_key_is_left_to_on_error() -> None:
    out = keyed_out(tr.fields("nokey"))
    blamed: list[Any] = []
    out.unroutable = lambda emission, split, offset, value, lineage, error: blamed.append(value) or 9
    assert out.send(1, 0, 0, [{"n": 1}], None, None) == 9
    assert blamed == [{"n": 1}]
