"""Emissions of which nothing is worth running any more: another incarnation of their root was complete first.

All tasks of a worker share one set and look into it when they take a bundle, if there is anything in it. It may forget,
and then a tuple is run in vain; it may not make anything up.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

LIMIT = 4096
"""Emissions. At a thousand hedges a second, what was cancelled four seconds ago has left the queues."""


class CancelledEmissions(dict[int, None]):
    """Emission numbers, the oldest first. One thread at a time may add; any may look."""

    def add(self, emissions: Iterable[int]) -> None:
        self.update(dict.fromkeys(emissions))
        for emission in list(islice(self, max(0, len(self) - LIMIT))):
            self.pop(emission, None)
