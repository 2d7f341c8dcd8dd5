"""The protocols of groupings: the rule that picks the downstream task of each tuple.

Load-aware groupings have a second side at the receiving tasks and messages between the two: see ``feedback``. The laws
below are checked by ``tailrace.testing.check_grouping``.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Protocol

ALL = -1
"""A chooser returns this instead of a task index when every task gets the tuple."""

HELD = -2
"""A ``FeedbackChooser`` returns this when the sender holds the tuple until some task has room for it."""

FIRST = -3
"""A ``FeedbackChooser`` returns ``FIRST - task`` when the tuple joins the held queue, and the oldest held tuple goes to
that task."""


class Chooser(Protocol):
    """A grouping at work on one edge of one sending task.

    Law: ``choose_many(values)`` returns one entry a value, in order; each is ``ALL`` or lies in ``range(tasks)``;
    and calling it on a list or on its pieces gives the same choices.

    Example:
        >>> from random import Random
        >>> tr.shuffle().bind(3, Random(1)).choose_many("abcd")
        [0, 1, 2, 0]
    """

    def choose_many(self, values: Sequence[Any]) -> Sequence[int]: ...


class Grouping(Protocol):
    """The rule that picks the downstream task of each tuple: a value, picklable, without state.

    Law: two choosers bound with equal arguments and equally seeded generators make equal choices in any process,
    and a keyed grouping's chooser sends equal keys to the same task whatever its seed and its past.
    ``tailrace.testing.check_grouping`` checks it.

    The engine does not always ask: an edge into a committing sink goes by lineage, unless its grouping is ``keyed``,
    and the roots of a source take turns on a shuffled edge (``core/routing/router.py``). A grouping may have an
    attribute ``key``, a function of the tuple: the engine then calls the chooser for the first tuples even if there is
    only one task, so that a key function that fails does so early. The name ``"broadcast"`` is reserved.

    Example:
        >>> class LengthChooser:
        ...     def __init__(self, tasks):
        ...         self.tasks = tasks
        ...     def choose_many(self, values):
        ...         return [len(value) % self.tasks for value in values]
        >>> class ByLength:
        ...     name = "by_length"
        ...     keyed = True
        ...     def bind(self, tasks, rng):
        ...         return LengthChooser(tasks)
        >>> words = tr.Topology("words").source("words", tr.from_iterable(["the", "mill"]))
        >>> words.map("upper", str.upper, tasks=2, grouping=ByLength())
        Stream(upper.main)
    """

    @property
    def name(self) -> str: ...

    @property
    def keyed(self) -> bool:
        """Whether equal keys always meet in one task. ``partial_key`` has a ``key`` and is not keyed: it has two."""
        ...

    def bind(self, tasks: int, rng: Random) -> Chooser: ...
