"""Tuples that cannot leave a worker: they cannot be pickled, or are too large for a frame.

What becomes of such a tuple is up to the ``on_error`` of the operator that emitted it. The others of its bundle leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import SystemRandom
from typing import Any, cast

from tailrace.core.queues.shared import divided
from tailrace.core.routing.router import NOTE, Bundle, FeedbackLane, Lane, Origin
from tailrace.core.tasks.base import Task
from tailrace.policy.groupings.feedback import Message
from tailrace.runtime.execution.ports import WorkerServices
from tailrace.runtime.links.frames import encode


class Unsendable:
    """Deals with them for one unit. Used by the thread that runs it."""

    def __init__(self, task: Task, services: WorkerServices) -> None:
        self._task = task
        self._services = services
        self._new_id = SystemRandom().getrandbits  # for the parts of a bundle, which is rarely divided

    def without(self, lane: Lane, bundles: list[Bundle], error: Exception) -> list[Bundle]:
        """The bundles without tuples that cannot be pickled. Raises ``error`` if each one can be pickled alone."""
        kept: list[Bundle] = []
        whole = 0
        for bundle in bundles:
            if len(bundle) == NOTE:
                kept.append(bundle)
                whole += 1
                continue
            emission, split, offset, ack, lineages, values, *tracks = cast("tuple[Any, ...]", bundle)
            causes = [_why_not(value) for value in values]
            if not any(causes):
                kept.append(bundle)
                whole += 1
                continue
            for position, cause in enumerate(causes):
                if cause is not None:
                    self._report(lane, bundle, position, cause)
            good = [position for position, cause in enumerate(causes) if cause is None]
            if good:
                named = None if lineages is None else [lineages[position] for position in good]
                some = (emission, split, offset, ack, named, [values[position] for position in good])
                kept.append(some if not tracks else _tracked(some, good, *tracks))
            else:
                self._task.acknowledge(emission, split, ack)
        if isinstance(lane, FeedbackLane):
            self._services.renew()
        if whole == len(bundles):
            raise error
        return kept

    def halve(self, lane: Lane, bundles: list[Bundle], error: Exception) -> list[Bundle]:
        """Bundles that are too large for a frame: returns a part to try next, and puts the rest back into the lane.

        A single tuple that is too large is reported, and nothing is returned.
        """
        if len(bundles) == 1 and len(bundles[0][5]) > 1:
            bundles = list(divided(bundles[0], len(bundles[0][5]) // 2, self._new_id(64)))
        if len(bundles) > 1:
            half = len(bundles) // 2
            lane.bundles = bundles[half:] + lane.bundles
            return bundles[:half]
        emission, split, _, ack, _, _ = bundles[0][:6]
        self._report(lane, bundles[0], 0, error)
        self._task.acknowledge(emission, split, ack)
        if isinstance(lane, FeedbackLane):
            self._services.renew()
        return []

    def _report(self, lane: Lane, bundle: Bundle, position: int, error: Exception) -> None:
        """Report a tuple once: for an edge that broadcasts, the first lane that leaves the worker does."""
        if self._task.plan.edges[lane.edge].grouping.name == "broadcast":
            lanes = (one for one in self._task.lanes if one.edge == lane.edge)
            away = (one for one in lanes if self._services.mailbox_of(one.target) is None)
            if next(away, lane) is not lane:
                return
        self._task.unsendable(lane.edge, bundle, position, error)


def _tracked(bundle: Bundle, good: list[int], origin: Origin, said: Sequence[Message | None] | None) -> Any:
    """A bundle on a load-aware edge of which only some tuples can be sent."""
    return (*bundle, origin, None if said is None else [said[position] for position in good])


def _why_not(value: object) -> Exception | None:
    """Why a value cannot be sent; None if it can."""
    try:
        encode(value)
    except Exception as error:
        return error
    return None
