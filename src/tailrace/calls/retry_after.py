"""The exception that a function raises when a service asks it to come back later."""

from __future__ import annotations

from typing import Any

from tailrace.errors import OptionError, TailraceError, shorten
from tailrace.policy.numbers import is_number


class RetryAfter(TailraceError):
    """A function raises this when a service refuses a call for now, as HTTP does with 429 and 503.

    The call is made again after that time. Such attempts do not use up ``retries``. The limit of the call, if it has
    one, slows down.

    Args:
        seconds: how long the service wants to be left alone, 0 or more.
        reason: what the service said, for the error if it goes on refusing.

    Example:
        >>> def check(status: int) -> None:
        ...     if status == 429:
        ...         raise tr.RetryAfter(2.5, "too many requests")
        >>> check(429)
        Traceback (most recent call last):
        tailrace.calls.retry_after.RetryAfter: refused for now: retry_after_s=2.5 reason='too many requests'
    """

    def __init__(self, seconds: float, reason: str = "") -> None:
        if not is_number(seconds) or seconds < 0:
            raise OptionError(
                f"not a time: seconds={shorten(seconds)}: is it a number of seconds, zero or more, and not a date?"
            )
        super().__init__(seconds, reason)
        self.seconds = float(seconds)
        self.reason = reason

    def __str__(self) -> str:
        why = f" reason={shorten(self.reason)}" if self.reason else ""
        return f"refused for now: retry_after_s={self.seconds:g}{why}"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.seconds, self.reason)
