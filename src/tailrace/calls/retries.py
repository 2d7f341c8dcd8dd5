"""Decides what follows a failed attempt of a call: another one, and when, or the end.

- An error that ``retry_on`` accepts is followed by another attempt while ``retries`` last. The wait before it is drawn
  between zero and a bound that doubles from ``backoff_s`` to ``max_backoff_s`` (full jitter), so that calls that failed
  together do not return together.
- ``RetryAfter`` says that the service is there and wants to be left alone. It uses up no retries. The wait is what the
  service asks for, and a jitter on top by the same rule. ``MOST_REFUSALS`` in a row are the end.
"""

from __future__ import annotations

from random import Random

from tailrace.calls.options import Calls
from tailrace.calls.retry_after import RetryAfter

MOST_REFUSALS = 20
"""Refusals of one call in a row. With the default back-off they take about four minutes, besides what the service asks
for: a service that has refused one call for so long will not take it soon."""

MOST_DOUBLINGS = 60
"""Doublings of the back-off. More gain nothing, and after a thousand a float overflows."""


class Retries:
    """The decisions about one call.

    Law: ``wait_s`` allows at most ``retries`` attempts after errors that are no refusals, and at most
    ``MOST_REFUSALS`` in a row after refusals. A wait after an error is at most ``max_backoff_s``; one after a refusal
    is at least what the service asked for.
    """

    __slots__ = ("_calls", "_errors", "_refusals", "_rng")

    def __init__(self, calls: Calls, rng: Random) -> None:
        self._calls = calls
        self._rng = rng
        self._errors = 0
        self._refusals = 0  # in a row

    def wait_s(self, error: BaseException) -> float | None:
        """Seconds until the next attempt after one has raised ``error``. ``None``: the call has failed for good."""
        if isinstance(error, RetryAfter):
            self._refusals += 1
            return None if self._refusals > MOST_REFUSALS else error.seconds + self._jitter_s(self._refusals - 1)
        self._refusals = 0
        self._errors += 1
        if self._errors > self._calls.retries or not self._worth_another(error):
            return None
        return self._jitter_s(self._errors - 1)

    def _worth_another(self, error: BaseException) -> bool:
        rule = self._calls.retry_on
        if isinstance(rule, type | tuple):
            return isinstance(error, rule)
        return bool(rule(error))

    def _jitter_s(self, doublings: int) -> float:
        bound_s = self._calls.backoff_s * 2.0 ** min(doublings, MOST_DOUBLINGS)
        return self._rng.uniform(0.0, min(self._calls.max_backoff_s, bound_s))
