"""Stages: what they pass on, what they do about errors, and the law of the ids they return."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import xor
from random import Random
from typing import Any

import pytest

from tailrace.connector import Entry
from tailrace.core.assembly import open_log
from tailrace.core.bundles import Bundle
from tailrace.core.plan.plan import EdgePlan, Plan
from tailrace.core.plan.planner import make_plan
from tailrace.core.protocol.acks import AckFold
from tailrace.core.protocol.lineage import child_lineages
from tailrace.core.protocol.messages import Position
from tailrace.core.protocol.sightings import Sightings
from tailrace.core.protocol.sink_log import DUPLICATE_DURABLE, WRITE, SinkLog
from tailrace.core.routing.router import Lane, LaneEdge
from tailrace.core.tasks.commit_sink import MOST_HELD, CommitSinkStage
from tailrace.core.tasks.stages import (
    DEAD_LETTER_INDEX,
    CallSinkStage,
    FilterStage,
    FlatMapStage,
    FusedEdge,
    MapStage,
    OperatorStage,
    Wiring,
)
from tailrace.errors import Fenced, TaskError
from tailrace.metrics.counters import TaskCounters
from tailrace.policy import local, shuffle
from tailrace.sim.faults.topologies import SimSink, SimSource
from tailrace.testing import ManualClock
from tailrace.topology import OnError, Port, Topology

MAIN, LETTERS = 11, 13  # salts


class Bench:
    """A stage's surroundings: one lane for results, one for dead letters."""

    def __init__(self, on_error: OnError = OnError.FAIL, lineages: bool = True) -> None:
        self.clock = ManualClock(100)
        self.rng = Random(1)
        self.main, self.letters = Lane(0, 0), Lane(1, 0)
        self.counters = TaskCounters("op", 3, 0)
        main = LaneEdge(edge(MAIN, lineages), [self.main], None, self.rng)
        self.wiring = Wiring("op", 3, on_error, self.counters, self.clock)
        self.wiring.outs = (main,)
        self.wiring.letters = (LaneEdge(edge(LETTERS, lineages), [self.letters], None, self.rng),)

    def run(self, stage: OperatorStage, values: list[Any], lineages: list[int] | None = None) -> int:
        """Run one bundle, and check the law of stages on it."""
        before = len(self.main.bundles) + len(self.letters.bundles)
        assert before == 0, "take the bundles first"
        ids = stage.run(5, 0, 9, values, lineages)
        self.wiring.settle()
        made = [*self.main.bundles, *self.letters.bundles]
        assert ids == reduce(xor, (bundle[3] for bundle in made), 0)
        assert all(bundle[:3] == (5, 0, 9) for bundle in made)
        return ids


def edge(salt: int, lineages: bool) -> EdgePlan:
    return EdgePlan(0, 0, 1, shuffle(), Port.MAIN, salt, False, False, lineages, False)


def rows(bundles: Sequence[Bundle]) -> list[tuple[Any, int | None]]:
    return [
        (value, None if bundle[4] is None else bundle[4][position])
        for bundle in bundles
        for position, value in enumerate(bundle[5])
    ]


def fussy(value: int) -> int:
    if value % 10 == 3:
        raise ValueError(f"no {value}")
    return value * 2


Make = Callable[[Wiring], OperatorStage]
STAGES: dict[str, Make] = {
    "map": lambda wiring: MapStage(fussy, wiring),
    "flat_map": lambda wiring: FlatMapStage(lambda value: [fussy(value)], wiring),
    "filter": lambda wiring: FilterStage(fussy, wiring),
    "sink": lambda wiring: CallSinkStage(lambda value: fussy(value) and None, wiring),
}


@pytest.mark.parametrize("lineages", [None, [100, 200, 300]])
def test_map(lineages: list[int] | None) -> None:
    bench = Bench(lineages=lineages is not None)
    bench.run(MapStage(lambda value: value.upper(), bench.wiring), ["a", "b", "c"], lineages)
    names = [None] * 3 if lineages is None else child_lineages(lineages, MAIN, None)
    assert rows(bench.main.bundles) == list(zip("ABC", names, strict=True))
    assert (bench.counters.received, bench.counters.emitted) == (3, 3)


def test_flat_map_names_each_output() -> None:
    bench = Bench()
    bench.run(FlatMapStage(lambda n: range(n), bench.wiring), [2, 0, 3], [100, 200, 300])
    names = child_lineages([100, 100, 300, 300, 300], MAIN, [0, 1, 0, 1, 2])
    assert rows(bench.main.bundles) == list(zip([0, 1, 0, 1, 2], names, strict=True))
    assert len(set(names)) == 5
    assert (bench.counters.received, bench.counters.emitted) == (3, 5)


