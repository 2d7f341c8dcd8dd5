"""For tests of task hosts and senders: a worker without other tasks, and a runner that the test steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tailrace.core.protocol.messages import Member
from tailrace.core.protocol.sightings import Sightings
from tailrace.runtime.execution.runner import Runner
from tailrace.runtime.links.channels import Channel
from tailrace.runtime.links.link import OutLink


class NobodyHere:
    """A worker in which no task lives: all others are in worker 1."""

    sightings = Sightings()

    def mailbox_of(self, task: int) -> None:
        return None

    def home_of(self, task: int) -> int:
        return 1

    def node_queue_for(self, task: int) -> None:
        return None


def _failed(error: BaseException) -> None:
    raise error


class Stepped(Runner):
    """A runner without a thread: it takes a turn when the test says so."""

    def __init__(self, name: str) -> None:
        super().__init__(name, _failed)

    def start(self) -> None: ...

    def step(self, turns: int = 3) -> None:
        for _ in range(turns):
            self.turn(wait=False)


class Worker(NobodyHere):
    """The same, with a membership: epochs from ``lowest`` on count. Connecting and losing a link are errors."""

    worker, epoch = 0, 1
    lowest = 1

    def member(self, worker: int) -> Member | None:
        return None

    def counts(self, worker: int, epoch: int) -> bool:
        return epoch >= self.lowest

    def connect(self, link: OutLink, member: Member, done: Callable[[Channel | None], None]) -> None:
        raise AssertionError("nobody to connect to")

    def others(self) -> tuple[int, ...]:
        return ()

    def cancel(self, emissions: Any) -> None: ...

    def lost_link(self, worker: int, epoch: int) -> None:
        raise AssertionError("no link was lost")

    def renew(self) -> None: ...

    def tell(self, message: Any) -> None: ...
