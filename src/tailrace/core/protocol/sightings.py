"""How far roots have been seen in this worker, so that a drain can tell how far a source that died has got.

A worker notes what comes to it from others, and what its sinks have read back of their predecessors. It says so with
every membership that it acts on: from then on nothing comes from those who are out. So when all have said it, whatever
a dead source has sent to anybody is known, and whatever nobody knows of has died with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tailrace.core.bundles import EMISSION, FEEDBACK, OFFSET, SPLIT
from tailrace.core.protocol.sink_log import Mark


class Sightings:
    """By split, the offset behind the furthest root that was seen."""

    def __init__(self, guard: AbstractContextManager[Any] | None = None) -> None:
        self._guard = nullcontext() if guard is None else guard  # several threads take in bundles
        self._behind: dict[int, int] = {}

    def came(self, bundles: Sequence[Any]) -> None:
        """Bundles have come, perhaps with notes in between."""
        behind = self._behind
        with self._guard:
            for bundle in bundles:
                if bundle[EMISSION] != FEEDBACK and bundle[OFFSET] >= behind.get(bundle[SPLIT], 0):
                    behind[bundle[SPLIT]] = bundle[OFFSET] + 1

    def read_back(self, marks: Iterable[Mark]) -> None:
        """A sink's task has found these committed by its predecessors."""
        with self._guard:
            for split, offset, _ in marks:
                self._behind[split] = max(offset + 1, self._behind.get(split, 0))

    def so_far(self) -> dict[int, int]:
        with self._guard:
            return dict(self._behind)
