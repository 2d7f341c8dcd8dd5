"""What becomes of a tuple whose function raised: the operator's ``on_error`` decides."""

from __future__ import annotations

import json
import traceback
from typing import Any

from tailrace.errors import TaskError, shorten

CAUGHT = (Exception, SystemExit)
"""What a user function may raise without taking the worker with it."""

OUR_FRAMES = 1
"""Frames of ours above the user's in a traceback; they tell the user nothing."""


def traceback_of(error: BaseException) -> str:
    """The user's traceback, without the frames of the engine that called the user."""
    shown = error.__traceback__
    for _ in range(OUR_FRAMES):
        if shown is not None and shown.tb_next is not None:
            shown = shown.tb_next
    return "".join(traceback.format_exception(type(error), error, shown))


def task_error(operator: str, task: int, value: Any, error: BaseException) -> TaskError:
    return TaskError(operator, task, shorten(value), traceback_of(error))


def dead_letter(operator: str, task: int, value: Any, error: BaseException) -> dict[str, Any]:
    """What goes to the dead letters. Always made of JSON types, so that any sink can take it."""
    return {
        "operator": operator,
        "task": task,
        "error": f"{type(error).__name__}: {error}",
        "value": _as_json(value),
        "traceback": traceback_of(error),
    }


def _as_json(value: Any) -> Any:
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError, RecursionError):
        return shorten(value)
