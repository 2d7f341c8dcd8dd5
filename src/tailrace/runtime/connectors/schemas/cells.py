"""Whether a column takes a value, and what becomes of its type where there is no schema.

pyarrow converts more than a sink may: it cuts 1.5 down to 1 for an integer, the time off a date, and leaves out keys of
a dict that a struct does not have. A value counts as one of the column's type only if nothing of it is lost.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

EXACT = 1 << 53
"""Integers up to this are doubles too."""


def quick_check(kind: Any, settled: bool) -> Callable[[Any], bool]:
    """Says at once that a value is of the type, for the plain ones; of what it turns down, ``holds`` decides.

    A column that is not ``settled`` may become one of doubles, and must hear of integers that are none.
    """
    import pyarrow as pa

    types = pa.types
    if types.is_signed_integer(kind):
        low, high = -(1 << kind.bit_width - 1), (1 << kind.bit_width - 1) - 1
        if not settled:
            low, high = max(low, -EXACT), min(high, EXACT)
        return lambda value: type(value) is int and low <= value <= high
    if types.is_floating(kind):
        return lambda value: type(value) is float
    if types.is_string(kind):
        return _is_text
    if types.is_boolean(kind):
        return lambda value: type(value) is bool
    if types.is_binary(kind):
        return lambda value: type(value) is bytes
    return lambda value: False


def _is_text(value: Any) -> bool:
    if type(value) is not str:
        return False
    try:
        return value.isascii() or bool(value.encode())
    except UnicodeEncodeError:  # half a character
        return False


def holds(value: Any, kind: Any) -> bool:
    """Whether a column of this type holds the value, all of it."""
    import pyarrow as pa

    try:
        pa.array([value], type=kind)
        return not _loses(value, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False


def _loses(value: Any, kind: Any) -> bool:
    """Whether pyarrow, which converts the value, leaves something of it out."""
    import pyarrow as pa

    if value is None:
        return False
    types = pa.types
    if types.is_integer(kind):
        return not isinstance(value, int) and int(value) != value
    if types.is_floating(kind):
        return isinstance(value, bool)
    if types.is_date(kind):
        return isinstance(value, dt.datetime) and value.time() != dt.time()
    if types.is_struct(kind) and isinstance(value, dict):
        fields = {field.name: field.type for field in kind}
        return any(name not in fields or _loses(item, fields[name]) for name, item in value.items())
    if types.is_map(kind):
        items = value.values() if isinstance(value, dict) else (item for _, item in value)
        return any(_loses(item, kind.item_type) for item in items)
    if types.is_list(kind) or types.is_large_list(kind):
        return any(_loses(item, kind.value_type) for item in value)
    return False


def infer(value: Any) -> Any | None:
    """The type of a column that begins with this value; None if there is none."""
    import pyarrow as pa

    try:
        kind = pa.infer_type([value])
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    return None if _has_empty_struct(kind) or not holds(value, kind) else kind


def _has_empty_struct(kind: Any) -> bool:
    """A struct without fields cannot be written, and no later row may give it any."""
    import pyarrow as pa

    if pa.types.is_struct(kind) and not kind.num_fields:
        return True
    return any(_has_empty_struct(kind.field(n).type) for n in range(kind.num_fields))


def join(one: Any, other: Any) -> Any | None:
    """The type that holds all values of both, if there is one: integers are doubles, unknown parts become known."""
    import pyarrow as pa

    types = pa.types
    if one.equals(other) or types.is_null(other):
        return one
    if types.is_null(one):
        return other
    if {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if types.is_decimal128(one) and types.is_decimal128(other):
        scale = max(one.scale, other.scale)
        digits = max(one.precision - one.scale, other.precision - other.scale)
        return pa.decimal128(digits + scale, scale) if digits + scale <= 38 else None
    if types.is_list(one) and types.is_list(other):
        item = join(one.value_type, other.value_type)
        return None if item is None else pa.list_(item)
    if types.is_struct(one) and types.is_struct(other):
        return _join_structs(one, other)
    return None


def _join_structs(one: Any, other: Any) -> Any | None:
    import pyarrow as pa

    fields = {field.name: field.type for field in one}
    for field in other:
        joined = join(fields.get(field.name, pa.null()), field.type)
        if joined is None:
            return None
        fields[field.name] = joined
    return pa.struct(list(fields.items()))


def settled(kind: Any) -> Any:
    """The type with strings in the place of what no row has told: it can be written, and readers want one type."""
    import pyarrow as pa

    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(settled(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, settled(field.type)) for field in kind])
    return kind


def is_exact(value: Any) -> bool:
    """Whether it has no integer in it that is not a double too."""
    if isinstance(value, int):
        return -EXACT <= value <= EXACT
    if isinstance(value, dict):
        return all(map(is_exact, value.values()))
    return not isinstance(value, list | tuple | set) or all(map(is_exact, value))
