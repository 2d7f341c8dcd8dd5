"""An operator that makes None of every tuple has most likely forgotten to return.

The first results tell. They are looked at on their way out, as if there were one more edge, which then removes itself:
a run pays for it with its first tuples only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tailrace.core.tasks.stages import Wiring

Say = Callable[[str, str], None]
"""(topic, text): what the user should hear once in a run."""

ENOUGH = 100
"""Results that are all None, and no accident."""


def say_nothing(topic: str, text: str) -> None:
    """To whom nobody listens."""


class EmptyResults:
    """An edge that leads nowhere."""

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
