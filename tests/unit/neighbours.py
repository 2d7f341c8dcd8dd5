"""What the tests of sending share: a worker in which no other task lives, and which has no node's queue."""

from __future__ import annotations


class NobodyHere:
    def host_of(self, task: int) -> None:
        return None

    def home_of(self, task: int) -> int:
        return 1

    def queue_for(self, task: int) -> None:
        return None
