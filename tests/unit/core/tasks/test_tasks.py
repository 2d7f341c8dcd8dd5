"""Tasks as state machines: bundles in; lanes and ack folds out."""

from __future__ import annotations

from functools import reduce
from operator import xor
from typing import Any

import pytest

from kit.tasks import OneTask, context_of, source_of
from tailrace.clock import MILLISECOND_NS
from tailrace.connector import SplitStart
from tailrace.core.plan.planner import make_plan
from tailrace.core.protocol.ledger import LedgerLimits
from tailrace.core.protocol.lineage import child_lineages
from tailrace.core.protocol.messages import Barrier, Committed, Drain, Passed, Prefixes, Recover, SourceReport
from tailrace.core.tasks.base import PlainTask
from tailrace.core.tasks.deferred import AsyncTask, BatchTask
from tailrace.core.tasks.source import ASK_AGAIN_NS
from tailrace.errors import TaskError
from tailrace.sim.faults.topologies import SimSink, SimSource
from tailrace.testing import ManualClock
from tailrace.topology import Stream, Topology

WAIT_MS = 5
LEADER = 1  # the task after the only source task


def names(kit: OneTask, parents: list[int], indices: list[int] | None = None) -> list[int]:
    return child_lineages(parents, kit.salt, indices)


# -- one by one


def test_a_plain_task_acknowledges_a_bundle_with_its_children() -> None:
    kit = OneTask(lambda stream: stream.flat_map("f", lambda n: [n] * n, tasks=1))
    assert isinstance(kit.task, PlainTask) and not kit.task.runnable
    kit.bundle(1000, [2, 0], [7, 8])
    kit.bundle(2000, [1], [9])
    assert kit.task.runnable
    kit.task.run(10)
    assert kit.told == kit.owed(1000, 2000) and not kit.task.runnable
    assert kit.sent() == list(zip([2, 2, 1], names(kit, [7, 7, 9], [0, 1, 0]), strict=True))


def test_a_plain_task_stops_when_its_budget_is_used_up() -> None:
    kit = OneTask(lambda stream: stream.map("f", lambda n: n, tasks=1))
    for ack in (1000, 2000):
        kit.bundle(ack, [1], [7])
    kit.task.run(0)
    assert kit.told == kit.owed(1000) and len(kit.task.queue) == 1


# -- batches


def batches(**options: Any) -> OneTask:
    def double(values: list[int]) -> list[int]:
        if 13 in values:
            raise ValueError("thirteen")
        return [value * 2 for value in values]

    options = {"max_size": 3, "max_wait_ms": WAIT_MS, **options}
    return OneTask(lambda stream: _with_letters(stream.map_batch("b", double, tasks=1, **options)))


def _with_letters(stream: Stream) -> Stream:
    if stream.topology.operator("b").on_error.value == "dead_letter":
        stream.dead_letters.sink("letters", SimSink(committing=False), tasks=1)
    return stream


def test_a_batch_runs_when_it_is_full() -> None:
    kit = batches()
    assert isinstance(kit.task, BatchTask)
    kit.bundle(1000, [1, 2], [7, 8])
    kit.task.run(0)
    assert kit.sent() == [] and kit.told == 0 and not kit.task.runnable
    kit.bundle(2000, [3, 4], [9, 10])
    assert kit.task.runnable
    kit.task.run(0)
    assert kit.sent() == list(zip([2, 4, 6], names(kit, [7, 8, 9]), strict=True))
    *done, _ = (bundle[3] for lane in kit.task.lanes for bundle in lane.bundles)
    assert kit.told == reduce(xor, done, 1000), "one tuple of the second bundle is still waiting"
    kit.bundle(3000, [5, 6], [11, 12])
    kit.task.run(0)
    assert kit.told == kit.owed(1000, 2000, 3000)
    assert kit.counters.received == 6


def test_a_batch_runs_when_its_time_has_come() -> None:
    kit = batches()
    kit.bundle(1000, [1], [7])
    kit.task.run(0)
    assert isinstance(kit.task, BatchTask) and kit.task.deadline_ns == 1 + WAIT_MS * MILLISECOND_NS
    kit.clock.advance(WAIT_MS * MILLISECOND_NS - 1)
    kit.task.run(0)
    assert kit.sent() == [] and not kit.task.runnable
    kit.clock.advance(1)
    assert kit.task.runnable
    kit.task.run(0)
    assert [value for value, _ in kit.sent()] == [2] and kit.told == kit.owed(1000)
    assert kit.task.deadline_ns == 0 and not kit.task.runnable


