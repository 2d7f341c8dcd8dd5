"""A limit as a user declares it. It is a value: workers and tasks find the limit itself on the driver, by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tailrace.calls.keywords import answers_unknown
from tailrace.errors import OptionError, shorten
from tailrace.policy.numbers import is_number, is_whole

_NAME = re.compile(r"\w[\w.-]{0,99}")


@dataclass(frozen=True)
class Limit:
    """A limit on calls, shared by all workers of a run and all tasks of a query. ``tr.limit(…)`` makes one."""

    name: str
    per_s: float | None = None
    per_minute: float | None = None
    concurrency: int | None = None
    cost: Callable[..., float] | None = None
    settle: Callable[..., float] | None = None
    tasks: int | None = None


@answers_unknown("tr.limit")
def limit(
    name: str,
    *,
    per_s: float | None = None,
    per_minute: float | None = None,
    concurrency: int | None = None,
    cost: Callable[..., float] | None = None,
    settle: Callable[..., float] | None = None,
    tasks: int | None = None,
) -> Limit:
    """Declare a limit that all workers of a run, and all tasks of a query, keep together.

    Limits of one name on one driver are one limit. It starts slowly, slows down when calls raise ``RetryAfter``, and
    recovers step by step.

    Args:
        name: what identifies the limit on the driver, 1 to 100 letters, digits, ``_``, ``-`` or ``.``.
        per_s: the most calls a second; with ``cost``, the most units of cost.
        per_minute: the most calls, or units, a minute. They are spread evenly over the minute.
        concurrency: the most calls under way at once, in all processes together.
        cost: a function of the arguments of a call that says how many units it will use. Without it each uses one.
        settle: a function of the result, then the arguments, that says how many units the call has really used, such
            as the tokens that a model reports. The difference to ``cost`` is given back or charged.
        tasks: for Spark Connect, where tasks cannot share the limit: how many run at once, those of all steps and
            queries that use it counted together. Each keeps its part. Without it, the slots that Spark's settings tell.

    Example:
        >>> tr.limit("geocoder", per_s=50, concurrency=8).per_s
        50
        >>> tr.limit("model", per_minute=90_000, cost=lambda prompt: len(prompt) / 4).name
        'model'
    """
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise OptionError(
            f"not a valid limit name: name={shorten(name)}: "
            "is it 1 to 100 letters, digits, '_', '-' or '.', not beginning with '-' or '.'?"
        )
    for option, rate in (("per_s", per_s), ("per_minute", per_minute)):
        if rate is not None and not (is_number(rate) and rate > 0):
            raise OptionError(f"not a rate: limit={name} {option}={shorten(rate)}: is it a number above zero?")
    if concurrency is not None and not (is_whole(concurrency) and concurrency >= 1):
        raise OptionError(
            f"concurrency is not a positive integer: limit={name} concurrency={shorten(concurrency)}: "
            "is it computed from something that can be zero or a fraction?"
        )
    if per_s is None and per_minute is None and concurrency is None:
        raise OptionError(f"a limit of nothing: limit={name}: did you forget per_s=…, per_minute=… or concurrency=…?")
    for option, function in (("cost", cost), ("settle", settle)):
        if function is not None and not callable(function):
            raise OptionError(
                f"{option} is not a function: limit={name} {option}={shorten(function)}: did you call it already?"
            )
    if cost is not None and per_s is None and per_minute is None:
        raise OptionError(f"cost without a rate: limit={name}: did you forget per_s=… or per_minute=…?")
    if settle is not None and cost is None:
        raise OptionError(f"settle without cost: limit={name}: did you forget cost=…, what a call uses at first?")
    if tasks is not None and not (is_whole(tasks) and tasks >= 1):
        raise OptionError(
            f"tasks is not a positive integer: limit={name} tasks={shorten(tasks)}: is it how many run at once?"
        )
    return Limit(name, per_s, per_minute, concurrency, cost, settle, tasks)
