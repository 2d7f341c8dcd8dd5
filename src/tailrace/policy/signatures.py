"""Checks whether a function can be called as it will be, when it is declared instead of at the first tuple."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

LONGEST = 200
"""Most characters of a signature that an error shows."""


def misfit(function: Callable[..., Any], arguments: int) -> str | None:
    """The signature of a function if it cannot take this number of positional arguments.

    ``None`` if it can, or if it has no signature, like many builtins.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return _misfit_of_partial(function)
    try:
        signature.bind(*[None] * arguments)
    except TypeError:
        return _text(signature)
    return None


def _misfit_of_partial(function: Any) -> str | None:
    """``inspect`` finds no signature of a partial whose own arguments do not fit."""
    if not isinstance(function, partial):
        return None
    try:
        return _text(inspect.signature(function.func))
    except (TypeError, ValueError):
        return None


def _text(signature: inspect.Signature) -> str:
    """The signature without types, which are long and do not matter here."""
    bare = [parameter.replace(annotation=parameter.empty) for parameter in signature.parameters.values()]
    text = str(signature.replace(parameters=bare, return_annotation=signature.empty))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