def test_one_bad_tuple_does_not_spoil_its_batch() -> None:
    kit = batches(on_error="skip")
    kit.bundle(1000, [1, 13, 2], [7, 8, 9])
    kit.task.run(0)
    assert kit.sent() == list(zip([2, 4], names(kit, [7, 9]), strict=True))
    assert kit.counters.skipped == 1 and kit.told == kit.owed(1000)


def test_a_batch_that_may_not_be_repeated_is_given_up_as_a_whole() -> None:
    kit = batches(on_error="skip", idempotent=False)
    kit.bundle(1000, [1, 13, 2], [7, 8, 9])
    kit.task.run(0)
    assert kit.sent() == [] and kit.counters.skipped == 3 and kit.told == 1000


def test_a_bad_tuple_of_a_batch_becomes_a_dead_letter() -> None:
    kit = batches(on_error="dead_letter")
    kit.bundle(1000, [1, 13, 2], [7, 8, 9])
    kit.task.run(0)
    letters = [
        value for lane in kit.task.lanes for bundle in lane.bundles for value in bundle[5] if value not in (2, 4)
    ]
    assert [letter["value"] for letter in letters] == [13] and kit.told == kit.owed(1000)


def test_a_batch_fails_the_run() -> None:
    kit = batches()
    kit.bundle(1000, [1, 13, 2], [7, 8, 9])
    with pytest.raises(TaskError, match="thirteen"):
        kit.task.run(0)


def test_a_batch_function_must_return_as_many() -> None:
    kit = OneTask(lambda stream: stream.map_batch("b", lambda values: values[1:], max_size=2, tasks=1))
    kit.bundle(1000, [1, 2], [7, 8])
    with pytest.raises(
        TaskError, match="must return as many results as it is given: given=1 returned=0; does the function drop"
    ):
        kit.task.run(0)


def test_a_batch_function_may_yield() -> None:
    kit = OneTask(lambda stream: stream.map_batch("b", lambda values: (v + 1 for v in values), max_size=2, tasks=1))
    kit.bundle(1000, [1, 2], [7, 8])
    kit.task.run(0)
    assert [value for value, _ in kit.sent()] == [2, 3]


# -- coroutines


async def coroutine(value: Any) -> Any:
    return value


def asynchronous(how: str, **options: Any) -> tuple[OneTask, AsyncTask]:
    kit = OneTask(lambda stream: getattr(stream, how)("c", coroutine, tasks=1, **options))
    assert isinstance(kit.task, AsyncTask) and kit.task.function is coroutine
    return kit, kit.task


def test_calls_may_end_in_any_order() -> None:
    kit, task = asynchronous("map")
    kit.bundle(1000, ["a", "b"], [7, 8])
    kit.bundle(2000, ["c"], [9])
    calls = [task.next_call() for _ in range(3)]
    assert task.next_call() is None
    a, b, c = (call for call in calls if call is not None)
    task.finished(c, "C")
    assert kit.told == kit.owed(2000)
    known = kit.told
    task.finished(b, "B")
    assert kit.told == known, "what it sent is told with its bundle: if both were lost apart, nobody would miss it"
    task.finished(a, "A")
    assert kit.told == kit.owed(1000, 2000)
    assert kit.sent() == list(zip("CBA", names(kit, [9, 8, 7]), strict=True))


def test_an_asynchronous_filter_passes_the_tuple_on() -> None:
    kit, task = asynchronous("filter")
    kit.bundle(1000, ["a", "b"], [7, 8])
    for answer in (False, "yes"):
        call = task.next_call()
        assert call is not None
        task.finished(call, answer)
    assert kit.sent() == [("b", names(kit, [8])[0])] and kit.told == kit.owed(1000)


def test_an_asynchronous_flat_map_names_its_outputs_as_any_other() -> None:
    kit, task = asynchronous("flat_map")
    kit.bundle(1000, ["a", "b", "c"], [7, 8, 9])
    for results in (["x", "y"], [], ("z",)):
        call = task.next_call()
        assert call is not None
        task.finished(call, results)
    assert kit.sent() == list(zip("xyz", names(kit, [7, 7, 9], [0, 1, 0]), strict=True))
    assert kit.told == kit.owed(1000)


def test_a_call_that_fails_closes_its_part_of_the_bundle() -> None:
    kit, task = asynchronous("map", on_error="skip")
    kit.bundle(1000, ["a"], [7])
    call = task.next_call()
    assert call is not None
    call.started_ns = kit.clock()
    kit.clock.advance(30)
    task.failed(call, ValueError("no"))
    assert kit.told == 1000 and kit.counters.skipped == 1 and kit.counters.busy_ns == 30


