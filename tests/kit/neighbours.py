"""What tests of hosts and senders share: a worker in which no other task lives, and a runner that is told its turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tailrace.core.protocol.messages import Member
from tailrace.core.protocol.sightings import Sightings
from tailrace.runtime.execution.runner import Runner
from tailrace.runtime.links.channels import Channel
from tailrace.runtime.links.link import OutLink


class NobodyHere:
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
    """A runner whose turns the test takes."""

    def __init__(self, name: str) -> None:
        super().__init__(name, _failed)

    def start(self) -> None: ...

    def step(self, turns: int = 3) -> None:
        for _ in range(turns):
            self.turn(wait=False)


class Worker(NobodyHere):
    """Knows which epochs of the other worker count."""

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
