"""The router turns what an operator emitted into bundles, one for each task that receives some of it.

Children of one bundle that go to one task are one bundle again, with one ack id. A bundle is a plain tuple, because
it is made for every tuple and hop (``tailrace.core.bundles``).
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
"""Tuples in one bundle. A call that emits more makes several: a receiver's queue is bounded in bundles, and what comes
of a bundle leaves when all of it has been run."""

PROOF = 16
"""Bundles whose keys are worked out even if there is only one task to send them to."""

LINEAGE_SHIFT = 33
"""The upper bits of a lineage pick the task: multiplication mixes upwards, so they are the best ones."""


Unroutable = Callable[[int, int, int, Any, int | None, BaseException], int]
"""(emission number, split index, offset, value, lineage, error) -> ack ids of what was sent instead."""


def _raise(emission: int, split: int, offset: int, value: Any, lineage: int | None, error: BaseException) -> int:
    raise error


class Lane:
    """Bundles on their way along one edge to one task. The runtime empties it."""

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
    """The same on a load-aware edge: tracked bundles, and notes in between."""

    __slots__ = ()

    bundles: list[Any]

    def drop_feedback(self) -> None:
        """There is nobody to hear them. Whoever comes will come with a new membership, and with it new halves."""
        self.bundles = [item for item in self.bundles if not is_feedback(item)]


class OutEdge(Protocol):
    """One outgoing edge of one task."""

    def send(
        self,
        emission: int,
        split: int,
        offset: int,
        values: list[Any],
        parents: list[int] | None,
        indices: list[int] | None,
    ) -> int:
        """Pass the values on. Returns the exclusive or of the ack ids they were given."""
        ...


class LaneEdge:
    """An edge that leads to other tasks, through lanes."""

    def __init__(self, edge: EdgePlan, lanes: Sequence[Lane], chooser: Chooser | None, rng: Random) -> None:
        self.edge = edge
        self.lanes = tuple(lanes)
        self._salt = edge.salt
        self._lineages = edge.lineages
        self._new_id: Callable[[int], int] = rng.getrandbits
        self._choose = self._by_lineage if edge.by_lineage else chooser.choose_many if chooser else None
        self.unroutable: Unroutable = _raise
        # One task needs no key, but a key that is wrong should not wait for a second task to be found out.
        self._unproven = PROOF if getattr(edge.grouping, "key", None) is not None else 0
        self._straight = len(lanes) == 1 and not self._unproven

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
        if self._straight:
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
        if self._unproven and len(self.lanes) == 1:
            self._unproven -= 1
            self._straight = not self._unproven
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
        """Some tuple has no key, say: send the others, and let the operator's ``on_error`` decide about that one."""
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
        """Two incarnations of a tuple must meet in one task of a committing sink."""
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
    """A shuffled edge of a source to several tasks: roots take turns, and a hedge goes elsewhere."""

    least_waiting: LeastWaiting | None = None
    """While roots are hedged by a rule that cancels. Without it a hedge goes to any other task."""

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
            else self._note(emission, self.least_waiting)
        )
        self.lanes[choice].bundles.append((emission, split, offset, ack, lineages, values, None, None))
        return ack

    def _note(self, emission: int, least_waiting: LeastWaiting) -> int:
        tasks = len(self.lanes)
        if is_hedge(emission):
            first, *hedges, _ = race_until(emission)
            choice = least_waiting.choose({turn_of(first, tasks), *map(least_waiting.task_of, hedges)})
        else:
            choice = turn_of(emission, tasks)
        least_waiting.sent(emission, choice)
        return choice


class DisjointHalvesEdge(LaneEdge):
    """A shuffled edge behind the first, that has at most one tuple of an emission: a hedge's goes to the other side."""

    disjoint_halves: DisjointHalves | None = None
    """While roots are hedged by a rule that cancels. Without it all tuples take turns."""

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
