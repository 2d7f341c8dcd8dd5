"""What functions return or raise that no operator can use goes the way of ``on_error``, with operator and tuple."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from kit.tasks import OneTask
from tailrace.clock import system_clock
from tailrace.connector import Entry
from tailrace.core.plan.plan import EdgePlan
from tailrace.core.plan.planner import make_plan
from tailrace.core.protocol.acks import AckFold
from tailrace.core.protocol.sink_log import SinkLog
from tailrace.core.routing.router import Lane, LaneEdge
from tailrace.core.tasks.base import Task
from tailrace.core.tasks.commit_sink import CommitSinkStage
from tailrace.core.tasks.deferred import AsyncTask
from tailrace.core.tasks.stages import FilterStage, FlatMapStage, MapStage, OperatorStage, Wiring
from tailrace.errors import Fenced, TailraceError, TaskError
from tailrace.metrics.counters import TaskCounters
from tailrace.policy import Grouping, fields, least_work, osg, partial_key, shuffle
from tailrace.sim.faults.topologies import SimSink, SimSource
from tailrace.topology import OnError, Port, Topology


class NoTruth:
    """As an array of numpy that has several elements."""

    def __bool__(self) -> bool:
        raise ValueError("the truth value is ambiguous")


class Table:
    """As a DataFrame of pandas: its length is that of its rows, and it iterates over the names of its columns."""

    columns = ("a", "b")

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Any:
        return iter(self.columns)


def wiring(on_error: OnError) -> tuple[Wiring, Lane]:
    made = Wiring("op", 3, on_error, TaskCounters("op", 3, 0), system_clock)
    edge = EdgePlan(0, 0, 1, shuffle(), Port.MAIN, 11, False, False, False, False)
    lane = Lane(0, 0)
    made.outs = (LaneEdge(edge, [lane], None, Random(1)),)
    return made, lane


def raiser(error: BaseException) -> Callable[[Any], Any]:
    def function(value: Any) -> Any:
        if value == 13:
            raise error
        return [value]

    return function


def returner(result: Any) -> Callable[[Any], Any]:
    return lambda value: result if value == 13 else [value]


CASES: dict[str, tuple[Callable[[Callable[[Any], Any], Wiring], OperatorStage], Callable[[Any], Any], str]] = {
    "cancelled": (MapStage, raiser(asyncio.CancelledError("mine")), "CancelledError: mine"),
    "generator exit": (MapStage, raiser(GeneratorExit("mine")), "GeneratorExit: mine"),
    "filter": (FilterStage, returner(NoTruth()), "the truth value is ambiguous"),
    "str": (
        FlatMapStage,
        returner("text"),
        "returned a str, which would be taken apart: value='text', did you mean map, or [value]?",
    ),
    "bytes": (FlatMapStage, returner(b"text"), "returned a bytes, which would be taken apart"),
    "dict": (FlatMapStage, returner({"a": 1}), "returned a dict, which would be taken apart: value={'a': 1}, did"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_tuple_alone_is_lost(name: str) -> None:
    stage, function, _ = CASES[name]
    made, lane = wiring(OnError.SKIP)
    stage(function, made).run(5, 0, 9, [1, 13, 2], None)
    assert made.counters.skipped == 1
    assert len([value for bundle in lane.bundles for value in bundle[5]]) == 2


@pytest.mark.parametrize("name", CASES)
def test_operator_and_tuple_are_named(name: str) -> None:
    stage, function, fault = CASES[name]
    with pytest.raises(TaskError) as caught:
        stage(function, wiring(OnError.FAIL)[0]).run(5, 0, 9, [1, 13, 2], None)
    assert fault in str(caught.value)
    assert str(caught.value).endswith("operator failed: operator=op task=3 tuple=13")


def run_batch(result: Any, on_error: str) -> Task:
    kit = OneTask(lambda stream: stream.map_batch("b", lambda values: result, max_size=2, tasks=1, on_error=on_error))
    kit.bundle(1000, [1, 2], [7, 8])
    kit.task.run(0)
    assert kit.told == 1000, "the bundle is done"
    return kit.task


@pytest.mark.parametrize(
    "result", [{"a": 1, "b": 2}, Table(), "ab", b"ab", {1, 2}, None], ids=lambda r: type(r).__name__
)
def test_a_batch_function_returns_a_list(result: Any) -> None:
    with pytest.raises(
        TaskError, match="map_batch must return a list with a result for each tuple: returned="
    ) as caught:
        run_batch(result, "fail")
    assert "did you mean to return a list of its rows or values?" in str(caught.value)
    assert "operator=b task=0 tuple=1" in str(caught.value)
    assert run_batch(result, "skip").counters[0].skipped == 2


async def later(value: Any) -> Any:
    return value


def test_an_asynchronous_filter_whose_answer_has_no_truth_has_failed() -> None:
    kit = OneTask(lambda stream: stream.filter("c", later, tasks=1, on_error="skip"))
    task = kit.task
    assert isinstance(task, AsyncTask)
    kit.bundle(1000, ["a"], [7])
    call = task.next_call()
    assert call is not None
    task.finished(call, NoTruth())
    assert kit.told == 1000 and kit.counters.skipped == 1


def exits(value: Any) -> Any:
    if value == 13:
        raise SystemExit("enough")
    return value


def ends(value: Any) -> Any:
    """As ``next(item for item in value if …)`` where there is none."""
    return next(iter([] if value == 13 else [value]))


@pytest.mark.parametrize("key", [exits, ends])
@pytest.mark.parametrize("grouping", [fields, partial_key, osg, least_work])
def test_a_key_function_may_raise_anything(grouping: Callable[[Any], Grouping], key: Callable[[Any], Any]) -> None:
    """A key that ended the iteration ended the list of choices, and the tuples behind it were lost without a word."""

    def declare(stream: Any) -> Any:
        return stream.map("m", lambda value: value, tasks=1, on_error="skip").map(
            "to", lambda value: value, tasks=2, grouping=grouping(key)
        )

    kit = OneTask(declare)
    kit.bundle(1000, [1, 13, 2], [7, 8, 9])
    kit.task.run(0)
    assert sorted(value for lane in kit.task.lanes for bundle in lane.bundles for value in bundle[5]) == [1, 2]
    assert kit.task.counters[0].skipped == 1


class Failing:
    """A writer that takes everything and commits nothing."""

    full = False
    commit_every_ns = 50

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def write(self, value: Any) -> None: ...

    def commit(self, entries: list[Entry]) -> None:
        raise self.error

    def forget(self, prefixes: dict[str, int]) -> None: ...

    def recover(self, prefixes: dict[str, int]) -> list[Entry]:
        return []

    def close(self) -> None: ...


def failing_commit(error: BaseException) -> None:
    topology = Topology("t")
    topology.source("s", SimSource("s", 1), tasks=1).sink("out", SimSink(), tasks=1)
    plan = make_plan(topology, 1)
    acks = {owner: AckFold() for owner in plan.owners}
    sink = CommitSinkStage(Failing(error), SinkLog({0: 0}, []), acks, plan, Random(1), wiring(OnError.FAIL)[0])
    sink.run(5, 0, 9, ["row"], [100])
    sink.commit()


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device", "/out/part"),
        TailraceError("manifest is damaged: file=/out/m"),
        SystemExit(3),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_commit_that_fails_names_its_sink(error: BaseException) -> None:
    with pytest.raises(TaskError) as caught:
        failing_commit(error)
    assert str(error) in str(caught.value)
    assert str(caught.value).endswith("operator failed: operator=op task=3 tuple=(while committing 1 rows)")


def test_a_commit_that_is_fenced_stays_so() -> None:
    with pytest.raises(Fenced, match="too late"):
        failing_commit(Fenced("too late"))
