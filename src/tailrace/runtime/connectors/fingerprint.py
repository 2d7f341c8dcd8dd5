"""Fingerprints of records, to check after a restart whether a source produced the same record again.

The check may miss a change, but never reports one wrongly: two values differ only if neither ``==`` nor their pickles
agree. A value that cannot be compared that way has the fingerprint ``b""``, which matches everything.
"""

from __future__ import annotations

import pickle
from hashlib import sha256
from typing import Any

LIMIT = 64 * 1024  # bytes; one fingerprint per split goes into every checkpoint, so it must stay small
UNKNOWN = b""
_DIGEST = b"sha256:"  # no pickle of protocol 2 or later begins with these bytes


def fingerprint(value: Any) -> bytes:
    """The pickled value; a digest of it if it is large; or ``b""`` if it cannot be compared."""
    pickled = _pickled(value)
    if pickled is None:
        return UNKNOWN
    if len(pickled) <= LIMIT:
        return pickled
    # Equal containers may have different pickles (the order of a set, shared references), and a digest cannot be
    # compared with ==: only for plain strings of text or bytes is it safe to judge by the digest alone.
    return _DIGEST + sha256(pickled).digest() if type(value) in (str, bytes, bytearray) else UNKNOWN


def matches(mark: bytes, value: Any) -> bool:
    """Whether ``value`` may be the value with the fingerprint ``mark``."""
    if mark == UNKNOWN:
        return True
    pickled = _pickled(value)
    if mark.startswith(_DIGEST):
        return pickled is not None and mark == _DIGEST + sha256(pickled).digest()
    return mark == pickled or _equal(mark, value)


def describe(mark: bytes) -> Any:
    """The value behind a fingerprint, or a description of it, for error messages."""
    if mark.startswith(_DIGEST):
        return f"a value with sha256 {mark.removeprefix(_DIGEST).hex()[:16]}"
    try:
        return pickle.loads(mark)
    except Exception:  # its class may be gone by now; the message must still be printed
        return f"a value that cannot be unpickled ({len(mark)} bytes)"


def _pickled(value: Any) -> bytes | None:
    try:
        return pickle.dumps(value, protocol=5)
    except Exception:  # pickling runs the user's code, which may raise anything
        return None


def _equal(mark: bytes, value: Any) -> bool:
    try:
        return bool(pickle.loads(mark) == value)
    except Exception:  # an == that raises, or that returns an array, decides nothing
        return False
