"""Observers of tasks at work. A run that is not recorded has no observer, and pays nothing for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tailrace.core.protocol.ledger import Root
    from tailrace.core.tasks.base import Task
    from tailrace.core.tasks.open_bundle import Call, OpenBundle
    from tailrace.core.tasks.stages import Stage, Wiring


class CallObserver(Protocol):
    """Sees the tuples of a task that finishes them later than it takes them."""

    def opened(self, bundle: OpenBundle) -> None: ...

    def closed(self, call: Call, duration_ns: int) -> None: ...


class TaskObserver(Protocol):
    """Sees what the tasks of a worker do.

    Law: what it returns in place of a stage returns what that stage returns.
    """

    def stage(self, task: Task, number: int, stage: Stage, wiring: Wiring) -> Stage: ...

    def calls(self, task: Task, number: int) -> CallObserver: ...

    def roots(self, number: int) -> Callable[[Root, int], None]:
        """What a source's ledger calls with a root that has completed and the emission that did it."""
        ...
