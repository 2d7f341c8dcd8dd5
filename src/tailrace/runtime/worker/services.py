"""The services of a worker for its tasks, queues and links: the class behind ``WorkerServices``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tailrace.core.plan.plan import Plan
from tailrace.core.protocol.messages import Member, Renew
from tailrace.core.protocol.sightings import Sightings
from tailrace.core.protocol.worker import Life, Worker
from tailrace.runtime.encryption.connection import Connection
from tailrace.runtime.execution.task_host import TaskHost
from tailrace.runtime.links.cancellations import Cancellations
from tailrace.runtime.links.channels import Channel
from tailrace.runtime.links.control import ControlConnection, Notice
from tailrace.runtime.links.dialer import Dialer
from tailrace.runtime.links.link import OutLink
from tailrace.runtime.send_order.node_uplinks import NodeUplinks
from tailrace.runtime.shared_queues.node_queue import NodeQueue
from tailrace.runtime.shared_queues.pools import Pools


class Services:
    """The services of one epoch of a worker. For any thread, once ``plan`` and ``hosts`` are set.

    ``orphaned`` ends the process: the coordinator is gone. ``report_lost_link`` gets (worker, epoch).
    """

    def __init__(
        self,
        core: Worker,
        connection: ControlConnection,
        dialer: Dialer,
        report_lost_link: Callable[[int, int], None],
        orphaned: Callable[[], None],
    ) -> None:
        self.worker = core.worker
        self.epoch = core.epoch
        self.hosts: dict[int, TaskHost] = {}  # by unit
        self.pools: Pools | None = None
        self.node_uplinks: NodeUplinks | None = None
        self.cancellations = Cancellations()
        self._core = core
        self._connection = connection
        self._dialer = dialer
        self._orphaned = orphaned
        self._plan: Plan | None = None
        self._others: list[int] = []
        self._report_lost_link = report_lost_link

    def use_plan(self, plan: Plan) -> None:
        self._plan = plan
        first = {home: task for task, home in reversed(list(enumerate(plan.home)))}
        self._others = [task for home, task in sorted(first.items()) if home != self.worker]

    # -- tasks

    def mailbox_of(self, task: int) -> TaskHost | None:
        assert self._plan is not None
        return self.hosts.get(self._plan.unit_of[task])

    def find(self, task: int) -> TaskHost | None:
        """The host of a task; None if it is not here, or there is no such task, or no plan yet."""
        return self.mailbox_of(task) if self._plan is not None and 0 <= task < len(self._plan.home) else None

    def node_queue_for(self, task: int) -> NodeQueue | None:
        return None if self.pools is None else self.pools.node_queue_for(task)

    def others(self) -> Sequence[int]:
        return self._others

    def cancel(self, emissions: Sequence[int]) -> None:
        self.cancellations.cancel(emissions)

    @property
    def sightings(self) -> Sightings:
        return self._core.sightings

    # -- peers

    def home_of(self, task: int) -> int:
        assert self._plan is not None
        return self._plan.home[task]

    def member(self, worker: int) -> Member | None:
        return self._core.membership.member(worker)

    def counts(self, worker: int, epoch: int) -> bool:
        return self._core.membership.counts(worker, epoch)

    def connect(self, link: OutLink, member: Member, done: Callable[[Channel | None], None]) -> None:
        self._dialer.connect(link, member, done)

    def lost_link(self, worker: int, epoch: int) -> None:
        self._report_lost_link(worker, epoch)

    def ask(self, member: Member, hello: dict[str, Any]) -> tuple[Connection, dict[str, Any]]:
        return self._dialer.ask(member, hello)

    # -- the coordinator

    def tell(self, message: Any) -> None:
        try:
            self._connection.send(message)
        except OSError:
            if self._core.life is not Life.LEAVING:
                self._orphaned()

    def renew(self) -> None:
        self.tell(Renew(self.worker, self.epoch))

    def say(self, topic: str, text: str) -> None:
        """Tell the user, once per topic in a run."""
        self.tell(Notice(topic, text))
