"""Checks of numbers among the arguments of a policy."""

from __future__ import annotations

from math import isfinite
from typing import Any


def is_number(value: Any) -> bool:
    """Whether ``value`` is a finite number. True and False are not taken as 1 and 0."""
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def is_whole(value: Any) -> bool:
    """Whether ``value`` is an integer, and not True or False."""
    return isinstance(value, int) and not isinstance(value, bool)
