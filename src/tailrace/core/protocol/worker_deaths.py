"""The error message about a worker that keeps dying: what runs there, the likely cause, and what to look at first."""

from __future__ import annotations

from collections.abc import Sequence

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
