"""Outgoing edges: they turn what an operator emits into bundles, one for each receiving task, and put them into lanes.

The results of one bundle that go to one task travel as one bundle again, with one ack id.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Protocol

from tailrace.core.bundles import Bundle, is_feedback
from tailrace.core.emissions import hedge_index, is_hedge, original, race_until, turn_of
from tailrace.core.failures import CAUGHT
from tailrace.core.plan.plan import EdgePlan
from tailrace.core.protocol.lineage import broadcast_lineages, child_lineages
from tailrace.policy.groupings.api import ALL, Chooser
from tailrace.policy.hedging.disjoint_halves import DisjointHalves
from tailrace.policy.hedging.least_waiting import LeastWaiting

MAX_BUNDLE = 64
"""The most tuples in one bundle. A call that emits more makes several bundles: a receiver's queue is bounded in
bundles, and the results of a bundle leave a task only when all its tuples have been run."""

KEY_TRIALS = 16
"""The first bundles of an edge have their keys computed even if there is only one task: a key function that fails
should fail in a test with one task too."""

LINEAGE_SHIFT = 33
"""The upper bits of a lineage choose the task. Multiplication mixes upwards, so the upper bits are the best mixed."""

Unroutable = Callable[[int, int, int, Any, int | None, BaseException], int]
"""(emission number, split index, offset, value, lineage, error) -> ack ids of the dead letters that were sent instead.

Decides about a tuple for which a grouping could not choose a task."""


def _raise(emission: int, split: int, offset: int, value: Any, lineage: int | None, error: BaseException) -> int:
    raise error


class Lane:
    """The bundles that wait to be sent along one edge to one task. The runtime empties it."""

    __slots__ = ("bundles", "edge", "target")

    def __init__(self, edge: int, target: int) -> None:
        self.edge = edge
        self.target = target  # task number
        self.bundles: list[Bundle] = []

    def take(self) -> list[Bundle]:
        taken, self.bundles = self.bundles, []
        return taken

    def take_first(self, most: int) -> list[Bundle]:
        taken, self.bundles = self.bundles[:most], self.bundles[most:]
        return taken


class FeedbackLane(Lane):
    """A lane of a load-aware edge: its bundles have an origin, and there are feedback messages among them."""

    __slots__ = ()

    bundles: list[Any]

    def drop_feedback(self) -> None:
        """Drop the feedback messages: the receiver's worker is gone. Its successor comes with a new version of the
        membership, and feedback starts again."""
        self.bundles = [item for item in self.bundles if not is_feedback(item)]


class OutEdge(Protocol):
    """One outgoing edge of one task. Every implementation inherits from this class."""

    def send(
        self,
        emission: int,
        split: int,
        offset: int,
        values: list[Any],
        parents: list[int] | None,
        indices: list[int] | None,
    ) -> int:
        """Pass the values on. Returns the exclusive or of the ack ids of all bundles made.

        ``parents``: the lineage of the input tuple of each value, or None if the edge needs none. ``indices``: the
        output index of each value within its call, or None if each is the only output of its call.
        """
        ...


class LaneEdge(OutEdge):
    """An edge to other tasks, with a lane for each of them. A grouping chooses the task of each tuple."""

    def __init__(self, edge: EdgePlan, lanes: Sequence[Lane], chooser: Chooser | None, rng: Random) -> None:
        self.edge = edge
        self.lanes = tuple(lanes)
        self._salt = edge.salt
        self._lineages = edge.lineages
        self._new_id: Callable[[int], int] = rng.getrandbits
        self._choose = self._by_lineage if edge.by_lineage else chooser.choose_many if chooser else None
        self.unroutable: Unroutable = _raise
        self._key_trials_left = KEY_TRIALS if getattr(edge.grouping, "key", None) is not None else 0
        self._one_lane = len(lanes) == 1 and not self._key_trials_left

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
        if self._one_lane:
            ack = self._new_id(64)
            if lineages is not None and self.edge.grouping.name == "broadcast":
                lineages = broadcast_lineages(lineages, 0)
            self.lanes[0].bundles.append((emission, split, offset, ack, lineages, values, None, None))
            return ack
        assert self._choose is not None
        try:
            choices = self._choose(lineages if self.edge.by_lineage else values)  # type: ignore[arg-type]
        except CAUGHT as error:
            return self._send_routable(emission, split, offset, values, parents, indices, error)
        if self._key_trials_left and len(self.lanes) == 1:
            self._key_trials_left -= 1
            self._one_lane = not self._key_trials_left
            choices = [0 if choice == ALL else choice for choice in choices]  # lineages stay those of one lane
        if len(values) == 1 and choices[0] != ALL:
            ack = self._new_id(64)
            self.lanes[choices[0]].bundles.append((emission, split, offset, ack, lineages, values, None, None))
            return ack
        return self._deal(emission, split, offset, values, lineages, choices)

    def _send_routable(
        self,
        emission: int,
        split: int,
        offset: int,
        values: list[Any],
        parents: list[int] | None,
        indices: list[int] | None,
        error: BaseException,
    ) -> int:
        """The grouping could not choose a task for a tuple, which may have no key: send the others, and let the
        operator's ``on_error`` decide about that one."""
        if len(values) == 1:
            return self.unroutable(emission, split, offset, values[0], parents[0] if parents else None, error)
        acks = 0
        for position in range(len(values)):
            one = slice(position, position + 1)
            acks ^= self.send(
                emission,
                split,
                offset,
                values[one],
                None if parents is None else parents[one],
                None if indices is None else indices[one],
            )
        return acks

    def _by_lineage(self, lineages: Sequence[int]) -> list[int]:
        """Choose by lineage: two emissions of a tuple must meet in the same task of a committing sink."""
        tasks = len(self.lanes)
        return [(lineage >> LINEAGE_SHIFT) % tasks for lineage in lineages]

    def _deal(
        self,
        emission: int,
        split: int,
        offset: int,
        values: list[Any],
        lineages: list[int] | None,
        choices: Sequence[int],
    ) -> int:
        if choices.count(ALL) == len(choices):
            return self._send_to_all(emission, split, offset, values, lineages)
        dealt: dict[int, list[Any]] = {}
        named: dict[int, list[int]] = {}
        for position, choice in enumerate(choices):
            for task in range(len(self.lanes)) if choice == ALL else (choice,):
                dealt.setdefault(task, []).append(values[position])
                if lineages is not None:
                    one = lineages[position : position + 1]
                    named.setdefault(task, []).extend(broadcast_lineages(one, task) if choice == ALL else one)
        acks = 0
        for task, some in dealt.items():
            ack = self._new_id(64)
            acks ^= ack
            self.lanes[task].bundles.append((emission, split, offset, ack, named.get(task), some, None, None))
        return acks

    def _send_to_all(
        self, emission: int, split: int, offset: int, values: list[Any], lineages: list[int] | None
    ) -> int:
        acks = 0
        for task, lane in enumerate(self.lanes):
            ack = self._new_id(64)
            acks ^= ack
            own = None if lineages is None else broadcast_lineages(lineages, task)
            lane.bundles.append((emission, split, offset, ack, own, values, None, None))
        return acks

    def _send_in_pieces(
        self,
        emission: int,
        split: int,
        offset: int,
        values: list[Any],
        parents: list[int] | None,
        indices: list[int] | None,
    ) -> int:
        acks = 0
        for low in range(0, len(values), MAX_BUNDLE):
            piece = slice(low, low + MAX_BUNDLE)
            acks ^= self.send(
                emission,
                split,
                offset,
                values[piece],
                None if parents is None else parents[piece],
                None if indices is None else indices[piece],
            )
        return acks


