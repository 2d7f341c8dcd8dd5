"""Local: task *i* sends to task *i*, which lives in the same worker, by reference and without a queue.

In a running topology local edges are not routed: sender and receiver are fused and no chooser is asked. Drivers that
route all the same, such as a simulator, say by ``at`` which task the sender is. Law: that of ``Grouping``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from tailrace.errors import TopologyError


class _Always:
    __slots__ = ("_task",)

    def __init__(self, task: int) -> None:
        self._task = task

    def choose_many(self, values: Sequence[Any]) -> Sequence[int]:
        return [self._task] * len(values)


@dataclass(frozen=True)
class Local:
    """Each task sends to the downstream task of its own index. ``local()`` makes one.

    Both operators have equally many tasks.
    """

    name = "local"
    keyed = False

    own: int = 0  # the index of the sending task

    def at(self, own: int) -> Local:
        """This grouping as the sending task ``own`` sees it."""
        return replace(self, own=own)

    def bind(self, tasks: int, rng: Random) -> _Always:
        if not 0 <= self.own < tasks:
            raise TopologyError(
                f"a local edge has no task of the sender's index: own={self.own} tasks={tasks}: "
                "do both operators have the same number of tasks?"
            )
        return _Always(self.own)


def local() -> Local:
    """Keep tuples in their worker: task *i* of the upstream operator feeds task *i* of the downstream operator.

    Without ``tasks=`` the downstream operator gets as many tasks as the upstream one has.

    Example:
        >>> lines = tr.Topology("words").source("lines", tr.from_iterable(["the mill"]), tasks=2)
        >>> lines.map("upper", str.upper, grouping=tr.local())
        Stream(upper.main)
    """
    return Local()
