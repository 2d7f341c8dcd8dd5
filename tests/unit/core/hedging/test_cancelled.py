"""What is queued of an emission that is cancelled is thrown away, and told of, and not acknowledged."""

from __future__ import annotations

from typing import Any

import pytest

import tailrace as tr
from kit.tasks import context_of, task_of
from tailrace.clock import SECOND_NS
from tailrace.core.bundles import MESSAGE, new_bundle
from tailrace.core.emissions import hedge_of
from tailrace.core.hedging.cancelled import LIMIT, CancelledEmissions
from tailrace.core.plan.planner import make_plan
from tailrace.core.protocol.ledger import LedgerLimits
from tailrace.core.protocol.messages import Members, Techniques
from tailrace.core.tasks.base import ObservedTask, PlainTask, Task
from tailrace.core.tasks.deferred import BatchTask
from tailrace.policy.techniques import PLAIN
from tailrace.sim.faults.topologies import SimSink, SimSource
from tailrace.topology import Stream, Topology


def _task(operator: Any, cancelled: CancelledEmissions) -> Task:
    topology = Topology("t")
    stream: Stream = operator(topology.source("s", SimSource("s", 5)))
    stream.sink("out", SimSink(), tasks=2)
    plan = make_plan(topology, 1)
    context = context_of(plan, limits=LedgerLimits(3, 1_000), cancelled=cancelled)
    return task_of(context)


@pytest.mark.parametrize(
    ("kind", "operator"),
    [
        (PlainTask, lambda stream: stream.map("a", str, tasks=2)),
        (ObservedTask, lambda stream: stream.map("a", str, tasks=2, grouping=tr.power_of_two())),
        (BatchTask, lambda stream: stream.map_batch("a", list, max_size=1, max_wait_ms=0, tasks=2)),
        (
            BatchTask,
            lambda stream: stream.map_batch("a", list, max_size=1, max_wait_ms=0, tasks=2, grouping=tr.power_of_two()),
        ),
    ],
)
def test_what_is_queued_of_a_cancelled_emission_is_not_run(kind: type[Task], operator: Any) -> None:
    cancelled = CancelledEmissions()
    task = _task(operator, cancelled)
    assert isinstance(task, kind)
    task.handle(Members(1, {}, {}))
    origin: tuple[Any, ...] = () if task.feedback_receiver is None else ((0, 0, 1), None)
    for emission in (5, 6, hedge_of(7)):
        task.receive([new_bundle(emission, 0, emission % 9, 1000 + emission, [emission], ["x"], *origin)])
    cancelled.add([5, hedge_of(7)])
    if task.feedback_receiver is not None:
        task.feedback_receiver.process_pending()
        task.feedback_receiver.outbox.clear()
    task.run(SECOND_NS)
    assert [bundle[0] for lane in task.lanes for bundle in lane.bundles] == [6]
    assert set(task.acks[0].both) == {6}, "nobody waits for the acks of the others"
    assert (task.counters[0].unrun, task.counters[0].unrun_hedges) == (1, 1)
    if task.feedback_receiver is not None:
        task.feedback_receiver.process_pending()
        told = sum(note[MESSAGE].tuples for notes in task.feedback_receiver.outbox.values() for note in notes)
        assert told == 3, "a grouping hears of what was thrown away as of what was run"
        assert task.feedback_receiver.queued == 0


def test_a_set_of_cancelled_emissions_is_bounded_and_forgets_the_oldest() -> None:
    cancelled = CancelledEmissions()
    cancelled.add(range(LIMIT))
    cancelled.add([LIMIT, LIMIT + 1])
    assert len(cancelled) == LIMIT and min(cancelled) == 2


def test_what_is_cancelled_stays_so_when_replay_goes_off() -> None:
    cancelled = CancelledEmissions()
    task = _task(lambda stream: stream.map("a", str, tasks=2), cancelled)
    task.receive([new_bundle(5, 0, 5, 1005, [5], ["x"])])
    cancelled.add([5])
    task.handle(Techniques(PLAIN))
    task.run(SECOND_NS)
    assert not any(lane.bundles for lane in task.lanes) and task.counters[0].unrun == 1
