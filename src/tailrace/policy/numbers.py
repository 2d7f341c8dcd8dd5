"""What counts as a number where a policy is given one."""

from __future__ import annotations

from math import isfinite
from typing import Any


def is_number(value: Any) -> bool:
    """A finite one. True and False are not meant as 1 and 0."""
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
