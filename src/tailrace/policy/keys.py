"""How groupings read the key of a tuple, and the errors if there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, Generic, TypeVar

from tailrace.errors import TopologyError, shorten
from tailrace.policy.hashing import stable_hash
from tailrace.policy.signatures import misfit

Key = Callable[[Any], Any] | str | int

CACHE_LIMIT = 65_536
"""Most keys that one edge of one sender remembers: a few megabytes, and far more keys than are hot at once."""

Found = TypeVar("Found")


class Remembered(dict[Any, Found], Generic[Found]):
    """A cache of a function of the key. The function must give the same for keys that compare equal."""

    def __init__(self, find: Callable[[Any], Found]) -> None:
        self._find = find

    def __missing__(self, key: Any) -> Found:
        found = self._find(key)
        if len(self) >= CACHE_LIMIT:
            self.clear()  # cheaper for hot keys than tracking which keys are old
        self[key] = found
        return found


def checked_key(grouping: str, key: Key | None) -> Key:
    """``key`` if a grouping can use it. Raises ``TopologyError`` if not."""
    if key is None:
        raise TopologyError(
            f"a grouping needs a key and has none: grouping={grouping}: did you mean {grouping}(lambda value: …)?"
        )
    if isinstance(key, bool) or not (callable(key) or isinstance(key, str | int)):
        raise TopologyError(
            f"a grouping's key is neither a function nor the name or position of an item: grouping={grouping} "
            f"key={shorten(key)}: did you mean {grouping}(lambda value: …)?"
        )
    signature = misfit(key, 1) if callable(key) else None
    if signature is not None:
        raise TopologyError(
            f"a grouping's key function does not take one tuple: grouping={grouping} signature={signature}: "
            f"did you mean {grouping}(lambda value: …)?"
        )
    return key


def key_function(key: Key) -> Callable[[Any], Any]:
    """The key as a function of the tuple. A str or an int means ``value[key]``."""
    return key if callable(key) else itemgetter(key)


def explain_key(grouping: str, key: Key, values: Iterable[Any], error: BaseException) -> None:
    """Find the tuple that has no usable key, and raise or annotate an error that names it."""
    key_of = key_function(key)
    for value in values:
        try:
            found = key_of(value)
        except BaseException as missing:
            if callable(key):
                error.add_note(f"the key function of grouping={grouping} raised: tuple={shorten(value)}")
                return
            raise LookupError(
                f"a tuple has no such key: grouping={grouping} key={key!r} tuple={shorten(value)}: "
                "is the key spelled as in the tuple?"
            ) from missing
        stable_hash(found)  # its error says what to return instead
