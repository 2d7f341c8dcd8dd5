"""Sightings: how far the roots of each split have been seen in this worker.

A drain needs them to know how far a source task that died had read. A worker records what comes from other workers, and
what its sinks have read back of their predecessors. It reports that with every version of the membership that it acts
on: from then on nothing comes from workers that are out. When all workers have reported, everything that a dead source
has sent to any worker is known, and anything else was lost with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tailrace.core.bundles import EMISSION, FEEDBACK, OFFSET, SPLIT
from tailrace.core.protocol.sink_log import Mark


class Sightings:
    """By split, the offset after the furthest root that was seen."""

    def __init__(self, guard: AbstractContextManager[Any] | None = None) -> None:
        self._guard = (
            nullcontext() if guard is None else guard
        )  # held during each call: several threads take in bundles
        self._reach: dict[int, int] = {}

    def came(self, bundles: Sequence[Any]) -> None:
        """Bundles have come from another worker. There may be feedback messages among them."""
        reach = self._reach
        with self._guard:
            for bundle in bundles:
                if bundle[EMISSION] != FEEDBACK and bundle[OFFSET] >= reach.get(bundle[SPLIT], 0):
                    reach[bundle[SPLIT]] = bundle[OFFSET] + 1

    def read_back(self, marks: Iterable[Mark]) -> None:
        """A sink task has found these committed by its predecessors."""
        with self._guard:
            for split, offset, _ in marks:
                self._reach[split] = max(offset + 1, self._reach.get(split, 0))

    def so_far(self) -> dict[int, int]:
        with self._guard:
            return dict(self._reach)