def test_a_flat_map_that_emits_nothing_acknowledges_nothing() -> None:
    bench = Bench()
    assert bench.run(FlatMapStage(lambda n: [], bench.wiring), [1, 2], [100, 200]) == 0


def test_a_flat_map_that_forgets_to_return_is_told_so() -> None:
    bench = Bench()
    with pytest.raises(TaskError, match=r"returned None, not an iterable: did you forget to return or yield\?"):
        bench.run(FlatMapStage(lambda n: None, bench.wiring), [1], [100])


def test_a_generator_that_fails_halfway_emits_nothing() -> None:
    def half(value: int) -> Any:
        yield value
        raise ValueError("halfway")

    bench = Bench(OnError.SKIP)
    assert bench.run(FlatMapStage(half, bench.wiring), [1], [100]) == 0
    assert bench.counters.skipped == 1 and bench.counters.emitted == 0


def test_filter_keeps_lineages_beside_their_values() -> None:
    bench = Bench()
    bench.run(FilterStage(lambda n: n % 2, bench.wiring), [1, 2, 3], [100, 200, 300])
    assert rows(bench.main.bundles) == list(zip([1, 3], child_lineages([100, 300], MAIN, None), strict=True))
    bench.main.take()
    assert bench.run(FilterStage(lambda n: False, bench.wiring), [1], [100]) == 0


@pytest.mark.parametrize("name", STAGES)
def test_fail_raises_the_error_that_ends_the_run(name: str) -> None:
    bench = Bench()
    with pytest.raises(TaskError, match=r"no 13\n\noperator failed: operator=op task=3 tuple=13") as caught:
        STAGES[name](bench.wiring).run(5, 0, 9, [1, 13, 2], [100, 200, 300])
    assert "stage.py" not in caught.value.traceback  # the user's frames only
    assert "fussy" in caught.value.traceback


@pytest.mark.parametrize("name", STAGES)
def test_skip_drops_the_tuple_and_no_other(name: str) -> None:
    bench = Bench(OnError.SKIP)
    bench.run(STAGES[name](bench.wiring), [1, 13, 2, 23], [100, 200, 300, 400])
    assert (bench.counters.skipped, bench.counters.received) == (2, 4)
    assert bench.letters.bundles == []
    if name != "sink":
        assert [lineage for _, lineage in rows(bench.main.bundles)] == child_lineages([100, 300], MAIN, None)


@pytest.mark.parametrize("name", STAGES)
def test_dead_letter_sends_the_tuple_away(name: str) -> None:
    bench = Bench(OnError.DEAD_LETTER)
    bench.run(STAGES[name](bench.wiring), [1, 13, 2], [100, 200, 300])
    ((letter, lineage),) = rows(bench.letters.bundles)
    assert (letter["operator"], letter["task"], letter["value"]) == ("op", 3, 13)
    assert letter["error"] == "ValueError: no 13" and "fussy" in letter["traceback"]
    assert [lineage] == child_lineages([200], LETTERS, [DEAD_LETTER_INDEX])
    assert bench.counters.dead_letters == 1
    if name != "sink":
        assert [lineage for _, lineage in rows(bench.main.bundles)] == child_lineages([100, 300], MAIN, None)


def test_a_dead_letter_is_json_whatever_the_tuple() -> None:
    bench = Bench(OnError.DEAD_LETTER, lineages=False)
    bench.run(MapStage(lambda value: value.nothing, bench.wiring), [{1, 2}])
    ((letter, lineage),) = rows(bench.letters.bundles)
    assert letter["value"] == "{1, 2}" and lineage is None


def test_exit_in_a_user_function_does_not_take_the_worker_along() -> None:
    bench = Bench(OnError.SKIP)
    bench.run(MapStage(lambda value: exit(value), bench.wiring), [1], [100])
    assert bench.counters.skipped == 1


def test_neither_does_a_keyboard_interrupt_of_its_own() -> None:
    """A worker never gets one from the keyboard: signals go to the main thread, and it ignores this one."""

    def interrupted(value: int) -> None:
        raise KeyboardInterrupt

    bench = Bench(OnError.SKIP)
    bench.run(MapStage(interrupted, bench.wiring), [1], [100])
    assert bench.counters.skipped == 1


def test_execution_time_is_measured_call_by_call() -> None:
    bench = Bench()
    bench.run(MapStage(bench.clock.advance, bench.wiring), [5, 7], [100, 200])
    assert bench.counters.busy_ns == 12 and bench.counters.execution.count == 2
    bench.wiring.settle()
    assert bench.counters.received == 2  # counted once


