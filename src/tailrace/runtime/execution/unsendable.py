"""Tuples that cannot leave a worker: they cannot be pickled, or are too large for a frame.

What becomes of such a tuple is up to the ``on_error`` of the operator that emitted it. The others of its bundle leave.
"""

from __future__ import annotations

from random import SystemRandom

from tailrace.core.bundles import ACK, EMISSION, SPLIT, VALUES, Bundle, divided, is_feedback, some_of, tuples_in
from tailrace.core.routing.router import FeedbackLane, Lane
from tailrace.core.tasks.base import Task
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
            if is_feedback(bundle):
                kept.append(bundle)
                whole += 1
                continue
            causes = [_why_not(value) for value in bundle[VALUES]]
            if not any(causes):
                kept.append(bundle)
                whole += 1
                continue
            for position, cause in enumerate(causes):
                if cause is not None:
                    self._report(lane, bundle, position, cause)
            good = [position for position, cause in enumerate(causes) if cause is None]
            if good:
                kept.append(some_of(bundle, good, bundle[ACK]))
            else:
                self._task.acknowledge(bundle[EMISSION], bundle[SPLIT], bundle[ACK])
        if isinstance(lane, FeedbackLane):
            self._services.renew()
        if whole == len(bundles):
            raise error
        return kept

    def halve(self, lane: Lane, bundles: list[Bundle], error: Exception) -> list[Bundle]:
        """Bundles that are too large for a frame: returns a part to try next, and puts the rest back into the lane.

        A single tuple that is too large is reported, and nothing is returned.
        """
        if len(bundles) == 1 and tuples_in(bundles) > 1:
            bundles = list(divided(bundles[0], tuples_in(bundles) // 2, self._new_id(64)))
        if len(bundles) > 1:
            half = len(bundles) // 2
            lane.bundles = bundles[half:] + lane.bundles
            return bundles[:half]
        (bundle,) = bundles
        self._report(lane, bundle, 0, error)
        self._task.acknowledge(bundle[EMISSION], bundle[SPLIT], bundle[ACK])
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


def _why_not(value: object) -> Exception | None:
    """Why a value cannot be sent; None if it can."""
    try:
        encode(value)
    except Exception as error:
        return error
    return None
