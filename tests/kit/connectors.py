"""A source and a sink for topologies that are declared, drawn or planned, and never run."""

from __future__ import annotations

from typing import Any


class AnySource:
    replayable = True

    def splits(self, tasks: int) -> list[str]:
        return [str(task) for task in range(tasks)]

    def open(self, start: Any) -> Any:
        raise NotImplementedError


class AnySink:
    def __init__(self, committing: bool = False) -> None:
        self.committing = committing

    def open(self, context: Any) -> Any:
        raise NotImplementedError
