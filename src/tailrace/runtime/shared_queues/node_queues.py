"""The queues that a worker shares with the others of its machine, one for each operator that may have one.

The segment that the maker offers has a name in the file system only until all workers of the node group have mapped it,
or the group is over. Names that a killed maker leaves are swept by the process that takes its place. Until a worker has
a queue, or if it cannot have it, it sends to the chosen tasks over links, and they draw from the queue of their worker.

When node queues are switched off nothing more is put into them, and they are emptied; but they stay until their node
group is over, because other workers may put tuples in for a while yet.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from tailrace.core.plan.node_groups import NodeGroup, node_group_of
from tailrace.core.plan.plan import OperatorPlan, Plan
from tailrace.core.protocol.messages import Member
from tailrace.errors import RingError
from tailrace.policy.techniques import NODE
from tailrace.runtime.encryption.connection import Connection
from tailrace.runtime.execution.ports import WorkerServices
from tailrace.runtime.links.channels import RingPart, offer_ring, take_ring
from tailrace.runtime.links.node_share import NodeShare
from tailrace.runtime.shared_queues.node_queue import NodeQueue
from tailrace.runtime.shared_queues.pool import Pool
from tailrace.topology import Role

KIND = "queue"

MAPPED_S = 10.0
"""How long a worker may take to map a queue that it was offered. Then the name of the segment goes."""


class OperatorQueue(NodeShare[RingPart]):
    """One worker's part in the queue of one operator. For any thread.

    ``changed`` is called, with the lock held, when the queue is there.
    """

    def __init__(
        self,
        services: WorkerServices,
        operator: OperatorPlan,
        run: str,
        pool: Pool | None,
        lock: threading.Lock,
        changed: Callable[[], None],
        say_no_queue: Callable[[str], None],
    ) -> None:
        super().__init__(services, services.worker, KIND, operator.index)
        self.operator = operator
        self.queue: NodeQueue | None = None
        self._run = run
        self._pool = pool  # the tasks of this worker that draw from it
        self._lock = lock  # for the group, the queue and the rest
        self._changed = changed
        self._say_no_queue = say_no_queue
        self._wanted = False  # tuples are to be put into it
        self._unmapped: set[int] | None = None  # workers that have not mapped what we made; None: made by another

    def switch(self, wanted: bool) -> None:
        """Put tuples into the queue, or no more. The caller holds the lock."""
        self._wanted = wanted
        self._draw()

    def _draw(self) -> None:
        if self._pool is not None and self.queue is not None:
            self._pool.draw_from(self.queue if self._wanted else None)
            self._pool.empty(None if self._wanted else self.queue)

    def make(self, group: NodeGroup) -> RingPart:
        part = offer_ring(self._run, KIND)
        with self._lock:
            self._unmapped = {worker for worker, _ in group.members} - {self.worker}
        return part

    def take(self, connection: Connection, reply: Mapping[str, Any]) -> RingPart:
        with connection:
            return take_ring(reply.get("ring"), reply.get("nonce"), KIND)

    def join(self, group: NodeGroup, made: RingPart) -> None:
        operator = self.operator.operator
        batch = operator.options["max_size"] if operator.role is Role.MAP_BATCH else 0
        try:
            queue = NodeQueue(made, group, batch)
        except RingError as error:  # more workers than a ring has places for
            if group.maker == self.worker:
                made.withdraw()
            made.close()
            self.do_without(str(error))
            return
        if self._pool is not None:
            queue.hand_over, queue.decode = self._pool.hand_over, self._pool.decode
        with self._lock:
            over = self.group is not group
            if not over:
                self.queue = queue
                self._draw()  # before a task of this worker puts anything in
                self._changed()
        if over:
            queue.close()

    def do_without(self, why: str) -> None:
        self._say_no_queue(why)

    def leave(self) -> None:
        """The node group is over."""
        with self._lock:
            self.group = None
            queue, self.queue = self.queue, None
            made, self._unmapped = self._unmapped is not None, None
            self._changed()
        if queue is not None:
            if made:
                queue.part.withdraw()
            if self._pool is not None:
                self._pool.draw_from(None)
                self._pool.empty(None)
            queue.close()

    def offer(self, hello: Mapping[str, Any]) -> dict[str, Any] | None:
        """The data that a peer needs to map the queue; None if this worker has not made it, or no longer has it."""
        with self._lock:
            queue = self.queue
            if queue is None or self._unmapped is None or not self.asked_by(hello):
                return None
            return {"ring": queue.part.segment.path.name, "nonce": queue.part.segment.nonce.hex()}

    def mapped_by(self, worker: int) -> None:
        """A peer has mapped it, or had time to. After the last one the name of the segment goes."""
        with self._lock:
            if self.queue is not None and self._unmapped is not None:
                self._unmapped.discard(worker)
                if not self._unmapped:
                    self.queue.part.withdraw()


class NodeQueues:
    """All such queues of one worker. ``switch``, ``follow`` and ``close`` are for one thread, the rest for any.

    ``say_no_queue`` is called with the reason if the worker cannot have a queue.
    """

    def __init__(
        self,
        services: WorkerServices,
        plan: Plan,
        run: str,
        pools: Mapping[int, Pool],
        say_no_queue: Callable[[str], None],
    ) -> None:
        self.by_task: Mapping[int, NodeQueue] = {}  # where to put tuples for a task
        self._worker = services.worker
        self._plan = plan
        self._wanted = False
        self._lock = threading.Lock()
        self._queues = {
            operator.index: OperatorQueue(
                services, operator, run, pools.get(operator.index), self._lock, self._list, say_no_queue
            )
            for operator in plan.operators
            if operator.widest == NODE
        }

    def switch(self, wanted: bool, members: Mapping[int, Member]) -> None:
        """Have queues among these members, or put nothing more into those that there are."""
        with self._lock:
            self._wanted = wanted
            for queue in self._queues.values():
                queue.switch(wanted)
            self._list()
        self.follow(members)

    def follow(self, members: Mapping[int, Member]) -> None:
        """The membership has changed. Called before the coordinator hears that this worker acts on it."""
        for queue in self._queues.values():
            group = node_group_of(self._plan, queue.operator, members, self._worker)
            if group == queue.group:
                continue
            queue.leave()
            if group is None or not self._wanted:
                continue
            with self._lock:
                queue.group = group
            queue.obtain(group)

    def close(self) -> None:
        for queue in self._queues.values():
            queue.leave()

    def _list(self) -> None:
        tasks: dict[int, NodeQueue] = {}
        for shared in self._queues.values() if self._wanted else ():
            queue, operator = shared.queue, shared.operator
            for task, home in enumerate(self._plan.homes(operator), operator.first_task):
                if queue is not None and queue.group.has(home):
                    tasks[task] = queue
        self.by_task = tasks

    def offer(self, hello: Mapping[str, Any]) -> dict[str, Any] | None:
        """The data that a peer needs to map the queue it asks for; None if it cannot have it from here."""
        queue = self._queues.get(hello["target"])
        return None if queue is None else queue.offer(hello)

    def offered(self, hello: Mapping[str, Any], connection: Connection) -> None:
        """Wait until the peer has mapped the queue that it was offered: it closes the connection then."""
        try:
            connection.settimeout(MAPPED_S)
            connection.recv(1)
        except OSError:
            pass
        connection.close()
        queue = self._queues.get(hello["target"])
        if queue is not None:
            queue.mapped_by(hello["worker"])
