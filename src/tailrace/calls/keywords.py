"""Keywords that a function does not take are answered with the one that was probably meant."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container
from functools import wraps
from typing import ParamSpec, TypeVar

from tailrace.errors import OptionError, refuse_unknown

P = ParamSpec("P")
T = TypeVar("T")


def answers_unknown(name: str, of_calls: Container[str] = ()) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Make a decorator for a function of options. Editors and type checkers see the function's own parameters.

    Python's ``TypeError`` for an unknown keyword names no other one, and tells of ``__init__``.

    Args:
        name: what users call the function.
        of_calls: options that users may look for here, and that belong into ``calls=tr.Calls(…)``.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        names = [one for one in inspect.signature(function).parameters if one != "self"]

        @wraps(function)
        def answering(*args: P.args, **given: P.kwargs) -> T:
            unknown = given.keys() - set(names)
            if unknown:
                _refuse(name, unknown, names, of_calls)
            return function(*args, **given)

        return answering

    return decorate


def _refuse(name: str, unknown: set[str], names: list[str], of_calls: Container[str]) -> None:
    for one in sorted(unknown):
        if one in of_calls:
            raise OptionError(f"unknown option of {name}: {one}=…: did you mean calls=tr.Calls({one}=…)?")
    refuse_unknown(f"option of {name}", unknown, names)
