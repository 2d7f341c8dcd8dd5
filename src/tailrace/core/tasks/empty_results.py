"""Warns the user of an operator that returns None for each of its first tuples: its function has no ``return``, likely.

The check is one more outgoing edge of the operator, which removes itself after the first results. Later tuples cost
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tailrace.core.routing.router import OutEdge
from tailrace.core.tasks.stages import Wiring

Say = Callable[[str, str], None]
"""(topic, text): warns the user, once in a run for each topic."""

ENOUGH = 100
"""Number of results, all of them None, that are taken for a mistake."""


def say_nothing(topic: str, text: str) -> None:
    """Ignores the warning: for tasks outside a run."""


class EmptyResults(OutEdge):
    """An outgoing edge that leads to no task: it looks at the first results, and then removes itself."""

    def __init__(self, wiring: Wiring, say: Say) -> None:
        self._wiring = wiring
        self._say = say
        self._left = ENOUGH

    def send(
        self,
        emission: int,
        split: int,
        offset: int,
        values: list[Any],
        parents: list[int] | None,
        indices: list[int] | None,
    ) -> int:
        self._left -= len(values)
        something = any(value is not None for value in values)
        if something or self._left <= 0:
            wiring = self._wiring
            wiring.outs = tuple(out for out in wiring.outs if out is not self)
            if not something:
                self._say(
                    f"empty {wiring.operator}",
                    f"an operator has returned None for all of its first tuples: operator={wiring.operator} "
                    f"tuples={ENOUGH - self._left}: did you forget to return?",
                )
        return 0
