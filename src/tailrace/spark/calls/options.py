"""Options of calls that a DataFrame cannot have, or that do not fit it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tailrace.calls import Calls
from tailrace.errors import OptionError, did_you_mean, shorten


def check_calls(calls: Any) -> Calls | None:
    """Raise OptionError for options that make sense in a topology only."""
    if calls is None:
        return None
    if not isinstance(calls, Calls):
        raise OptionError(f"not options of calls: calls={shorten(calls)}: did you mean tr.Calls(concurrency=…)?")
    if calls.on_error == "dead_letter":
        raise OptionError("a DataFrame has no dead letters: on_error='dead_letter': did you mean 'column'?")
    if calls.journal is not None and calls.journal_key is None:
        raise OptionError(
            "nothing identifies a call in the journal: journal_key=None: which column is unique to a call?"
        )
    return calls


def check_journal_key(name: str, calls: Calls, columns: Sequence[str]) -> None:
    """Raise OptionError if the column that identifies a call is none of the input's."""
    key = calls.journal_key
    if key is not None and key not in columns:
        raise OptionError(f"journal_key is no column: function={name} journal_key={key}: {did_you_mean(key, columns)}")