def test_a_fused_stage_returns_what_its_own_stages_sent() -> None:
    bench = Bench()
    inner = MapStage(lambda value: value + 1, bench.wiring)
    fused_edge = EdgePlan(0, 0, 1, local(), Port.MAIN, 17, True, True, True, False)
    outer_counters = TaskCounters("outer", 0, 0)
    outer = Wiring("outer", 0, OnError.FAIL, outer_counters, bench.clock)
    outer.outs = (FusedEdge(fused_edge, inner),)
    bench.run(FlatMapStage(lambda n: [n, n * 10], outer), [1, 2], [100, 200])
    hop = child_lineages([100, 100, 200, 200], 17, [0, 1, 0, 1])
    assert rows(bench.main.bundles) == list(zip([2, 11, 3, 21], child_lineages(hop, MAIN, None), strict=True))


# -- committing sinks


class Shelf:
    """A committing writer that keeps everything."""

    full = False
    commit_every_ns = 50

    def __init__(self) -> None:
        self.open: list[Any] = []
        self.rows: list[Any] = []
        self.entries: list[Entry] = []
        self.forgotten: list[dict[str, int]] = []
        self.fenced = False

    def write(self, value: Any) -> None:
        self.open.append(fussy(value))

    def commit(self, entries: Sequence[Entry]) -> None:
        if self.fenced:
            raise Fenced("a higher epoch has taken over")
        self.rows += self.open
        self.open = []
        self.entries += entries

    def forget(self, prefixes: dict[str, int]) -> None:
        self.forgotten.append(dict(prefixes))

    def recover(self, prefixes: dict[str, int]) -> list[Entry]:
        return []

    def close(self) -> None: ...


@pytest.fixture(scope="module")
def plan() -> Plan:
    topology = Topology("t")
    topology.source("s", SimSource("s", 1), tasks=2).sink("out", SimSink(), tasks=1)
    return make_plan(topology, 1)


class SinkBench(Bench):
    def __init__(self, plan: Plan, on_error: OnError = OnError.FAIL) -> None:
        super().__init__(on_error)
        self.shelf = Shelf()
        self.acks = {owner: AckFold() for owner in plan.owners}
        log = SinkLog({0: 0, 1: 0}, [])
        self.sink = CommitSinkStage(self.shelf, log, self.acks, plan, self.rng, self.wiring)

    def take(self, emission: int, value: int, lineage: int, split: int = 0, offset: int = 9) -> int:
        return self.sink.run(emission, split, offset, [value], [lineage])


def test_a_row_is_complete_at_once_and_durable_when_it_is_committed(plan: Plan) -> None:
    bench = SinkBench(plan)
    ids = bench.take(5, 1, 100)
    assert ids and bench.acks[0].take() == ({}, {5: ids}, {})
    assert bench.shelf.rows == []
    bench.sink.commit()
    assert bench.shelf.rows == [2] and bench.shelf.entries == [Entry("s/0", 9, 100)]
    assert bench.acks[0].take() == ({}, {}, {5: ids})
    bench.sink.commit()
    assert not bench.acks[0]


def test_a_duplicate_waits_for_the_first_copy(plan: Plan) -> None:
    bench = SinkBench(plan)
    bench.take(5, 1, 100)
    again = bench.take(6, 1, 100)
    assert again and bench.shelf.open == [2] and bench.counters.duplicates == 1
    bench.sink.commit()
    assert bench.acks[0].durable[6] == again and bench.shelf.rows == [2]


def test_a_duplicate_of_a_committed_row_is_durable_at_once(plan: Plan) -> None:
    bench = SinkBench(plan)
    bench.take(5, 1, 100)
    bench.sink.commit()
    assert bench.take(6, 1, 100) == 0
    assert bench.sink.deadline_ns is None


def test_what_comes_during_a_commit_is_complete_at_once_and_durable_with_the_next(plan: Plan) -> None:
    bench = SinkBench(plan)
    first = bench.take(5, 1, 100)
    carry_out = bench.sink.begin_commit()
    bench.acks[0].take()
    second, again = bench.take(6, 2, 200), bench.take(7, 1, 100)
    assert bench.acks[0].take() == ({}, {6: second, 7: again}, {})
    assert bench.shelf.open == [2], "the writer is another thread's now"
    assert bench.sink.deadline_ns is None, "one commit at a time"
    carry_out()
    assert not bench.acks[0], "nobody knows yet"
    bench.sink.end_commit()
    assert bench.acks[0].take() == ({}, {}, {5: first, 7: again}), "a duplicate is durable with the first copy"
    assert bench.shelf.rows == [2] and bench.shelf.open == [4]
    bench.sink.commit()
    assert bench.acks[0].take() == ({}, {}, {6: second}) and bench.shelf.rows == [2, 4]


