"""Observers of tasks, for recordings. A run that is not recorded has none, and pays nothing for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tailrace.core.protocol.ledger import Root
    from tailrace.core.tasks.base import Task
    from tailrace.core.tasks.open_bundle import Call, OpenBundle
    from tailrace.core.tasks.stages import OperatorStage, Wiring


class CallObserver(Protocol):
    """Is told of the bundles and calls of a deferred task."""

    def opened(self, bundle: OpenBundle) -> None: ...

    def closed(self, call: Call, duration_ns: int) -> None: ...


class TaskObserver(Protocol):
    """Is told what the tasks of a worker do.

    Law: the stage that ``stage`` returns in place of another returns what that one returns.
    """

    def stage(self, task: Task, number: int, stage: OperatorStage, wiring: Wiring) -> OperatorStage: ...

    def calls(self, task: Task, number: int) -> CallObserver: ...

    def roots(self, number: int) -> Callable[[Root, int], None]:
        """A function that a source's ledger calls with each complete root and the emission that completed."""
        ...