class RoundRobinEdge(LaneEdge):
    """A shuffled edge from a source to several tasks: roots take turns, and a hedge goes to another task than its
    root."""

    least_waiting: LeastWaiting | None = None
    """Chooses the tasks of hedges while the hedging rule cancels. Without it a hedge goes to any other task."""

    def send(
        self,
        emission: int,
        split: int,
        offset: int,
        values: list[Any],
        parents: list[int] | None,
        indices: list[int] | None,
    ) -> int:
        lineages: list[int] | None = None
        if self._lineages:
            assert parents is not None
            lineages = child_lineages(parents, self._salt, indices)
        ack = self._new_id(64)
        choice = (
            turn_of(emission, len(self.lanes))
            if self.least_waiting is None
            else self._choose_and_record(emission, self.least_waiting)
        )
        self.lanes[choice].bundles.append((emission, split, offset, ack, lineages, values, None, None))
        return ack

    def _choose_and_record(self, emission: int, least_waiting: LeastWaiting) -> int:
        tasks = len(self.lanes)
        if is_hedge(emission):
            first, *hedges, _ = race_until(emission)
            choice = least_waiting.choose({turn_of(first, tasks), *map(least_waiting.task_of, hedges)})
        else:
            choice = turn_of(emission, tasks)
        least_waiting.sent(emission, choice)
        return choice


class DisjointHalvesEdge(LaneEdge):
    """A shuffled edge further downstream, with at most one tuple of an emission: that of a hedge goes to the other half
    of the tasks."""

    disjoint_halves: DisjointHalves | None = None
    """Chooses the task while the hedging rule cancels. Without it all tuples take turns."""

    def separate_hedges(self, wanted: bool) -> None:
        if wanted != (self.disjoint_halves is not None):
            self.disjoint_halves = DisjointHalves(len(self.lanes), self._salt, self._new_id(32)) if wanted else None

    def send(
        self,
        emission: int,
        split: int,
        offset: int,
        values: list[Any],
        parents: list[int] | None,
        indices: list[int] | None,
    ) -> int:
        if self.disjoint_halves is None or not values:
            return super().send(emission, split, offset, values, parents, indices)
        lineages: list[int] | None = None
        if self._lineages:
            assert parents is not None
            lineages = child_lineages(parents, self._salt, indices)
        ack = self._new_id(64)
        choice = self.disjoint_halves.choose(original(emission), hedge_index(emission))
        self.lanes[choice].bundles.append((emission, split, offset, ack, lineages, values, None, None))
        return ack
