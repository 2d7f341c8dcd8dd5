"""Errors of one row, in words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tailrace.errors import TailraceError, message_of, shorten
from tailrace.spark.calls.values import Misfit


class CallFailed(TailraceError):
    """A call has failed for good, and its step has ``on_error="fail"``."""


def failed(
    function: str, row: int, names: Sequence[str], args: Sequence[Any], error: BaseException, attempts: int
) -> CallFailed:
    """The error that ends a query. ``args`` are shown by name."""
    shown = " ".join(
        f"{names[place] if place < len(names) else f'argument{place}'}={shorten(value)}"
        for place, value in enumerate(args)
    )
    tried = f" attempts={attempts}" if attempts else ""
    return CallFailed(
        f"call failed: function={function} row={row} {shown}{tried}: {in_words(error)}: "
        "did you mean on_error='column' or 'skip', or retries=…?"
    )


def in_words(error: BaseException) -> str:
    """An error in one line, for a column of errors."""
    text = " ".join(message_of(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def misfit(function: str, row: int, found: str, journal: Path | None = None) -> Misfit:
    """The error for a result that is not of the declared type. ``journal``: where it was found, if it was."""
    place, hint = f"function={function} row={row}", "does the function return what its schema says?"
    if journal is not None:
        place += f" journal={journal}"
        hint = "did the function return this before it was mended? Then use another folder, or delete this one"
    return Misfit(f"result does not fit: {found}; {place}: {hint}")
