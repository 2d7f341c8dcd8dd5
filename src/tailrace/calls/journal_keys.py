"""The key of a call in a journal: a digest of everything that makes two calls the same one.

Equal values have equal digests, in every process and under every PYTHONHASHSEED: ``1``, ``1.0`` and ``Decimal("1.00")``
are one value, a dict has no order, and an aware time counts by its instant. Values that differ have different digests,
as far as 128 bits go: the odds that two of a billion clash are about 10⁻²¹. ``stable_hash`` of the policies has 64 bits
and lets some numbers share a value, which is good enough to route tuples by, and not to answer a call with the result
of another.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from datetime import date, time, timedelta
from decimal import Decimal
from fractions import Fraction
from hashlib import blake2b
from numbers import Integral, Real
from types import BuiltinFunctionType, FunctionType
from typing import Any, NamedTuple

from tailrace.errors import shorten
from tailrace.policy.hashing import moment

KEY_BYTES = 16
_PICKLED_LIKE = 4  # objects count by what this version of pickle's protocol takes apart
_LARGEST_EXPONENT = 400  # of a Decimal that is compared with floats and integers, of which the largest is below 1e309

_PLACE = struct.Struct("<Qq")


class Place(NamedTuple):
    """Where in a source the call's tuple comes from. A result is dropped when the prefix of the split has passed it."""

    split: int  # the salt of the split, which survives restarts
    offset: int


def journal_key(*parts: Any) -> bytes:
    """The 16 bytes that stand for these values in a journal. Raises TypeError for a value that cannot be taken apart.

    Texts, bytes, numbers, dates, times, lists, tuples, sets and dicts have the same key in every version of Python.
    Other objects count by their class and what pickle would store of them.

    Args:
        parts: what identifies the call.

    Example:
        >>> journal_key("geocode", {"city": "Roma", "zip": 184}).hex()
        '2e4eceda24d16e063baf4df7d6308acf'
        >>> journal_key(1) == journal_key(1.0) != journal_key("1")
        True
    """
    try:
        form = _many(b"key", parts)
    except RecursionError:
        raise TypeError(
            f"a value cannot identify a call: value={shorten(parts)}: is it nested too deeply, or inside itself?"
        ) from None
    return blake2b(form, digest_size=KEY_BYTES).digest()


def tuple_key(operator: str, place: Place, lineage: int, value: Any) -> bytes:
    """The key of a call of a topology: a digest of operator, root, lineage and value, then the place as it is.

    The value is part of it: where a source was edited between two runs, or an operator on the way gave something else
    than before, no result of the old tuple is taken for the new one's.
    """
    return journal_key(operator, place.split, place.offset, lineage, value) + _PLACE.pack(*place)


def place_of(key: bytes) -> Place | None:
    """The place that ``tuple_key`` put into a key, or None if the key is one of ``journal_key``."""
    return Place._make(_PLACE.unpack_from(key, KEY_BYTES)) if len(key) > KEY_BYTES else None


def _form(tag: bytes, content: bytes) -> bytes:
    """The tag keeps types apart that never compare equal. The length tells where one form ends in a row of them."""
    return b"%b:%d:%b" % (tag, len(content), content)


def _many(tag: bytes, values: Iterable[Any]) -> bytes:
    return _form(tag, b"".join(map(_value, values)))


def _value(value: Any) -> bytes:
    exact = _BY_TYPE.get(type(value))
    if exact is not None:
        return exact(value)
    for base, function in _BY_BASE:
        if isinstance(value, base):
            return function(value)
    return _object(value)


def _none(value: None) -> bytes:
    return b"none:0:"


def _text(value: str) -> bytes:
    return _form(b"str", value.encode("utf-8", "surrogatepass"))


def _bytes(value: bytes | bytearray) -> bytes:
    return _form(b"bytes", bytes(value))


def _integer(value: Any) -> bytes:
    return _ratio(int(value), 1)


def _ratio(numerator: int, denominator: int) -> bytes:
    return _form(b"number", b"%x/%x" % (numerator, denominator))


def _real(value: Any) -> bytes:
    try:
        return _ratio(*value.as_integer_ratio())
    except (ValueError, OverflowError):  # not a number, or without end
        return _form(b"number", b"nan" if value != value else b"inf" if value > 0 else b"-inf")


def _fraction(value: Fraction) -> bytes:
    return _ratio(value.numerator, value.denominator)


def _decimal(value: Decimal) -> bytes:
    if value.is_nan():
        return _form(b"number", b"nan")
    if not value.is_finite() or not value or abs(value.adjusted()) <= _LARGEST_EXPONENT:
        return _real(value)
    sign, digits, exponent = value.as_tuple()
    coefficient = "".join(map(str, digits)).rstrip("0")
    exponent = int(exponent) + len(digits) - len(coefficient)
    return _form(b"decimal", f"{sign}/{coefficient}/{exponent}".encode())


def _moment(value: Any) -> bytes:
    if value != value:  # pandas.NaT
        return b"nat:0:"
    tag, number = moment(value)
    finer = getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0)  # of pandas
    return _form(tag, b"%d/%d" % (number, finer))


def _sequence(tag: bytes) -> Callable[[Iterable[Any]], bytes]:
    return lambda values: _many(tag, values)


def _set(value: Iterable[Any]) -> bytes:
    return _form(b"set", b"".join(sorted(map(_value, value))))


def _dict(value: dict[Any, Any]) -> bytes:
    return _form(b"dict", b"".join(sorted(_value(key) + _value(item) for key, item in value.items())))


def _named(value: Any) -> bytes:
    return _form(b"name", f"{value.__module__}\0{value.__qualname__}".encode())


def _object(value: Any) -> bytes:
    """Take an object apart as pickle does: a class, arguments for it, its state."""
    try:
        reduced = value.__reduce_ex__(_PICKLED_LIKE)
    except Exception as error:
        raise TypeError(
            f"a value cannot identify a call: type={type(value).__name__} value={shorten(value)} cause={error}: "
            "could it be made of texts, numbers, lists, dicts or dataclasses?"
        ) from error
    if isinstance(reduced, str):
        return _form(b"name", f"{type(value).__module__}\0{reduced}".encode())
    taken = [list(part) if index >= 3 and part is not None else part for index, part in enumerate(reduced[:5])]
    return _many(b"object", taken)


_BY_TYPE: dict[type, Callable[[Any], bytes]] = {
    str: _text,
    int: _integer,
    bytes: _bytes,
    tuple: _sequence(b"tuple"),
    list: _sequence(b"list"),
    dict: _dict,
    float: _real,
    bool: _integer,
    type(None): _none,
}

# In order: an IntEnum equals its number and a StrEnum its text, so these come before the objects that other enums are.
_BY_BASE: tuple[tuple[type, Callable[[Any], bytes]], ...] = (
    (str, _text),
    (bytes, _bytes),
    (bytearray, _bytes),
    (tuple, _sequence(b"tuple")),
    (list, _sequence(b"list")),
    (dict, _dict),
    (frozenset, _set),
    (set, _set),
    (Integral, _integer),
    (Decimal, _decimal),
    (Fraction, _fraction),
    (Real, _real),
    (date, _moment),
    (time, _moment),
    (timedelta, _moment),
    (type, _named),
    (FunctionType, _named),
    (BuiltinFunctionType, _named),
)
