"""Checks whether a column can hold a value, and infers and widens column types where there is no schema.

pyarrow converts values with losses that a sink must not accept: 1.5 becomes the integer 1, a time is cut to its date,
and keys of a dict that a struct lacks are dropped. A column holds a value only if nothing of it is lost.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

EXACT = 1 << 53
"""Integers up to this size are exact as doubles."""


def quick_check(kind: Any, settled: bool) -> Callable[[Any], bool]:
    """A fast check for values of plain types. If it returns False, ``holds`` must decide.

    A column that is not ``settled`` may still become one of doubles, so the check fails for integers beyond ``EXACT``.
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
    except UnicodeEncodeError:  # a lone surrogate
        return False


def holds(value: Any, kind: Any) -> bool:
    """Whether a column of this type can hold the value without loss."""
    import pyarrow as pa

    try:
        pa.array([value], type=kind)
        return not _loses(value, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False


def _loses(value: Any, kind: Any) -> bool:
    """Whether pyarrow would lose a part of the value in converting it."""
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
    if types.is_struct(kind):
        return _struct_loses(value, kind)
    if types.is_map(kind):
        items = value.values() if isinstance(value, dict) else (item for _, item in value)
        return any(_part_loses(item, kind.item_field) for item in items)
    if types.is_list(kind) or types.is_large_list(kind):
        return any(_part_loses(item, kind.value_field) for item in value)
    return False


def _struct_loses(value: Any, kind: Any) -> bool:
    """A tuple goes by place. A PySpark ``Row`` has names besides, which must be in the order of the type."""
    if isinstance(value, dict):
        if value.keys() - {field.name for field in kind}:
            return True
    elif isinstance(value, tuple):
        names = [field.name for field in kind]
        if list(getattr(value, "__fields__", names)) != names:
            return True
        value = dict(zip(names, value, strict=True))
    else:
        return False
    return any(_part_loses(value.get(field.name), field) for field in kind)


def _part_loses(value: Any, field: Any) -> bool:
    return not field.nullable if value is None else _loses(value, field.type)


def infer(value: Any) -> Any | None:
    """The column type inferred from a first value; None if no type can hold it."""
    import pyarrow as pa

    try:
        kind = pa.infer_type([value])
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    return None if _has_empty_struct(kind) or not holds(value, kind) else kind


def _has_empty_struct(kind: Any) -> bool:
    """Whether a struct in this type has no fields: it cannot be written, and later rows may never add one."""
    import pyarrow as pa

    if pa.types.is_struct(kind) and not kind.num_fields:
        return True
    return any(_has_empty_struct(kind.field(n).type) for n in range(kind.num_fields))


def join(one: Any, other: Any) -> Any | None:
    """The type that holds all values of both, or None: integers widen to doubles, unknown parts to known ones."""
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
    """The type with unknown parts replaced by strings, so that it can be written and is the same in all files."""
    import pyarrow as pa

    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(settled(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, settled(field.type)) for field in kind])
    return kind


def is_exact(value: Any) -> bool:
    """Whether every integer in the value is exact as a double."""
    if isinstance(value, int):
        return -EXACT <= value <= EXACT
    if isinstance(value, dict):
        return all(map(is_exact, value.values()))
    return not isinstance(value, list | tuple | set) or all(map(is_exact, value))
