"""Which operators share queues, and what halves of a chosen task hear of tuples that another has run."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tailrace.core.feedback.budget import FeedbackBudget
from tailrace.core.feedback.receiver import FeedbackReceiver
from tailrace.core.plan.planner import make_plan
from tailrace.core.plan.queue_sharing import check_sharing
from tailrace.errors import OptionError
from tailrace.metrics.counters import TaskCounters
from tailrace.policy import broadcast, fields, least_work, local, partial_key, pull, shuffle
from tailrace.policy.groupings.feedback import Message, Receiver
from tailrace.sim.faults.topologies import SimSink, SimSource
from tailrace.testing import ManualClock
from tailrace.topology import Stream, Topology

Declare = Callable[[Stream], Stream]


def key(value: Any) -> Any:
    return value


def nothing(value: Any) -> Any:
    return value


def declared(declare: Declare) -> Topology:
    topology = Topology("t")
    declare(topology.source("s", SimSource("s", 5), tasks=2)).sink("out", SimSink(), tasks=1)
    return topology


MAY: dict[str, Declare] = {
    "shuffle": lambda stream: stream.map("work", nothing, tasks=4, grouping=shuffle()),
    "by load": lambda stream: stream.map("work", nothing, tasks=4, grouping=pull()),
    "batches": lambda stream: stream.map_batch("work", nothing, tasks=4, grouping=least_work(key)),
    "blocking": lambda stream: stream.map("work", nothing, tasks=4, kind="blocking"),
    "state that is merged": lambda stream: stream.map("work", nothing, tasks=4, stateful=True, mergeable=True),
    "fused": lambda stream: stream.map("work", nothing, tasks=4).map("near", nothing, tasks=4, grouping=local()),
}


@pytest.mark.parametrize("name", MAY)
def test_tasks_share_where_any_may_run_any_tuple(name: str) -> None:
    plan = make_plan(declared(MAY[name]), 2)
    check_sharing(plan, "worker")
    assert [operator.name for operator in plan.operators if operator.scope("worker")] == ["work"]
    first = plan.operators[1].first_task
    assert all(plan.shares(first + task, "worker") for task in range(4))
    assert not any(plan.shares(task, None) for task in range(len(plan.home)))


MAY_NOT: dict[str, tuple[Declare, str]] = {
    "keys": (
        lambda stream: stream.map("work", nothing, tasks=4, grouping=fields(key)),
        "work: fields sends equal keys to one task",
    ),
    "keys of two tasks": (
        lambda stream: stream.map("work", nothing, tasks=4, grouping=partial_key(key)),
        "work: partial_key sends equal keys to two tasks",
    ),
    "broadcast": (
        lambda stream: stream.map("work", nothing, tasks=4, grouping=broadcast()),
        "work: every task gets every tuple",
    ),
    "local": (
        lambda stream: stream.map("work", nothing, tasks=2, grouping=local()),
        "work: what comes by a local edge stays where it is",
    ),
    "state": (lambda stream: stream.map("work", nothing, tasks=4, stateful=True), "work: it keeps state"),
    "state behind it": (
        lambda stream: stream.map("work", nothing, tasks=4).map(
            "near", nothing, tasks=4, grouping=local(), stateful=True
        ),
        "work: near keeps state",
    ),
    "one task": (lambda stream: stream.map("work", nothing, tasks=1), "work: it has one task"),
    "one thread": (
        lambda stream: stream.map("work", nothing, tasks=4, kind="cpu"),
        "work: tasks of kind='cpu' take turns on one thread",
    ),
}


@pytest.mark.parametrize("name", MAY_NOT)
def test_a_run_in_which_nobody_may_share_is_refused_with_the_reasons(name: str) -> None:
    declare, why = MAY_NOT[name]
    with pytest.raises(OptionError) as refusal:
        check_sharing(make_plan(declared(declare), 2), "worker")
    text = str(refusal.value)
    assert text.startswith("no operator's tasks may draw from one queue: shared_queues='worker': work: ")
    assert why in text and "out: it has one task" in text
    assert text.endswith(": could one of them be grouped by shuffle(), or should this be left out?")


@pytest.mark.parametrize("name", MAY_NOT)
def test_operators_that_may_not_keep_their_queues_beside_one_that_may(name: str) -> None:
    topology = declared(lambda stream: MAY_NOT[name][0](stream).map("free", nothing, tasks=3))
    plan = make_plan(topology, 2)
    check_sharing(plan, "worker")
    assert [operator.name for operator in plan.operators if operator.scope("worker")] == ["free"]


def test_a_committing_sink_keeps_its_queues() -> None:
    topology = Topology("t")
    stream = topology.source("s", SimSource("s", 5)).map("work", nothing, tasks=4)
    stream.sink("out", SimSink(), tasks=2)
    stream.sink("loose", SimSink(committing=False), tasks=2)
    shared = [operator.name for operator in make_plan(topology, 1).operators if operator.scope("worker")]
    assert shared == ["work", "loose"]


def test_a_task_alone_in_its_worker_shares_with_nobody() -> None:
    plan = make_plan(declared(lambda stream: stream.map("work", nothing, tasks=3)), 2)
    homes = [plan.home[2 + task] for task in range(3)]
    assert all(plan.shares(2 + task, "node") for task in range(3)), "there may be others on its machine"
    assert [plan.shares(2 + task, "worker") for task in range(3)] == [homes.count(home) > 1 for home in homes]
    assert sorted(map(homes.count, homes)) == [1, 2, 2]


class _Listening(Receiver):
    """A receiving half that does something when it hears of the first tuple that has been run."""

    keyed, name = False, "listening"

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[tuple[str, Any]] = []
        self.meanwhile: Callable[[], None] = lambda: None

    def bind_receiver(self, task: int, tasks: int, senders: int, rng: Random) -> _Listening:
        return self

    def bind(self, tasks: int, rng: Random) -> Any:
        raise AssertionError("nobody sends here")

    def received(self, sender: int, attached: Message | None, now_ns: int) -> None:
        self.heard.append(("received", attached))

    def executed(
        self, sender: int, value: Any, attached: Message | None, took_ns: int, queued: int, now_ns: int
    ) -> None:
        self.heard.append(("executed", attached))
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()


def test_a_half_hears_of_an_arrival_first_though_another_thread_runs_it_meanwhile() -> None:
    half = _Listening()
    topology = Topology("t")
    source = topology.source("s", SimSource("s", 5), tasks=1)
    source.map("work", nothing, tasks=2, grouping=half).sink("out", SimSink(), tasks=1)  # type: ignore[arg-type]
    plan = make_plan(topology, 1)
    halves = FeedbackReceiver(
        plan, 1, plan.edges[:1], TaskCounters("work", 0, 0), FeedbackBudget(), ManualClock(1), Random(1)
    )
    bundles = [(n, 0, n, 5, None, [n], (0, 0, 0), [(n,)]) for n in range(2)]

    def come_and_go(number: int) -> None:
        halves.arrived([bundles[number]], mixed=False)
        halves.executed_all(bundles[number], [7], 7)

    half.meanwhile = lambda: come_and_go(1)
    come_and_go(0)
    halves.process_pending()
    assert half.heard == [("received", (0,)), ("executed", (0,))]
    assert halves.pending
    halves.process_pending()
    assert half.heard[2:] == [("received", (1,)), ("executed", (1,))]