def test_a_commit_that_is_wanted_during_another_is_due_when_that_is_over(plan: Plan) -> None:
    bench = SinkBench(plan)
    bench.take(5, 1, 100)
    carry_out = bench.sink.begin_commit()
    bench.sink.commit()
    bench.take(6, 2, 200)
    carry_out()
    assert bench.sink.deadline_ns is None
    bench.sink.end_commit()
    assert bench.sink.deadline_ns == 0
    bench.sink.commit()
    bench.take(7, 4, 300)
    assert bench.sink.deadline_ns != 0, "no more haste than was asked for"


def test_a_row_that_cannot_be_written_after_a_commit_becomes_a_letter_before_it_is_durable(plan: Plan) -> None:
    bench = SinkBench(plan, OnError.DEAD_LETTER)
    bench.take(5, 1, 100)
    carry_out = bench.sink.begin_commit()
    bench.acks[0].take()
    held = bench.take(6, 3, 200)
    assert bench.acks[0].take() == ({}, {6: held}, {})
    carry_out()
    bench.sink.end_commit()
    both, _, durable = bench.acks[0].take()
    assert both[6] and durable[6] == held and bench.counters.dead_letters == 1


def test_a_sink_that_holds_much_asks_for_no_more(plan: Plan) -> None:
    bench = SinkBench(plan)
    bench.take(5, 1, 100)
    bench.sink.begin_commit()()
    for number in range(MOST_HELD):
        assert not bench.sink.overfull
        bench.take(6, 1, 200 + number)
    assert bench.sink.overfull
    bench.sink.end_commit()
    assert not bench.sink.overfull


def test_acks_go_to_the_ledger_that_owns_the_split(plan: Plan) -> None:
    bench = SinkBench(plan)
    bench.take(5, 1, 100, split=1)
    assert bench.acks[1].complete and not bench.acks[0]
    bench.sink.commit()
    assert bench.acks[1].durable and not bench.acks[0]
    assert bench.shelf.entries == [Entry("s/1", 9, 100)]


def test_a_row_that_cannot_be_written_is_not_remembered(plan: Plan) -> None:
    bench = SinkBench(plan, OnError.SKIP)
    assert bench.take(5, 13, 100) == 0
    assert len(bench.sink.log) == 0 and bench.counters.skipped == 1 and bench.sink.deadline_ns is None


def test_a_commit_that_is_refused_acknowledges_nothing(plan: Plan) -> None:
    bench = SinkBench(plan)
    bench.take(5, 1, 100)
    bench.acks[0].take()
    bench.shelf.fenced = True
    with pytest.raises(Fenced):
        bench.sink.commit()
    assert not bench.acks[0] and len(bench.sink.log.open_marks) == 1


def test_the_deadline_of_a_commit_counts_from_the_first_row(plan: Plan) -> None:
    bench = SinkBench(plan)
    assert bench.sink.deadline_ns is None
    bench.take(5, 1, 100)
    bench.clock.advance(20)
    bench.take(6, 2, 200)
    assert bench.sink.deadline_ns == 100 + 50
    bench.shelf.full = True
    assert bench.sink.deadline_ns == 0


def test_the_writer_forgets_what_lies_below_a_new_prefix(plan: Plan) -> None:
    bench = SinkBench(plan)
    bench.sink.log.advance(1, 4)
    for emission in (5, 6):
        bench.take(emission, 1, 100 + emission, offset=20)
        bench.sink.commit()
    assert bench.shelf.forgotten == [{"s/1": 4}]


def test_a_sink_that_opens_reads_back_what_it_had_committed(plan: Plan) -> None:
    asked = []

    class Full(Shelf):
        def recover(self, prefixes: dict[str, int]) -> list[Entry]:
            asked.append(prefixes)
            return [Entry("s/1", 8, 200), Entry("s/1", 3, 100), Entry("a source that is gone/0", 8, 300)]

    sightings = Sightings()
    log = open_log(Full(), plan, {0: Position(2, None), 1: Position(5, None)}, sightings)
    assert sightings.so_far() == {1: 9}
    assert asked == [{"s/0": 2, "s/1": 5}]
    assert log.admit(1, 8, 200) == DUPLICATE_DURABLE and log.admit(1, 8, 201) == WRITE
    assert log.prefixes == {0: 2, 1: 5} and len(log) == 1
