"""Open bundles: bundles that a deferred task has taken and not finished, with a call for each of their tuples."""

from __future__ import annotations

from typing import Any

from tailrace.core.bundles import Origin
from tailrace.core.tasks.base import Task
from tailrace.policy.groupings.feedback import Message


class OpenBundle:
    """A bundle whose tuples are finished one by one. The task acknowledges it with the last of them."""

    __slots__ = ("chosen", "emission", "ids", "left", "offset", "origin", "split")

    def __init__(
        self, emission: int, split: int, offset: int, ack: int, left: int, origin: Origin | None = None
    ) -> None:
        self.emission = emission
        self.split = split
        self.offset = offset
        self.ids = ack  # its own ack id, exclusive-or those of its children so far
        self.left = left  # tuples that are not finished
        self.origin = origin
        self.chosen: Task | None = None  # the task that the sender chose, where several tasks draw from one queue


class Call:
    """One tuple of an open bundle."""

    __slots__ = ("attached", "bundle", "lineage", "started_ns", "value")

    def __init__(self, bundle: OpenBundle, value: Any, lineage: int | None) -> None:
        self.bundle = bundle
        self.value = value
        self.lineage = lineage
        self.started_ns = 0
        self.attached: Message | None = None
