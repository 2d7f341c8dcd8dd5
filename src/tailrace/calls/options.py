"""The options of everything that calls out: an operator of a topology, a column, a step of a DataFrame."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from os import PathLike, fspath
from typing import Any, Literal, get_args

from tailrace.calls.keywords import answers_unknown
from tailrace.calls.limit import Limit
from tailrace.errors import OptionError, did_you_mean, refuse_uri, shorten
from tailrace.policy.numbers import is_number, is_whole

CallErrorAction = Literal["fail", "skip", "dead_letter", "column"]
"""The fate of a tuple or row whose call has failed for good."""

RetryOn = type[BaseException] | tuple[type[BaseException], ...] | Callable[[BaseException], bool]

DEFAULT_CONCURRENCY = 64
"""Calls that one task has under way: enough to hide 10 ms of waiting at 6,000 calls/s."""


@dataclass(frozen=True, kw_only=True)
class Calls:
    """How calls are made: how many at once, how long each may take, what follows an error, and what is kept.

    The same options hold for an operator of a topology, ``stream.map(…, calls=…)``, and for a DataFrame, ``tr.udf`` and
    ``tr.map_rows``. They are checked here, where they are declared.

    Args:
        concurrency: calls that one task has under way at once.
        timeout_s: seconds that one attempt may take. ``None``: no limit. A coroutine is cancelled. A plain function
            cannot be: its result is dropped, and its thread is counted until it returns.
        retries: attempts after the first, for errors that ``retry_on`` accepts.
        backoff_s: seconds before the first retry, at most. Each further retry may wait twice as long; the time is drawn
            at random between zero and that, so that calls that failed together do not return together.
        max_backoff_s: the most seconds before a retry.
        retry_on: the exception types that are worth another attempt, or a function of the exception that says whether.
            A timeout is a ``TimeoutError``. ``RetryAfter`` is always retried.
        hedge: whether a call that is late by the standard of recent ones is made once more; the first answer counts.
            Hedges are at most one call in twenty, and are not made when the limit has no slack.
        limit: a limit that calls keep, shared with all other tasks. See ``tr.limit``.
        journal: a folder in which results are kept, so that a call is not made again when its tuple or row comes again.
            All workers must see it, on a disk or a network file system. A function of another name or schema does not
            find them. An edited one does: use another folder, or delete it, when answers should be new.
        journal_key: for a DataFrame, the column that identifies a call in the journal. A row in which it is null is
            called, and its result not kept. In a topology the place of the tuple in the source identifies a call.
        keep: whether results stay in the journal for good. ``False`` drops them once they are durable downstream.
        on_error: what follows when a call has failed for good. ``"fail"`` ends the run or the query with the error.
            ``"skip"`` drops the tuple or row; in a column it gives null. ``"dead_letter"`` is for topologies, and sends
            the tuple to ``stream.dead_letters``. ``"column"`` is for DataFrames, and gives a struct of value, error and
            attempts.

    Example:
        >>> careful = tr.Calls(concurrency=16, timeout_s=2, retries=3, limit=tr.limit("geocoder", per_s=50))
        >>> careful.retries
        3
        >>> tr.Calls(timeout_s=0)
        Traceback (most recent call last):
        tailrace.errors.OptionError: not a time: timeout_s=0: is it a number of seconds above zero, or None?
    """

    concurrency: int = DEFAULT_CONCURRENCY
    timeout_s: float | None = None
    retries: int = 0
    backoff_s: float = 0.5
    max_backoff_s: float = 30.0
    retry_on: RetryOn = Exception
    hedge: bool = False
    limit: Limit | None = None
    journal: str | PathLike[str] | None = None
    journal_key: str | None = None
    keep: bool = False
    on_error: CallErrorAction = "fail"

    def __post_init__(self) -> None:
        if not (is_whole(self.concurrency) and self.concurrency >= 1):
            raise OptionError(
                f"concurrency is not a positive integer: concurrency={shorten(self.concurrency)}: "
                "is it computed from something that can be zero or a fraction?"
            )
        if self.timeout_s is not None and not (is_number(self.timeout_s) and self.timeout_s > 0):
            raise OptionError(
                f"not a time: timeout_s={shorten(self.timeout_s)}: is it a number of seconds above zero, or None?"
            )
        if not (is_whole(self.retries) and self.retries >= 0):
            raise OptionError(f"not a count: retries={shorten(self.retries)}: is it an integer, zero or more?")
        for option, seconds in (("backoff_s", self.backoff_s), ("max_backoff_s", self.max_backoff_s)):
            if not (is_number(seconds) and seconds >= 0):
                raise OptionError(f"not a time: {option}={shorten(seconds)}: is it a number of seconds, zero or more?")
        self._check_retry_on()
        for option, flag in (("hedge", self.hedge), ("keep", self.keep)):
            if not isinstance(flag, bool):
                raise OptionError(f"{option} is neither True nor False: {option}={shorten(flag)}: did you mix two up?")
        if self.limit is not None and not isinstance(self.limit, Limit):
            raise OptionError(f"not a limit: limit={shorten(self.limit)}: did you mean tr.limit('name', per_s=…)?")
        self._check_journal()
        if self.on_error not in get_args(CallErrorAction):
            hint = did_you_mean(self.on_error, get_args(CallErrorAction), "{!r}")
            raise OptionError(f"unknown on_error: on_error={shorten(self.on_error)}: {hint}")

    def _check_retry_on(self) -> None:
        types: Any = self.retry_on if isinstance(self.retry_on, tuple) else (self.retry_on,)
        if all(isinstance(one, type) and issubclass(one, BaseException) for one in types):
            return
        if isinstance(self.retry_on, type | tuple) or not callable(self.retry_on):
            raise OptionError(
                f"not exception types: retry_on={shorten(self.retry_on)}: "
                "is it one exception type, a tuple of them, or a function of an exception?"
            )

    def _check_journal(self) -> None:
        if self.journal is None:
            for option, given in (("journal_key", self.journal_key is not None), ("keep", self.keep)):
                if given:
                    raise OptionError(f"{option} without a journal: did you forget journal='folder'?")
            return
        if not isinstance(self.journal, str | PathLike) or not fspath(self.journal):
            raise OptionError(f"not a folder: journal={shorten(self.journal)}: is it a path?")
        refuse_uri("journal", self.journal)
        if self.journal_key is not None and not (isinstance(self.journal_key, str) and self.journal_key):
            raise OptionError(f"not a column name: journal_key={shorten(self.journal_key)}: is it one name?")


OPTIONS = frozenset(field.name for field in fields(Calls))
"""The names of all options of calls."""

Calls.__init__ = answers_unknown("tr.Calls")(Calls.__init__)  # type: ignore[method-assign]
