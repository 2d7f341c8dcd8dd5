"""The feedback sender of a load-aware edge: asks the grouping for tasks, and holds the tuples that must wait for one.

A held tuple is a bundle already: its ack id is in the register of its emission. Only its task is still to be chosen.

With each version of the membership the grouping's chooser is replaced by a new one, which is asked about the held
tuples again: credits that were lost with a process or a link stay lost. Messages of other versions are ignored, and
those of later versions kept until then.
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
from tailrace.core.routing.router import MAX_BUNDLE, FeedbackLane, LaneEdge
from tailrace.metrics.counters import EdgeState, TaskCounters
from tailrace.policy.groupings.api import ALL, FIRST, HELD
from tailrace.policy.groupings.feedback import FeedbackChooser, Message, has_feedback

MAX_HELD = 256
"""Tuples held on one edge, beyond which the task is held back: as many as may wait in a lane."""

NOTHING: Mapping[int, Message] = {}


class FeedbackSender(LaneEdge):
    """An outgoing edge whose receiving tasks report to the sender.

    Law: every tuple gets its ack id in ``send``, and goes to a lane once: immediately, or later from the front of the
    held queue.
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
        self._lanes = tuple(lanes)
        self.held: deque[Bundle] = deque()
        self._sender = sender  # index of the sending task within its operator
        self._counters = counters
        self._feedback_budget = feedback_budget
        self._clock = clock
        self._rng = rng
        self._limit = limit
        self._early: list[tuple[int, int, Message, int | None]] = []  # of later versions of the membership
        self.version = 0
        self._origin: Origin = (edge.index, sender, 0)
        self._chooser = self._new_chooser()

    def _new_chooser(self) -> FeedbackChooser:
        grouping = self.edge.grouping
        assert has_feedback(grouping)
        return grouping.bind(len(self.lanes), self._rng)

    @property
    def full(self) -> bool:
        return len(self.held) >= self._limit

    def state(self) -> EdgeState:
        """For progress reports. Estimates are counted from the last version of the membership on."""
        estimated = self._chooser.estimated
        tuples, total_ns = (estimated.tuples, int(estimated.total_ns)) if estimated is not None else (0, 0)
        return EdgeState(self.edge.index, len(self.held), self._chooser.credits, tuples, total_ns)

    def bind(self, version: int) -> None:
        """Start again with a new chooser under a newer version of the membership."""
        self.version = version
        self._origin = (self.edge.index, self._sender, version)
        self._chooser = self._new_chooser()
        self._choose_for_held()
        early, self._early = self._early, []
        for belongs_to, task, message, sent_ns in early:
            self.hear(task, belongs_to, message, sent_ns)

    def _choose_for_held(self) -> None:
        held, self.held = self.held, deque()
        self._chooser.tick(self._clock())
        choices = self._chooser.choose_many([bundle[VALUES][0] for bundle in held])
        attached = self._take_attached()
        for position, (bundle, choice) in enumerate(zip(held, choices, strict=True)):
            if choice >= 0:
                self._release(bundle, choice, attached.get(position))
            else:
                self._hold(bundle, choice, attached.get(position))
        self._send_messages()

    def _hold(self, bundle: Bundle, choice: int, message: Message | None) -> None:
        """``choice`` is ``HELD``, or ``FIRST - task``: then the tuple held longest goes to that task."""
        self.held.append(bundle)
        if choice <= FIRST:
            self._release(self.held.popleft(), FIRST - choice, message)

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
        self._chooser.tick(now_ns)
        try:
            choices = self._chooser.choose_many(values)
        except CAUGHT as error:
            return self._send_routable(emission, split, offset, values, parents, indices, error)
        self._counters.choosing_ns += self._clock() - now_ns
        return self._place(emission, split, offset, values, lineages, choices)

    def _place(
        self,
        emission: int,
        split: int,
        offset: int,
        values: list[Any],
        lineages: list[int] | None,
        choices: Sequence[int],
    ) -> int:
        """Put each tuple where the grouping chose: tuples for one task in one bundle, each held tuple in its own."""
        attached = self._take_attached() if self._chooser.attached else NOTHING
        if len(choices) == 1 and choices[0] != ALL:
            ack = self._new_id(64)
            if choices[0] < 0:
                held = (emission, split, offset, ack, lineages, values, None, None)
                self._hold(held, choices[0], attached.get(0))
            else:
                messages = [attached[0]] if attached else None
                lane = self._lanes[choices[0]]
                lane.bundles.append((emission, split, offset, ack, lineages, values, self._origin, messages))
            if self._chooser.outbox:
                self._send_messages()
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
                self._hold(held, choice, attached.get(position))
            else:
                for task in range(len(self.lanes)) if choice == ALL else (choice,):
                    dealt.setdefault(task, []).append(position)
        for task, places in dealt.items():
            ack = self._new_id(64)
            acks ^= ack
            some = [values[place] for place in places]
            named = None if lineages is None else [_name(lineages[place], choices[place], task) for place in places]
            messages = [attached.get(place) for place in places] if attached else None
            self._lanes[task].bundles.append((emission, split, offset, ack, named, some, self._origin, messages))
        self._send_messages()
        return acks

    def _release(self, bundle: Bundle, choice: int, message: Message | None) -> None:
        assert choice != ALL, "a held tuple has one ack id, so it can go to one task only"
        messages = None if message is None else [message]
        emission, split, offset, ack, lineages, values, _, _ = bundle
        self._lanes[choice].bundles.append((emission, split, offset, ack, lineages, values, self._origin, messages))

    # -- messages

    def hear(self, task: int, version: int, message: Message, sent_ns: int | None = None) -> None:
        """A task of this edge has sent a message, under this version of the membership.

        ``sent_ns``: when it was sent, if that is known. The message may have waited since, and to the grouping it
        happened when it was sent.
        """
        if version != self.version:
            if version > self.version:
                self._early.append((version, task, message, sent_ns))
            return
        now_ns = self._clock()
        chosen = self._chooser.hear(task, message, now_ns if sent_ns is None else sent_ns)
        heard_ns = self._clock()
        self._counters.feedback_ns += heard_ns - now_ns
        self._feedback_budget.spend(heard_ns - now_ns, now_ns)
        if released := list(chosen):
            self._counters.choosing_ns += self._clock() - heard_ns
            assert len(released) <= len(self.held), f"more released than held: {len(released)} of {len(self.held)}"
            attached = self._take_attached()
            for position, choice in enumerate(released):
                self._release(self.held.popleft(), choice, attached.get(position))
        if self._chooser.outbox:
            self._send_messages()

    def _take_attached(self) -> dict[int, Message]:
        found = self._chooser.attached
        if not found:
            return {}
        attached = dict(found)
        found.clear()
        self._counters.feedback_messages += len(attached)
        return attached

    def _send_messages(self) -> None:
        outbox = self._chooser.outbox
        if outbox:
            for task, message in outbox:
                self._lanes[task].bundles.append((FEEDBACK, self.edge.index, self._sender, self.version, message))
            self._counters.feedback_messages += len(outbox)
            outbox.clear()


def _name(lineage: int, choice: int, task: int) -> int:
    """The lineage of one copy: where all tasks get a tuple, each copy has a lineage of its own."""
    return broadcast_lineages([lineage], task)[0] if choice == ALL else lineage
