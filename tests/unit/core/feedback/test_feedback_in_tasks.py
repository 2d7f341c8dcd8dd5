"""Halves at work in tasks: what they are told, in which order, under which membership; what holds a task back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import xor
from random import Random
from typing import Any

import pytest

from kit.tasks import context_of, plan_of, task_of
from tailrace.core.bundles import FEEDBACK, VALUES, is_feedback, new_bundle
from tailrace.core.feedback.runs import Run, came, joined
from tailrace.core.plan.plan import Plan
from tailrace.core.plan.planner import make_plan
from tailrace.core.protocol.ledger import LedgerLimits
from tailrace.core.protocol.lineage import broadcast_lineages, child_lineages
from tailrace.core.protocol.messages import Members
from tailrace.core.routing.router import MAX_BUNDLE
from tailrace.core.tasks.base import ObservedTask, PlainTask, Task
from tailrace.core.tasks.deferred import AsyncTask, BatchTask
from tailrace.errors import TailraceError
from tailrace.policy import least_work
from tailrace.policy.groupings.api import ALL, FIRST, HELD
from tailrace.policy.groupings.feedback import Message, Receiver
from tailrace.sim.faults.topologies import SimSink, SimSource
from tailrace.testing import ManualClock
from tailrace.topology import Stream, Topology

WORK, NEXT = 1, 3  # the first tasks of the operators behind the only source task


@dataclass
class Scripted:
    """Both halves of a grouping that does what it is told and writes down what it is told."""

    choices: list[int] = field(default_factory=list)  # of the tuples to come; then HELD
    released: list[int] = field(default_factory=list)  # what the next message releases
    story: list[tuple[Any, ...]] = field(default_factory=list)
    say: list[tuple[int, Message]] = field(default_factory=list)  # to put into the outbox at the next call
    name: str = "scripted"
    keyed: bool = False

    def bind(self, tasks: int, rng: Random) -> _Half:
        self.story.append(("bind", tasks))
        return _Half(self)

    def bind_receiver(self, task: int, tasks: int, senders: int, rng: Random) -> _Half:
        self.story.append(("bind_receiver", task, tasks, senders))
        return _Half(self)


class _Half(Receiver):
    estimated = None
    credits = 0

    def __init__(self, script: Scripted) -> None:
        super().__init__()
        self.script = script
        self.attached: list[tuple[int, Message]] = []

    def _note(self, *what: Any) -> None:
        self.script.story.append(what)
        self.outbox.extend(self.script.say)
        self.script.say.clear()

    def tick(self, now_ns: int) -> None:
        pass

    def choose_many(self, values: Sequence[Any]) -> Sequence[int]:
        if "no key" in values:
            raise KeyError("no key")
        self._note("choose", list(values))
        choices = [self.script.choices.pop(0) if self.script.choices else HELD for _ in values]
        self.attached = [(place, ("with", values[place])) for place, choice in enumerate(choices) if choice != HELD]
        return choices

    def hear(self, peer: int, message: Message, now_ns: int) -> Sequence[int]:  # type: ignore[override]
        self._note("hear", peer, message)
        released, self.script.released = self.script.released, []
        self.attached = [(place, ("late", place)) for place in range(len(released))]
        return released

    def received(self, sender: int, attached: Message | None, now_ns: int) -> None:
        self._note("received", sender, attached)

    def executed(
        self, sender: int, value: Any, attached: Message | None, duration_ns: int, queued: int, now_ns: int
    ) -> None:
        self._note("executed", sender, value, attached, duration_ns, queued)


class Kit:
    """One task between a source and two tasks of a scripted operator, itself reached by a scripted edge."""

    def __init__(self, operator: Any = None, function: Any = lambda value: value) -> None:
        self.before, self.after = Scripted(), Scripted()
        topology = Topology("t")
        source = topology.source("s", SimSource("s", 5))
        declare = operator or (lambda stream, **how: stream.map("work", function, **how))
        stream: Stream = declare(source, tasks=2, grouping=self.before)
        stream.map("next", function, tasks=2, grouping=self.after).sink("out", SimSink())
        self.plan: Plan = make_plan(topology, 1)
        self.clock = ManualClock(1_000)
        context = context_of(self.plan, self.clock, limits=LedgerLimits(3, 1_000), held_limit=2)
        self.task: Task = task_of(context, WORK)
        assert self.task.feedback_receiver is not None
        self.feedback_receiver = self.task.feedback_receiver
        (self.line,) = self.task.feedback_edges.values()
        self.forget()

    def forget(self) -> None:
        self.before.story.clear()
        self.after.story.clear()
        self.feedback_receiver.outbox.clear()

    def members(self, version: int) -> None:
        self.task.handle(Members(version, {}, {}))

    def bundle(self, *values: Any, version: int = 0, ack: int = 7, said: Any = None) -> None:
        named = [100 + place for place in range(len(values))]
        self.task.receive([(50, 0, 9, ack, named, list(values), (0, 0, version), said)])

    def send(self, *values: Any) -> int:
        return self.line.send(50, 0, 9, list(values), [100 + place for place in range(len(values))], None)

    def lanes(self) -> list[list[Any]]:
        return [lane.take() for lane in self.task.lanes]


@pytest.fixture
def kit() -> Kit:
    return Kit()


# -- the sending half


def test_tuples_for_one_task_are_one_bundle_that_says_where_it_comes_from(kit: Kit) -> None:
    kit.after.choices = [1, 0, 1]
    ids = kit.send("a", "b", "c")
    (zero,), (one,) = kit.lanes()
    names = child_lineages([100, 101, 102], kit.plan.edges[1].salt, None)
    assert zero == (50, 0, 9, zero[3], [names[1]], ["b"], (1, 0, 0), [("with", "b")])
    assert one[4:] == ([names[0], names[2]], ["a", "c"], (1, 0, 0), [("with", "a"), ("with", "c")])
    assert ids == zero[3] ^ one[3]


def test_a_tuple_for_all_is_named_by_its_task(kit: Kit) -> None:
    kit.after.choices = [ALL, 0]
    ids = kit.send("a", "b")
    (zero,), (one,) = kit.lanes()
    name, other = child_lineages([100, 101], kit.plan.edges[1].salt, None)
    assert zero[4:6] == ([*broadcast_lineages([name], 0), other], ["a", "b"])
    assert one[4:6] == (broadcast_lineages([name], 1), ["a"])
    assert ids == zero[3] ^ one[3]


def test_a_held_tuple_has_its_ack_id_before_it_leaves(kit: Kit) -> None:
    kit.after.choices = [HELD, 0, HELD]
    ids = kit.send("a", "b", "c")
    assert [bundle[5] for bundle in kit.line.held] == [["a"], ["c"]]
    kit.after.released = [1, 0]
    kit.task.hear([(FEEDBACK, 1, 0, 0, ("go",))])
    zero, (one,) = kit.lanes()
    assert [bundle[5] for bundle in zero] == [["b"], ["c"]] and one[5:] == (["a"], (1, 0, 0), [("late", 0)])
    assert ids == reduce(xor, (bundle[3] for bundle in (*zero, one)))
    assert len(one[4]) == 1


def test_the_first_in_line_may_leave_in_the_place_of_another(kit: Kit) -> None:
    for tuples in (("a", "b", "c"), ("a",)):
        kit.after.choices = [HELD]
        kit.send(*tuples[:-1])
        kit.after.choices = [FIRST - 1]
        kit.send(tuples[-1])
        assert [bundle[5] for bundle in kit.lanes()[1]] == [["a"]]
        assert [bundle[5] for bundle in kit.line.held] == [[value] for value in tuples[1:]]
        kit.line.held.clear()


def test_a_long_output_is_chosen_for_piece_by_piece(kit: Kit) -> None:
    kit.after.choices = [0] * (2 * MAX_BUNDLE)
    ids = kit.send(*range(MAX_BUNDLE + 3))
    bundles, _ = kit.lanes()
    assert [len(bundle[5]) for bundle in bundles] == [MAX_BUNDLE, 3]
    assert ids == bundles[0][3] ^ bundles[1][3]


def test_a_tuple_that_cannot_be_chosen_for_is_its_senders_failure(kit: Kit) -> None:
    kit.after.choices = [0, 0]
    with pytest.raises(Exception, match="no key"):
        kit.send("a", "no key")
    assert [bundle[5] for bundle in kit.lanes()[0]] == [["a"]]


def test_what_travels_alone_stands_between_the_bundles(kit: Kit) -> None:
    kit.after.choices = [0, 0]
    kit.send("a")
    kit.after.say = [(0, ("alone",))]
    kit.after.choices = [HELD]
    kit.send("b")
    kit.after.choices = [0]
    kit.send("c")
    items, _ = kit.lanes()
    assert [item if is_feedback(item) else item[VALUES] for item in items] == [
        ["a"],
        (FEEDBACK, 1, 0, 0, ("alone",)),
        ["c"],
    ]


def test_a_full_line_holds_the_task_back(kit: Kit) -> None:
    kit.send("a")
    assert not kit.task.held_full
    kit.send("b")
    assert kit.task.held_full
    kit.after.released = [0]
    kit.task.hear([(FEEDBACK, 1, 0, 0, ("go",))])
    assert not kit.task.held_full


def test_a_half_that_releases_what_it_does_not_hold_is_found_out(kit: Kit) -> None:
    kit.after.released = [0]
    with pytest.raises(AssertionError, match="more released than held: 1 of 0"):
        kit.task.hear([(FEEDBACK, 1, 0, 0, ("go",))])


def test_a_new_membership_offers_the_line_to_a_new_half(kit: Kit) -> None:
    ids = kit.send("a", "b")
    kit.after.choices = [HELD, 1]
    kit.members(4)
    assert kit.after.story[-2:] == [("bind", 2), ("choose", ["a", "b"])]
    _, (one,) = kit.lanes()
    assert one[5:] == (["b"], (1, 0, 4), [("with", "b")])
    assert ids == one[3] ^ kit.line.held[0][3]


def test_only_messages_of_this_membership_are_heard_and_later_ones_kept(kit: Kit) -> None:
    kit.members(4)
    kit.forget()
    kit.task.hear(
        [
            (FEEDBACK, 1, 0, 3, ("old",)),
            (FEEDBACK, 1, 1, 4, ("now",)),
            (FEEDBACK, 1, 0, 6, ("far",)),
            (FEEDBACK, 1, 1, 5, ("next",)),
        ]
    )
    assert kit.after.story == [("hear", 1, ("now",))]
    kit.members(5)
    assert kit.after.story[-1] == ("hear", 1, ("next",))
    kit.members(6)
    assert kit.after.story[-1] == ("hear", 0, ("far",))


# -- the receiving half


def test_a_task_reports_arrivals_then_executions_and_what_each_tuple_took(kit: Kit) -> None:
    def work(value: int) -> int:
        kit.clock.advance(value)
        return value

    kit.task.stage._function = work  # type: ignore[attr-defined]
    kit.bundle(30, 10, said=[("sync",), None])
    kit.feedback_receiver.process_pending()
    assert kit.before.story == [("received", 0, ("sync",)), ("received", 0, None)]
    kit.task.run(0)
    kit.bundle(5)
    kit.forget()
    kit.feedback_receiver.process_pending()
    assert kit.before.story == [
        ("received", 0, None),
        ("executed", 0, 30, ("sync",), 30, 2),
        ("executed", 0, 10, None, 10, 1),
    ]


def test_time_beside_the_calls_is_shared_out(kit: Kit) -> None:
    kit.feedback_receiver.executed_all((0, 0, 0, 0, None, ["a", "b"], (0, 0, 0), None), [30, 10], 60)
    kit.feedback_receiver.process_pending()
    assert [event[4] for event in kit.before.story] == [40, 20]


def test_what_was_run_for_one_sender_is_told_at_once() -> None:
    one, other = (0, 0, 1), (0, 1, 1)
    runs: list[Run] = [
        (one, ["a"], None, (1,)),
        (other, ["b"], None, (2,)),
        ((0, 0, 1), ("c", "d"), None, [3, 4]),
        (one, ["e"], ["sync"], (5,)),
        (one, ["f"], None, (6,)),
        (one, ["g"], None, None),
        (one, ["h"], None, (8,)),
        (None, ["i"], None, (9,)),
        (one, ["j"], None, (10,)),
    ]
    assert joined(runs) == [
        (one, ["a", "c", "d"], None, [1, 3, 4]),
        (other, ["b"], None, [2]),
        runs[3],
        (one, ["f"], None, [6]),
        runs[5],
        (one, ["h"], None, [8]),
        runs[7],
        (one, ["j"], None, [10]),
    ]
    assert runs[0][1] == ["a"], "what was sent stays as it is"


def test_what_a_task_has_said_happened_when_it_was_said(kit: Kit) -> None:
    heard: list[int] = []
    half = kit.task.feedback_edges[1]._chooser
    half.hear = lambda task, message, now_ns: heard.append(now_ns) or ()  # type: ignore[method-assign, func-returns-value]
    kit.task.hear([(FEEDBACK, 1, 0, 0, ("then",))], 7)
    kit.task.hear([(FEEDBACK, 1, 0, 0, ("now",))])
    assert heard == [7, kit.clock()]


def test_answers_go_to_the_sender_by_its_task_number(kit: Kit) -> None:
    kit.members(2)
    kit.forget()
    kit.before.say = [(0, ("credit",))]
    kit.task.receive([(FEEDBACK, 0, 0, 2, ("news",))])
    assert kit.feedback_receiver.pending and not kit.task.runnable
    kit.feedback_receiver.process_pending()
    assert kit.before.story == [("hear", 0, ("news",))]
    assert kit.feedback_receiver.outbox == {0: [(FEEDBACK, 0, 0, 2, ("credit",))]}
    assert kit.task.counters[0].feedback_messages == 1


def test_a_new_membership_forgets_what_was_said_and_what_is_queued(kit: Kit) -> None:
    kit.before.say = [(0, ("credit",))]
    kit.bundle("a")
    kit.feedback_receiver.process_pending()
    kit.members(1)
    assert kit.feedback_receiver.outbox == {} and kit.before.story[-1] == ("bind_receiver", 0, 2, 1)
    kit.forget()
    kit.task.run(0)
    kit.feedback_receiver.process_pending()
    assert kit.before.story == [], "the new half knows nothing of a tuple that was sent to the old one"


def test_tuples_of_a_membership_to_come_are_run_at_once_and_told_later(kit: Kit) -> None:
    kit.bundle("early", version=1)
    kit.feedback_receiver.process_pending()
    kit.task.run(0)
    kit.feedback_receiver.process_pending()
    assert kit.before.story == [] and kit.task.acks[0].both
    kit.members(1)
    assert [event[:3] for event in kit.before.story[-2:]] == [("received", 0, None), ("executed", 0, "early")]


def test_tuples_of_a_plain_edge_count_as_queued_and_are_told_to_nobody(kit: Kit) -> None:
    kit.bundle("a")
    kit.task.receive([new_bundle(50, 0, 9, 8, [1], ["plain"])])
    kit.feedback_receiver.process_pending()
    kit.task.run(10)
    kit.feedback_receiver.process_pending()
    assert kit.before.story == [("received", 0, None), ("executed", 0, "a", None, 0, 1)]
    assert len(kit.after.story) == 2, "both were sent on"


async def coroutine(value: Any) -> Any:
    return value


def test_coroutines_report_when_they_end() -> None:
    kit = Kit(lambda stream, **how: stream.map("work", coroutine, **how))
    assert isinstance(kit.task, AsyncTask)
    kit.bundle("a", "b", said=[None, ("sync",)])
    kit.feedback_receiver.process_pending()
    kit.forget()
    first, second = kit.task.next_call(), kit.task.next_call()
    assert first and second
    first.started_ns = second.started_ns = kit.clock()
    kit.clock.advance(6)
    kit.task.finished(second, "b")
    kit.clock.advance(3)
    kit.task.finished(first, "a")
    kit.feedback_receiver.process_pending()
    assert kit.before.story == [("executed", 0, "b", ("sync",), 6, 1), ("executed", 0, "a", None, 9, 0)]


def test_batches_report_the_share_of_each_tuple() -> None:
    def both(values: list[Any]) -> list[Any]:
        batches.clock.advance(10)
        return values

    kit = batches = Kit(lambda stream, **how: stream.map_batch("work", both, 2, **how))
    assert isinstance(kit.task, BatchTask)
    kit.bundle("a", "b")
    kit.feedback_receiver.process_pending()
    kit.forget()
    kit.task.run(0)
    kit.feedback_receiver.process_pending()
    assert kit.before.story == [("executed", 0, "a", None, 5, 1), ("executed", 0, "b", None, 5, 0)]


def test_a_function_that_changes_its_input_is_told_so() -> None:
    by_user = least_work("user")
    plan = plan_of(lambda source: source.map("work", lambda order: order.pop("user"), tasks=2, grouping=by_user))
    task = task_of(context_of(plan))
    task.receive([(50, 0, 9, 7, [1], [{"user": 3}], (0, 0, 0), None)])
    task.run(0)
    assert task.feedback_receiver is not None
    with pytest.raises(TailraceError) as caught:
        task.feedback_receiver.process_pending()
    assert str(caught.value) == (
        "a tuple that has been run can no longer be read: from=s to=work grouping=least_work tuple={} "
        "cause=KeyError: 'user'; does work change its input?"
    )


# -- where there is nothing to choose


def test_one_task_needs_no_reports() -> None:
    topology = Topology("t")
    script = Scripted()
    source = topology.source("s", SimSource("s", 5))
    source.map("work", lambda value: value, tasks=1, grouping=script).sink("out", SimSink())
    plan = make_plan(topology, 1)
    context = context_of(plan, limits=LedgerLimits(3, 1_000))
    task = task_of(context, function=lambda value: value)
    assert type(task) is PlainTask and task.feedback_receiver is None and not plan.edges[0].feedback


def test_a_task_that_is_told_of_is_of_its_own_kind(kit: Kit) -> None:
    assert type(kit.task) is ObservedTask


def test_what_came_without_a_break_from_one_sender_is_told_at_once() -> None:
    one, other, note = (0, 0, 1), (0, 1, 1), (FEEDBACK, 0, 1, 1, ("news",))

    def tracked(origin: Any, *values: Any, said: Any = None) -> Any:
        return (1, 0, 1, 1, None, list(values), origin, said)

    items = [tracked(one, "a"), tracked(one, "b", "c"), tracked(other, "d"), note, tracked(other, "e")]
    items += [tracked(other, "f", said=[("sync",)]), new_bundle(1, 0, 1, 1, None, ["g", "h"]), tracked(one, "i")]
    assert came(items) == [
        (one, 3, None),
        (other, 1, None),
        note,
        (other, 1, None),
        (other, 1, [("sync",)]),
        (None, 2, None),
        (one, 1, None),
    ]
