"""Finds values that PySpark and Arrow would change without a word, before they get them.

Arrow cuts fractions off in a column of integers, PySpark makes text of a coroutine and null of a ``Decimal("NaN")`` and
of a field that a dict does not have, and both take a number for a date. A check looks at many values at once, and at
those inside them. It is made once for a type; most values of a task have types that need no look of their own.
"""

from __future__ import annotations

from array import array
from collections.abc import Awaitable, Callable, Sequence
from decimal import Decimal
from typing import Any

from pyspark.sql import Row
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    TimeType,
)

from tailrace.errors import did_you_mean

Check = Callable[[Sequence[Any]], None]
"""Raises ValueError for the first of the values that would be changed."""

NO_VALUE = type(None)
NOT_AWAITED = "it was not awaited: did you forget await, or async def?"
MOMENTS = (DateType, DayTimeIntervalType, TimeType)


def check_of(kind: DataType) -> Check | None:
    """The check of a type, or None if no value of it can be changed without a word."""
    if isinstance(kind, StringType):
        return _each(_refuse_coroutine, str)
    if isinstance(kind, IntegralType):
        return _each(_refuse_fraction, int)
    if isinstance(kind, DecimalType):
        return _each(_refuse_nan, int)
    if isinstance(kind, MOMENTS):
        return _each(_refuse_number)
    if isinstance(kind, ArrayType):
        return _of_arrays(check_of(kind.elementType))
    if isinstance(kind, MapType):
        return _of_maps(check_of(kind.keyType), check_of(kind.valueType))
    if isinstance(kind, StructType):
        return _of_structs(kind)
    return None


def _each(check: Callable[[Any], None], *harmless: type) -> Check:
    """A check of each value, unless all are of types that need none."""
    fine = frozenset({NO_VALUE, *harmless})

    def check_all(values: Sequence[Any]) -> None:
        if not fine.issuperset(map(type, values)):
            for value in values:
                check(value)

    return check_all


def _refuse_coroutine(value: Any) -> None:
    if isinstance(value, Awaitable):
        raise ValueError(NOT_AWAITED)


def _refuse_fraction(value: Any) -> None:
    try:
        same = value is None or value == int(value)
    except (TypeError, ValueError, ArithmeticError):
        return  # Arrow refuses it, and says why
    if not same:
        raise ValueError(f"not an integer: {value!r}")


def _refuse_nan(value: Any) -> None:
    if isinstance(value, Decimal) and value.is_nan():
        raise ValueError(f"not a number: {value!r}")


def _refuse_number(value: Any) -> None:
    if isinstance(value, int | float | Decimal):
        raise ValueError(f"a number: {value!r}")


def _of_arrays(check: Check | None) -> Check | None:
    if check is None:
        return None
    return lambda values: check([part for value in values if isinstance(value, list | array) for part in value])


def _of_maps(check_keys: Check | None, check_values: Check | None) -> Check | None:
    if check_keys is None and check_values is None:
        return None

    def check_all(values: Sequence[Any]) -> None:
        maps = [value for value in values if isinstance(value, dict)]
        if check_keys is not None:
            check_keys([key for one in maps for key in one])
        if check_values is not None:
            check_values([part for one in maps for part in one.values()])

    return check_all


def _of_structs(kind: StructType) -> Check:
    names = kind.names
    width = len(names)
    known = frozenset(names)
    checks = [
        (place, name, check)
        for place, (name, field) in enumerate(zip(names, kind, strict=True))
        if (check := check_of(field.dataType)) is not None
    ]

    def check_all(values: Sequence[Any]) -> None:
        types = set(map(type, values))
        if any(issubclass(one, dict | Row) for one in types):
            for value in values:
                _refuse_names(value, names, known)
        if types <= {tuple}:
            tuples = [value for value in values if len(value) == width]
            for place, _, check in checks:
                check([value[place] for value in tuples])
            return
        for place, name, check in checks:
            check([_field(value, place, name) for value in values])

    return check_all


def _refuse_names(value: Any, names: Sequence[str], known: frozenset[str]) -> None:
    if isinstance(value, dict):
        if not value.keys() <= known:
            unknown = next(name for name in value if name not in known)
            raise ValueError(f"no such field: {unknown!r}: {did_you_mean(unknown, names)}")
    elif isinstance(value, Row):
        given = getattr(value, "__fields__", names)
        if list(given) != list(names) and set(given) == known:
            raise ValueError(f"fields in another order: {', '.join(given)}: did you mean a dict?")


def _field(value: Any, place: int, name: str) -> Any:
    if isinstance(value, tuple):
        return value[place] if place < len(value) else None
    if isinstance(value, dict):
        return value.get(name)
    return getattr(value, "__dict__", {}).get(name)
