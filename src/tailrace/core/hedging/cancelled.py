"""Cancelled emissions: another incarnation of their root was complete first, so their tuples need not be run.

The numbers come from the ``HedgeRaces`` of source tasks, in this worker and in others. All tasks of a worker share one
set, and look up each bundle that they take if the set is not empty. The set may forget an emission: then some tuples
are run in vain. It must never hold one that was not cancelled.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

LIMIT = 4096
"""The most emissions to remember. At a thousand hedges a second these are four seconds' worth, and by then their tuples
have left the queues."""


class CancelledEmissions(dict[int, None]):
    """Emission numbers, the oldest first. One thread at a time may add; any thread may look."""

    def add(self, emissions: Iterable[int]) -> None:
        self.update(dict.fromkeys(emissions))
        for emission in list(islice(self, max(0, len(self) - LIMIT))):
            self.pop(emission, None)
