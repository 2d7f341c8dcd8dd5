"""Fields: tuples with equal keys go to the same task, by a stable hash of the key, from every sender and at any time.

Law: that of a keyed ``Grouping``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tailrace.policy.hashing import stable_hash
from tailrace.policy.keys import Key, Remembered, checked_key, explain_key, key_function


class _ByKey:
    __slots__ = ("_key", "_key_of", "_task_of")

    def __init__(self, tasks: int, key: Key) -> None:
        self._key = key
        self._key_of = key_function(key)
        self._task_of = Remembered(lambda found: stable_hash(found) % tasks).__getitem__

    def choose_many(self, values: Sequence[Any]) -> Sequence[int]:
        try:
            task_of, key_of = self._task_of, self._key_of
            return [
                task_of(key_of(value)) for value in values
            ]  # not map(), which would end at a StopIteration raised by the key function
        except BaseException as error:
            explain_key("fields", self._key, values, error)
            raise


@dataclass(frozen=True)
class Fields:
    """All tuples with equal keys go to one task. ``fields()`` makes one.

    The order and the state of a key stay in one place. The task of a hot key carries all of its load.
    """

    name = "fields"
    keyed = True

    key: Key

    def bind(self, tasks: int, rng: Random) -> _ByKey:
        return _ByKey(tasks, self.key)


def fields(key: Key | None = None) -> Fields:
    """Send tuples with equal keys to the same task.

    Args:
        key: a function of the tuple; or a ``str`` or ``int``, which means ``value[key]``.

    Example:
        >>> rows = tr.Topology("rows").source("rows", tr.from_iterable([{"user": 1}, {"user": 2}]))
        >>> rows.map("count", str, tasks=2, grouping=tr.fields("user"))
        Stream(count.main)
    """
    return Fields(checked_key("fields", key))
