"""The deaths of a worker: whether it dies of the same cause again and again, and what the error says if it does."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

TOO_LATE = "it did not start in time"
SILENCE = "no sign of life"
BROKEN_CONNECTION = "its connection broke"
KILLED = "killed by signal"
"""How the reason begins if a process was killed. The next process may well live, also at the first start."""

_CAUSES = {
    TOO_LATE: "are there enough free slots, and can it reach the driver?",
    SILENCE: "does a function hold the interpreter for longer than heartbeat_timeout_s?",
    BROKEN_CONNECTION: "does something else use its port, or was a message too large?",
    "exit code 4": "does another run write to the same output?",  # a sink was fenced
    "exit code 5": "can it reach the driver?",  # it got no messages of the driver for long, or could not send any
    "its connection ended": "does a tuple crash it, or is the way to the driver cut?",
}
_A_TUPLE = "does a tuple crash it?"
MOST_NAMED = 3


@dataclass
class Deaths:
    """The deaths of one worker, over all its epochs. Prefixes are offsets by split index."""

    in_a_row: int = 0  # without progress in between
    total: int = 0
    prefixes: Mapping[int, int] = field(default_factory=dict)  # at the last death

    def held_back(self, prefixes: Mapping[int, int], quiet: Container[int]) -> list[int]:
        """Splits whose prefix has not moved since the last death, although roots of them are pending.

        A tuple that kills its worker holds its split back. A split that is finished, or has nothing new, is ``quiet``
        and not held back.
        """
        return [split for split, offset in self.prefixes.items() if prefixes[split] <= offset and split not in quiet]

    def any_moved(self, prefixes: Mapping[int, int]) -> bool:
        """Whether any prefix has moved since the last death. That none is held back does not imply it: there may be
        nothing to do."""
        return any(prefixes[split] > offset for split, offset in self.prefixes.items())

    def count(self, prefixes: Mapping[int, int], forgive: bool) -> None:
        """The worker has died once more. ``forgive``: not of the cause of earlier deaths, which no longer count."""
        self.in_a_row = 1 if forgive else self.in_a_row + 1
        self.total += 1
        self.prefixes = prefixes


def keeps_dying(
    worker: int, deaths: int, why: str, operators: Sequence[str], held_back: Sequence[tuple[str, int]]
) -> str:
    """The text of the error.

    ``held_back``: the splits whose prefix has not moved since, each with the offset of the record that must be durable
    next. A tuple that kills its worker is one of these records, or was made of one.
    """
    cause = next((cause for start, cause in _CAUSES.items() if why.startswith(start)), _A_TUPLE)
    words = [f"a worker keeps dying: worker={worker} deaths={deaths} last={why!r}"]
    if operators:
        words.append(f"operators={', '.join(operators)}")
    if held_back and "tuple" in cause:
        named = ", ".join(f"{split} offset {offset}" for split, offset in held_back[:MOST_NAMED])
        rest = len(held_back) - MOST_NAMED
        words.append(f"pending={named}{f' and {rest} more' if rest > 0 else ''}")
    return f"{' '.join(words)}; {cause}"
