"""A record of what a simulated run did, event by event, as text. It stays the same as long as the core does the same.

A journal names no class or module, and nothing in it depends on hash randomisation or on the order of a set. It
draws no random number and schedules no event.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import blake2b

DIGEST_BYTES = 4


class Journal:
    """Lines of JSON, each with the virtual time at which it was written."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.lines: list[str] = []
        self._clock = clock

    def note(self, what: str, *details: object) -> None:
        """Add a line. Details are numbers, strings, and tuples or lists of these; JSON refuses any other object."""
        self.lines.append(json.dumps((self._clock(), what, *details)))

    def digest(self) -> str:
        """A short hash of all lines."""
        return blake2b("\n".join(self.lines).encode(), digest_size=DIGEST_BYTES).hexdigest()
