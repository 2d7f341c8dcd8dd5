"""What becomes of a tuple whose function raised: the operator's ``on_error`` decides."""

from __future__ import annotations

import json
import traceback
from typing import Any

from tailrace.errors import TailraceError, TaskError, shorten
from tailrace.topology import DeadLetter

CAUGHT = BaseException
"""What a user function may raise without taking the worker with it: anything. No signal raises in a worker's threads,
so what looks like one (``KeyboardInterrupt``, ``SystemExit``, ``asyncio.CancelledError``) is the function's own."""

_PACKAGE = __file__.rpartition("core")[0]
OUR_FOLDERS = tuple(_PACKAGE + folder for folder in ("core", "policy", "runtime"))
"""Frames from there tell a user nothing."""


def traceback_of(error: BaseException) -> str:
    """The user's traceback, without the frames of the engine; only the message where no others are left."""
    shown = traceback.TracebackException.from_exception(error)
    return "".join(_theirs(shown).format())


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
    """What an error says of itself: our own are whole sentences, others need the user's traceback."""
    return str(error) if isinstance(error, TailraceError) else traceback_of(error)


def task_error(operator: str, task: int, value: Any, error: BaseException) -> TaskError:
    return TaskError(operator, task, shorten(value), traceback_of(error))


def dead_letter(operator: str, task: int, value: Any, error: BaseException) -> DeadLetter:
    """What goes to the dead letters. Always made of JSON types, so that any sink can take it."""
    return {
        "operator": operator,
        "task": task,
        "error": traceback.format_exception_only(error)[-1].strip(),
        "value": _as_json(value),
        "traceback": traceback_of(error),
    }


def _as_json(value: Any) -> Any:
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return shorten(value)
