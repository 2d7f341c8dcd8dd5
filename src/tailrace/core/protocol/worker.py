"""The life of a worker: it registers, opens its tasks, acts on memberships, and exits when it is told or replaced."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tailrace.core.protocol.membership import Membership
from tailrace.core.protocol.messages import Applied, Assign, FromWorker, Leave, LinkLost, Members, Ready, ToWorker
from tailrace.core.protocol.sightings import Sightings


class Life(Enum):
    """The state of a worker, as the worker itself sees it."""

    REGISTERING = "registering"
    OPENING = "opening"
    RUNNING = "running"
    LEAVING = "leaving"


@dataclass(frozen=True)
class OpenTasks:
    """Open all tasks of this worker, then call ``opened``."""

    assign: Assign


@dataclass(frozen=True)
class CloseLinks:
    """Close the links with lower epochs of these workers, and connect to the new ones."""

    workers: frozenset[int]


@dataclass(frozen=True)
class TellTasks:
    """Hand this message to every task."""

    message: ToWorker


@dataclass(frozen=True)
class Reply:
    """Send this message to the coordinator."""

    message: FromWorker


@dataclass(frozen=True)
class Exit:
    """End this process."""

    reason: str


WorkerCommand = OpenTasks | CloseLinks | TellTasks | Reply | Exit


class Worker:
    """The decisions of a worker. Pure: ``handle`` and the other events return the commands that follow, in order."""

    def __init__(self, worker: int, epoch: int, sightings: Sightings | None = None) -> None:
        self.worker = worker
        self.epoch = epoch
        self.life = Life.REGISTERING
        self.membership = Membership(worker, epoch)
        self.sightings = Sightings() if sightings is None else sightings

    def handle(self, message: ToWorker) -> list[WorkerCommand]:
        if self.life is Life.LEAVING:
            return []
        match message:
            case Assign():
                self.life = Life.OPENING
                return [OpenTasks(message)]
            case Members():
                return self._members(message)
            case Leave():
                self.life = Life.LEAVING
                return [Exit(message.reason)]
            case _:
                return [TellTasks(message)]

    def opened(self) -> list[WorkerCommand]:
        """All tasks are open."""
        if self.life is not Life.OPENING:
            return []
        self.life = Life.RUNNING
        return [Reply(Ready(self.worker, self.epoch))]

    def lost_link(self, peer: int, epoch: int) -> list[WorkerCommand]:
        """A link with this epoch of another worker has broken, or skipped a frame. Any thread may call this.

        If the epoch has been replaced meanwhile, recovery from its death re-emits what was lost.
        """
        if not self.membership.counts(peer, epoch):
            return []
        return [Reply(LinkLost(self.worker, self.epoch, peer, epoch))]

    def _members(self, news: Members) -> list[WorkerCommand]:
        newer = news.version > self.membership.version
        changed = self.membership.update(news)
        if self.membership.replaced:
            self.life = Life.LEAVING
            return [Exit("another process has taken this worker's place")]
        commands: list[WorkerCommand] = [CloseLinks(frozenset(changed))] if changed else []
        if newer:
            commands.append(TellTasks(news))
        return [*commands, Reply(Applied(self.worker, self.epoch, news.version, self.sightings.so_far()))]
