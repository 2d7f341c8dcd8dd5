"""Failures of user functions: the errors, tracebacks and dead letters that are made of them."""

from __future__ import annotations

import json
import traceback
from typing import Any

from tailrace.errors import LONGEST_MESSAGE, TailraceError, TaskError, cut, shorten
from tailrace.topology import DeadLetter

CAUGHT = BaseException
"""Calls of user functions catch everything. Signals raise nothing in the threads of a worker, so an exception
that looks like one (``KeyboardInterrupt``, ``SystemExit``, ``asyncio.CancelledError``) is the function's own."""

_PACKAGE = __file__.rpartition("core")[0]
OUR_FOLDERS = tuple(_PACKAGE + folder for folder in ("core", "policy", "runtime"))
"""Frames of files in these folders are left out of tracebacks: they tell a user nothing."""


def traceback_of(error: BaseException) -> str:
    """The traceback without the frames of the engine. Only the message, if there are no other frames.

    A long message is cut. One whose ``__str__`` raises is replaced by Python's own words for that.
    """
    shown = traceback.TracebackException.from_exception(error)
    return "".join(map(_cut, _theirs(shown).format()))


def _theirs(shown: traceback.TracebackException) -> traceback.TracebackException:
    shown.stack = traceback.StackSummary.from_list(
        [frame for frame in shown.stack if not frame.filename.startswith(OUR_FOLDERS)]
    )
    for chained in ("__cause__", "__context__"):
        earlier = getattr(shown, chained)
        if earlier is not None:
            setattr(shown, chained, _theirs(earlier) if _has_user_frames(earlier) else None)
    return shown


def _has_user_frames(shown: traceback.TracebackException) -> bool:
    return any(not frame.filename.startswith(OUR_FOLDERS) for frame in shown.stack)


def told_by(error: BaseException) -> str:
    """The text of an error: the message of one of Tailrace's own, the traceback of any other."""
    return str(error) if isinstance(error, TailraceError) else traceback_of(error)


def task_error(operator: str, task: int, value: Any, error: BaseException) -> TaskError:
    """The error that ends a run when a user's function has raised ``error`` for ``value``."""
    return TaskError(operator, task, shorten(value), traceback_of(error))


def dead_letter(operator: str, task: int, value: Any, error: BaseException) -> DeadLetter:
    """The dead letter of a tuple, made of JSON types so that any sink can write it."""
    return {
        "operator": operator,
        "task": task,
        "error": _in_one_line(error),
        "value": _as_json(value),
        "traceback": traceback_of(error),
    }


def _in_one_line(error: BaseException) -> str:
    """Type and message, and its notes in brackets, such as how many attempts were made."""
    shown = traceback.TracebackException.from_exception(error, limit=0)
    notes, shown.__notes__ = shown.__notes__, None
    *_, line = map(_cut, shown.format_exception_only())
    return f"{line.strip()} ({'; '.join(map(str, notes))})" if notes else line.strip()


def _cut(part: str) -> str:
    """A part of a traceback, such as the message, which ends with a line break."""
    return part if len(part) <= LONGEST_MESSAGE else f"{cut(part.rstrip())}\n"


def _as_json(value: Any) -> Any:
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return shorten(value)
