"""Limits of one name are one limit, and must be declared alike."""

from __future__ import annotations

from tailrace.calls.limit import Limit
from tailrace.errors import OptionError


def describe(limit: Limit) -> str:
    """The numbers of a limit as they were declared."""
    numbers = {"per_s": limit.per_s, "per_minute": limit.per_minute, "concurrency": limit.concurrency}
    return ", ".join(f"{name}={value:g}" for name, value in numbers.items() if value is not None)


def alike(first: Limit, second: Limit) -> bool:
    """Whether both are the same limit. Functions are not compared: those of two processes never are equal."""
    numbers = [(limit.per_s, limit.per_minute, limit.concurrency) for limit in (first, second)]
    return numbers[0] == numbers[1]


def check_alike(first: Limit, second: Limit) -> None:
    """Raise OptionError if two limits of one name differ."""
    if first.name == second.name and not alike(first, second):
        raise OptionError(
            f"two limits of one name: limit={first.name} first=({describe(first)}) second=({describe(second)}): "
            "did you mean two names, or one tr.limit(…) for both?"
        )


def divided(limit: Limit, tasks: int) -> Limit:
    """The part that one of so many tasks may use if they cannot share the limit."""
    per_s = None if limit.per_s is None else limit.per_s / tasks
    per_minute = None if limit.per_minute is None else limit.per_minute / tasks
    concurrency = None if limit.concurrency is None else max(1, limit.concurrency // tasks)
    return Limit(limit.name, per_s, per_minute, concurrency, limit.cost, limit.settle)
