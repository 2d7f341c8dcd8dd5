"""The sending half of a load-aware edge at work: it chooses tasks, and keeps the tuples that must wait for one in line.

A tuple in line is a bundle already: it has its ack id, which is in its emission's register. Where it goes is decided
later. With each version of the membership the half is bound anew and the line is offered to the new one, because
credits that were lost with a process or a link stay lost. What was said under another version is not heard.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from tailrace.clock import Clock
from tailrace.core.bundles import FEEDBACK, VALUES, Bundle, Origin
from tailrace.core.failures import CAUGHT
from tailrace.core.feedback.budget import FeedbackBudget
from tailrace.core.plan.plan import EdgePlan
from tailrace.core.protocol.lineage import broadcast_lineages, child_lineages
from tailrace.core.routing.router import MAX_BUNDLE, FeedbackLane, LaneOut
from tailrace.metrics.counters import EdgeState, TaskCounters
from tailrace.policy.groupings.api import ALL, FIRST, HELD
from tailrace.policy.groupings.feedback import FeedbackChooser, Message, has_feedback

MAX_LINE = 256
"""Tuples in line on one edge, beyond which the task is held back: as many as may wait in a lane."""


NOTHING: Mapping[int, Message] = {}


class FeedbackSender(LaneOut):
    """An edge whose tasks report to the sender.

    Law: every tuple gets its ack id in ``send``, and goes to a lane once: at once, or from the front of the line.
    """

    def __init__(
        self,
        edge: EdgePlan,
        lanes: Sequence[FeedbackLane],
        sender: int,
        counters: TaskCounters,
        feedback_budget: FeedbackBudget,
        clock: Clock,
        rng: Random,
        limit: int,
    ) -> None:
        super().__init__(edge, lanes, None, rng)
        self._ways = tuple(lanes)
        self.line: deque[Bundle] = deque()
        self._sender = sender  # the sending task's place among the tasks of its operator
        self._counters = counters
        self._feedback_budget = feedback_budget
        self._clock = clock
        self._rng = rng
        self._limit = limit
        self._early: list[tuple[int, int, Message, int | None]] = []  # as they were said, of memberships yet to come
        self.version = 0
        self._origin: Origin = (edge.index, sender, 0)
        self._half = self._new_half()

    def _new_half(self) -> FeedbackChooser:
        grouping = self.edge.grouping
        assert has_feedback(grouping)
        return grouping.bind(len(self.lanes), self._rng)

    @property
    def full(self) -> bool:
        return len(self.line) >= self._limit

    def state(self) -> EdgeState:
        """For whoever shows it. What was estimated counts from the last membership on."""
        estimated = self._half.estimated
        tuples, total_ns = (estimated.tuples, int(estimated.total_ns)) if estimated is not None else (0, 0)
        return EdgeState(self.edge.index, len(self.line), self._half.credits, tuples, total_ns)

    def bind(self, version: int) -> None:
        """Begin anew under a newer membership, with the tuples in line."""
        self.version = version
        self._origin = (self.edge.index, self._sender, version)
        self._half = self._new_half()
        self._offer_line()
        early, self._early = self._early, []
        for told, task, message, said_ns in early:
            self.hear(task, told, message, said_ns)

    def _offer_line(self) -> None:
        line, self.line = self.line, deque()
        self._half.tick(self._clock())
        choices = self._half.choose_many([bundle[VALUES][0] for bundle in line])
        attached = self._take_attached()
        for position, (bundle, choice) in enumerate(zip(line, choices, strict=True)):
            if choice >= 0:
                self._release(bundle, choice, attached.get(position))
            else:
                self._join_line(bundle, choice, attached.get(position))
        self._post()

    def _join_line(self, bundle: Bundle, choice: int, message: Message | None) -> None:
        self.line.append(bundle)
        if choice <= FIRST:
            self._release(self.line.popleft(), FIRST - choice, message)

    # -- choosing

    def send(
        self,
        emission: int,
        split: int,
        offset: int,
        values: list[Any],
        parents: list[int] | None,
        indices: list[int] | None,
    ) -> int:
        if not values:
            return 0
        if len(values) > MAX_BUNDLE:
            return self._send_in_pieces(emission, split, offset, values, parents, indices)
        lineages: list[int] | None = None
        if self._lineages:
            assert parents is not None
            lineages = child_lineages(parents, self._salt, indices)
        now_ns = self._clock()
        self._half.tick(now_ns)
        try:
            choices = self._half.choose_many(values)
        except CAUGHT as error:
            return self._send_routable(emission, split, offset, values, parents, indices, error)
        self._counters.choosing_ns += self._clock() - now_ns
        return self._dispose(emission, split, offset, values, lineages, choices)

    def _dispose(
        self,
        emission: int,
        split: int,
        offset: int,
        values: list[Any],
        lineages: list[int] | None,
        choices: Sequence[int],
    ) -> int:
        """Put each tuple where it was chosen to go: what goes to one task together, what is held by itself."""
        attached = self._take_attached() if self._half.attached else NOTHING
        if len(choices) == 1 and choices[0] != ALL:
            ack = self._new_id(64)
            if choices[0] < 0:
                held = (emission, split, offset, ack, lineages, values, None, None)
                self._join_line(held, choices[0], attached.get(0))
            else:
                said = [attached[0]] if attached else None
                lane = self._ways[choices[0]]
                lane.bundles.append((emission, split, offset, ack, lineages, values, self._origin, said))
            if self._half.outbox:
                self._post()
            return ack
        return self._deal_out(emission, split, offset, values, lineages, choices, attached)

    def _deal_out(
        self,
        emission: int,
        split: int,
        offset: int,
        values: list[Any],
        lineages: list[int] | None,
        choices: Sequence[int],
        attached: Mapping[int, Message],
    ) -> int:
        dealt: dict[int, list[int]] = {}
        acks = 0
        for position, choice in enumerate(choices):
            if choice <= HELD:
                ack = self._new_id(64)
                acks ^= ack
                named = None if lineages is None else [lineages[position]]
                held = (emission, split, offset, ack, named, [values[position]], None, None)
                self._join_line(held, choice, attached.get(position))
            else:
                for task in range(len(self.lanes)) if choice == ALL else (choice,):
                    dealt.setdefault(task, []).append(position)
        for task, places in dealt.items():
            ack = self._new_id(64)
            acks ^= ack
            some = [values[place] for place in places]
            named = None if lineages is None else [_name(lineages[place], choices[place], task) for place in places]
            said = [attached.get(place) for place in places] if attached else None
            self._ways[task].bundles.append((emission, split, offset, ack, named, some, self._origin, said))
        self._post()
        return acks

    def _release(self, bundle: Bundle, choice: int, message: Message | None) -> None:
        assert choice != ALL, "a tuple in line has one ack id, so it can go to one task only"
        said = None if message is None else [message]
        emission, split, offset, ack, lineages, values, _, _ = bundle
        self._ways[choice].bundles.append((emission, split, offset, ack, lineages, values, self._origin, said))

    # -- talking

    def hear(self, task: int, version: int, message: Message, said_ns: int | None = None) -> None:
        """A task of this edge has said something, under some membership, and at that time if it is known.

        It may have lain there for a while: to the half it happened when it was said.
        """
        if version != self.version:
            if version > self.version:
                self._early.append((version, task, message, said_ns))
            return
        now_ns = self._clock()
        chosen = self._half.hear(task, message, now_ns if said_ns is None else said_ns)
        heard_ns = self._clock()
        self._counters.feedback_ns += heard_ns - now_ns
        self._feedback_budget.spend(heard_ns - now_ns, now_ns)
        if released := list(chosen):
            self._counters.choosing_ns += self._clock() - heard_ns
            assert len(released) <= len(self.line), f"more released than held: {len(released)} of {len(self.line)}"
            attached = self._take_attached()
            for position, choice in enumerate(released):
                self._release(self.line.popleft(), choice, attached.get(position))
        if self._half.outbox:
            self._post()

    def _take_attached(self) -> dict[int, Message]:
        found = self._half.attached
        if not found:
            return {}
        attached = dict(found)
        found.clear()
        self._counters.feedback_messages += len(attached)
        return attached

    def _post(self) -> None:
        outbox = self._half.outbox
        if outbox:
            for task, message in outbox:
                self._ways[task].bundles.append((FEEDBACK, self.edge.index, self._sender, self.version, message))
            self._counters.feedback_messages += len(outbox)
            outbox.clear()


def _name(lineage: int, choice: int, task: int) -> int:
    """Where all tasks get a tuple, each copy has a lineage of its own."""
    return broadcast_lineages([lineage], task)[0] if choice == ALL else lineage