def test_an_asynchronous_flat_map_that_returns_none_has_failed() -> None:
    kit, task = asynchronous("flat_map", on_error="skip")
    kit.bundle(1000, ["a"], [7])
    call = task.next_call()
    assert call is not None
    task.finished(call, None)
    assert kit.told == 1000 and kit.counters.skipped == 1


# -- sources


class SourceKit:
    def __init__(self, roots: int = 5) -> None:
        topology = Topology("t")
        source = SimSource("s", roots)
        stream = topology.source("s", source, tasks=1).map("m", lambda v: v, tasks=1)
        stream.sink("out", SimSink(), tasks=1)
        self.clock = ManualClock(1)
        self.plan = make_plan(topology, 1)
        context = context_of(self.plan, self.clock, limits=LedgerLimits(3, 1_000))
        self.task = source_of(context, source.open(SplitStart("0", 1)), durable=1)

    def offsets(self) -> list[int]:
        return [offset for lane in self.task.lanes for _, _, offset, *_ in lane.take()]

    def finish(self) -> None:
        for lane in self.task.lanes:
            for emission, _, _, ack, *_ in lane.take():
                self.task.apply({emission: ack}, {}, {})


def test_a_source_begins_with_the_first_recovery() -> None:
    kit = SourceKit()
    assert kit.task.ready_ns is None and not kit.task.settled
    kit.task.handle(Recover())
    assert kit.task.ready_ns == 0


def test_a_source_reads_from_its_position_as_far_as_the_span_allows() -> None:
    kit = SourceKit()
    kit.task.handle(Recover())
    assert kit.task.read(10) == 3 and kit.offsets() == [1, 2, 3]
    assert kit.task.ready_ns is None  # no room
    assert not kit.task.wants_commit  # it waits for work, not for a commit


def test_a_source_wants_a_commit_when_that_is_all_it_waits_for() -> None:
    kit = SourceKit()
    kit.task.handle(Recover())
    kit.task.read(3)
    (lane,) = kit.task.lanes
    emission, _, _, ack, *_ = lane.bundles[0]
    kit.task.apply({}, {emission: ack}, {})
    assert kit.task.wants_commit
    kit.task.apply({}, {}, {emission: ack})
    assert not kit.task.wants_commit
    assert kit.task.stuck and kit.task.ready_ns is None  # until the coordinator has its prefix
    (prefixes,) = [m for m in kit.task.reports(0, 1, lambda value: None) if isinstance(m, Prefixes)]
    kit.task.handle(Committed({split: position.offset for split, position in prefixes.positions.items()}))
    assert not kit.task.stuck and kit.task.ready_ns == 0


def test_a_source_asks_once_and_again_only_after_a_while() -> None:
    kit = SourceKit()
    kit.task.handle(Recover())
    kit.task.read(1)
    (lane,) = kit.task.lanes
    emission, _, _, ack, *_ = lane.bundles[0]
    kit.task.apply({emission: ack}, {}, {})

    def asked() -> int:
        return sum(isinstance(message, Prefixes) for message in kit.task.reports(0, 1, lambda value: None))

    assert (asked(), asked()) == (1, 0)
    kit.clock.advance(ASK_AGAIN_NS + 1)
    assert (asked(), asked()) == (1, 0)


def test_a_source_that_drains_reads_as_far_as_its_predecessor() -> None:
    kit = SourceKit(roots=20)
    kit.task.draining = True
    kit.task.handle(Recover({0: 3}))
    assert not kit.task.exhausted and kit.task.ready_ns == 0
    assert kit.task.read(1) == 1 and not kit.task.exhausted
    assert kit.task.read(1) == 1 and kit.offsets() == [1, 2]
    assert kit.task.exhausted and not kit.task.settled and kit.task.ready_ns is None


def test_a_source_that_drains_stops_at_once_where_nobody_has_read_further() -> None:
    kit = SourceKit(roots=20)
    kit.task.handle(Recover({0: 2}))
    kit.task.read(1)
    kit.task.handle(Drain())
    assert kit.task.exhausted and kit.task.read(1) == 0


def test_a_drain_goes_on_through_empty_polls_to_the_end_of_a_split() -> None:
    kit = SourceKit(roots=3)
    kit.task.handle(Recover({0: 9}))  # as far as it ever got: the split has become shorter
    kit.task.handle(Drain())
    assert kit.task.read(0) == 0 and not kit.task.exhausted
    assert kit.task.read(3) == 2 and kit.task.exhausted


def test_pending_counts_what_is_not_durable_and_nothing_behind_it() -> None:
    kit = SourceKit()
    kit.task.handle(Recover())
    kit.task.read(3)
    (lane,) = kit.task.lanes
    for emission, _, _, ack, *_ in lane.take()[1:]:  # the first holds the prefix back
        kit.task.apply({emission: ack}, {}, {})
    kit.task.show()
    assert kit.task.counters[0].pending == 1 and kit.task.ledger.pending == 3
    kit.task.ledger.validate()


