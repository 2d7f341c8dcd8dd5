"""The one hash that routes tuples: equal keys hash equal, in every process and under every PYTHONHASHSEED.

Python's own ``hash`` is seeded per process for text and bytes, so these go through blake2b. For numbers it is not
seeded and already agrees across types (``1 == 1.0 == True == Decimal(1)``); it only needs mixing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag
from hashlib import blake2b
from numbers import Number
from typing import Any
from uuid import UUID

from tailrace.errors import shorten

_MASK = 0xFFFF_FFFF_FFFF_FFFF
_NONE = 0x9AE1_6A3B_2F90_404F
_NOT_A_NUMBER = 0xC2B2_AE3D_27D4_EB4F  # hash(nan) depends on the address, so all nan share one value


def stable_hash(key: Any) -> int:
    """Hash a key to 64 bits, the same in every process.

    Args:
        key: a value whose equality is known here, such as a number, a text or a tuple. Others raise ``TypeError``.

    Example:
        >>> from tailrace.policy import stable_hash
        >>> stable_hash("the") == stable_hash("the"), stable_hash(1) == stable_hash(1.0)
        (True, True)
    """
    exact = _BY_TYPE.get(type(key))
    return exact(key) if exact is not None else _hash_other(key)


def _mix(bits: int) -> int:
    """The finalizer of splitmix64: neighbouring integers land far apart."""
    bits &= _MASK
    bits = ((bits ^ (bits >> 30)) * 0xBF58_476D_1CE4_E5B9) & _MASK
    bits = ((bits ^ (bits >> 27)) * 0x94D0_49BB_1331_11EB) & _MASK
    return bits ^ (bits >> 31)


def _digest(tag: bytes, data: bytes) -> int:
    """The tag keeps types apart that never compare equal, such as ``"a"`` and ``b"a"``."""
    return int.from_bytes(blake2b(data, digest_size=8, person=tag).digest(), "little")


def _integer(tag: bytes, value: int) -> int:
    return _digest(tag, value.to_bytes(16, "little", signed=True))


def _hash_none(key: None) -> int:
    return _NONE


def _hash_number(key: Any) -> int:
    if key != key:
        return _NOT_A_NUMBER
    return _mix(hash(key) + 0x9E37_79B9_7F4A_7C15)  # without the addend, 0 would map to 0


def _hash_decimal(key: Decimal) -> int:
    return _NOT_A_NUMBER if key.is_nan() else _hash_number(key)  # a signalling nan raises when it is compared


def _hash_str(key: str) -> int:
    return _digest(b"str", key.encode("utf-8", "surrogatepass"))


def _hash_bytes(key: bytes) -> int:
    return _digest(b"bytes", key)


def _hash_tuple(key: tuple[Any, ...]) -> int:
    return _digest(b"tuple", struct.pack(f"<{len(key)}Q", *map(stable_hash, key)))


def _hash_frozenset(key: frozenset[Any]) -> int:
    return _digest(b"frozenset", struct.pack(f"<{len(key)}Q", *sorted(map(stable_hash, key))))


def _microseconds(delta: timedelta) -> int:
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def _since_midnight(key: datetime | time) -> int:
    return ((key.hour * 60 + key.minute) * 60 + key.second) * 1_000_000 + key.microsecond


def moment(key: date | time | timedelta) -> tuple[bytes, int]:
    """A pair by which dates, times or spans are equal: a tag for the kind, and microseconds or days.

    Equal values give equal pairs: aware times of one instant do in whatever zone they are written.
    """
    if isinstance(key, timedelta):
        return b"timedelta", _microseconds(key)
    if not isinstance(key, datetime | time):
        return b"date", key.toordinal()
    local = _since_midnight(key)
    naive, aware = b"time", b"aware time"
    if isinstance(key, datetime):
        local += key.toordinal() * 86_400_000_000
        naive, aware = b"naive", b"aware"
    offset = key.replace(fold=0).utcoffset()  # comparisons ignore the fold, so the hash must too
    return (naive, local) if offset is None else (aware, local - _microseconds(offset))


def _hash_moment(key: date | time | timedelta) -> int:
    return _NOT_A_NUMBER if key != key else _integer(*moment(key))  # pandas.NaT is a datetime


def _hash_uuid(key: UUID) -> int:
    return _digest(b"uuid", key.bytes)


def _hash_enum(key: Enum) -> int:
    # On some Python versions a combination of flags has no name, but it has a value.
    member = str(key.value) if isinstance(key, Flag) else key.name
    return _digest(b"enum", f"{type(key).__module__}\0{type(key).__qualname__}\0{member}".encode())


_BY_TYPE: dict[type, Callable[[Any], int]] = {
    str: _hash_str,
    int: _hash_number,
    bytes: _hash_bytes,
    tuple: _hash_tuple,
    float: _hash_number,
    bool: _hash_number,
    type(None): _hash_none,
}

# In order: an IntEnum equals its number and a StrEnum its text, so these come before Enum.
_BY_BASE: tuple[tuple[type, Callable[[Any], int]], ...] = (
    (str, _hash_str),
    (bytes, _hash_bytes),
    (tuple, _hash_tuple),
    (frozenset, _hash_frozenset),
    (Decimal, _hash_decimal),
    (Number, _hash_number),
    (date, _hash_moment),
    (time, _hash_moment),
    (timedelta, _hash_moment),
    (UUID, _hash_uuid),
    (Enum, _hash_enum),
)


def _hash_other(key: Any) -> int:
    for base, function in _BY_BASE:
        if isinstance(key, base):
            return function(key)
    raise TypeError(
        f"a key of this type cannot be routed: type={type(key).__name__} key={shorten(key)}: "
        "could the key function return a str, a number, bytes or a tuple of these?"
    )
