"""Fields: tuples with equal keys go to the same task, whoever sends them and whenever."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from random import Random
from typing import Any

from tailrace.errors import TopologyError, shorten
from tailrace.policy.hashing import stable_hash

Key = Callable[[Any], Any] | str | int

CACHE_LIMIT = 65_536
"""Keys whose task is remembered on one edge of one sender: a few megabytes, and far more keys than are hot at once."""


class _TaskOfKey(dict[Any, int]):
    """Key to task. Safe as a cache because keys that compare equal hash equal, so they share a task anyway."""

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks

    def __missing__(self, key: Any) -> int:
        task = stable_hash(key) % self._tasks
        if len(self) >= CACHE_LIMIT:
            self.clear()  # cheaper for hot keys than keeping track of which are the old ones
        self[key] = task
        return task


class _ByKey:
    __slots__ = ("_item", "_key_of", "_task_of")

    def __init__(self, tasks: int, key: Key) -> None:
        self._item = None if callable(key) else key
        self._key_of: Callable[[Any], Any] = key if callable(key) else itemgetter(key)
        self._task_of = _TaskOfKey(tasks).__getitem__

    def choose_many(self, values: Sequence[Any]) -> Sequence[int]:
        try:
            return list(map(self._task_of, map(self._key_of, values)))
        except Exception as error:
            self._explain(values, error)
            raise

    def _explain(self, values: Iterable[Any], error: Exception) -> None:
        """Find the tuple that has no usable key, and raise or annotate so that the error names it."""
        for value in values:
            try:
                key = self._key_of(value)
            except Exception as missing:
                if self._item is None:
                    error.add_note(f"the key function of grouping=fields raised: tuple={shorten(value)}")
                    return
                raise LookupError(
                    f"a tuple has no such key: grouping=fields key={self._item!r} tuple={shorten(value)}: "
                    "is the key spelled as in the tuple?"
                ) from missing
            try:
                self._task_of(key)
            except TypeError:
                stable_hash(key)  # says what to return instead, in words better than "unhashable type"
                raise


@dataclass(frozen=True)
class Fields:
    """One task a key. Keeps the order and the state of a key in one place; a hot key is that task's burden."""

    key: Key

    @property
    def name(self) -> str:
        return "fields"

    @property
    def keyed(self) -> bool:
        return True

    def bind(self, tasks: int, rng: Random) -> _ByKey:
        return _ByKey(tasks, self.key)


def fields(key: Key | None = None) -> Fields:
    """Equal keys to the same task. ``key`` is a function of the tuple, or a str or int meaning ``value[key]``."""
    if key is None:
        raise TopologyError(
            "a grouping needs a key and has none: grouping=fields: did you mean fields(lambda value: …)?"
        )
    if isinstance(key, bool) or not (callable(key) or isinstance(key, str | int)):
        raise TopologyError(
            "a grouping's key is neither a function nor the name or position of an item: grouping=fields "
            f"key={shorten(key)}: did you mean fields(lambda value: …)?"
        )
    return Fields(key)