def test_a_source_says_how_far_it_has_read() -> None:
    kit = SourceKit()
    kit.task.handle(Recover())
    reports = kit.task.reports(0, 1, lambda value: None)
    assert [message.reach for message in reports if isinstance(message, SourceReport)] == [{}]
    kit.task.read(2)
    (report,) = kit.task.reports(0, 1, lambda value: None)
    assert isinstance(report, SourceReport) and report.reach == {0: 3}
    assert kit.task.reports(0, 1, lambda value: None) == []
    kit.task.read(1)
    kit.finish()
    prefixes, *_ = kit.task.reports(0, 1, lambda value: None)
    assert isinstance(prefixes, Prefixes) and prefixes.reach == {0: 4}


def test_recovery_comes_before_reading() -> None:
    kit = SourceKit()
    kit.task.handle(Recover())
    kit.task.read(2)
    assert kit.offsets() == [1, 2]
    kit.task.handle(Recover())
    assert kit.task.runnable and kit.task.ready_ns is None
    kit.task.run(10)
    assert kit.offsets() == [1, 2] and not kit.task.runnable and kit.task.ledger.reemitted == 2


def test_what_became_durable_meanwhile_is_not_emitted_again() -> None:
    kit = SourceKit()
    kit.task.handle(Recover())
    kit.task.read(2)
    kit.task.handle(Recover())
    kit.finish()
    kit.task.run(10)
    assert kit.offsets() == [] and kit.task.ledger.reemitted == 0


def test_the_backstop_emits_what_is_overdue() -> None:
    kit = SourceKit()
    kit.task.handle(Recover())
    kit.task.read(2)
    kit.offsets()
    assert kit.task.check_overdue(kit.clock()) == 0
    kit.clock.advance(1_001)
    assert kit.task.check_overdue(kit.clock()) == 2
    kit.task.run(10)
    assert kit.offsets() == [1, 2]


def test_a_source_is_settled_when_all_is_durable_and_stored() -> None:
    kit = SourceKit(roots=3)
    kit.task.handle(Recover())
    kit.task.read(10)
    assert kit.task.exhausted and not kit.task.settled
    kit.finish()
    assert not kit.task.settled  # the prefix is not stored yet
    kit.task.handle(Committed({0: 3}))
    assert kit.task.settled


def test_a_source_says_of_which_splits_nothing_is_pending() -> None:
    kit = SourceKit(roots=3)

    def quiet() -> list[frozenset[int]]:
        return [m.quiet for m in kit.task.reports(0, 1, lambda value: None) if isinstance(m, SourceReport)]

    kit.clock.advance(10 * kit.task.look_every_ns)
    assert quiet() == [frozenset()], "it has not read yet: what is to come may kill its worker"
    kit.task.handle(Recover())
    assert quiet() == []
    kit.task.read(10)
    kit.clock.advance(kit.task.look_every_ns)
    assert quiet() == [frozenset()], "it says how far it has read, and that not all of that is done"
    kit.finish()
    kit.clock.advance(kit.task.look_every_ns)
    assert quiet() == [], "its prefix is not stored"
    kit.task.handle(Committed({0: 3}))
    kit.clock.advance(kit.task.look_every_ns)
    assert quiet() == [frozenset({0})]


def test_a_source_that_drains_reads_no_more_but_finishes() -> None:
    kit = SourceKit()
    kit.task.handle(Recover())
    kit.task.read(1)
    kit.task.handle(Drain())
    assert kit.task.ready_ns is None and kit.task.exhausted and not kit.task.settled
    kit.finish()
    kit.task.handle(Committed({0: 2}))
    assert kit.task.settled


def test_a_barrier_is_passed_when_all_that_could_be_read_is_committed() -> None:
    kit = SourceKit()
    kit.task.handle(Recover())
    kit.task.handle(Barrier(4))

    def passed() -> list[int]:
        return [m.barrier for m in kit.task.reports(0, 1, lambda value: None) if isinstance(m, Passed)]

    assert passed() == [], "there is more to read"
    while kit.task.ready_ns is not None:
        kit.task.read(10)
        kit.finish()
        for message in kit.task.reports(0, 1, lambda value: None):
            assert not isinstance(message, Passed), "nobody has committed yet"
            if isinstance(message, Prefixes):
                offsets = {split: position.offset for split, position in message.positions.items()}
        kit.task.handle(Committed(offsets))
    assert passed() == [4]
    assert passed() == [], "once is enough"
