"""The queues that a worker shares with others of its machine: it makes them, or asks who made them, at each change.

The maker's offer has a name in the file system only until all of the node group have mapped it, or the node group is
over; those that a killed maker leaves are swept by the process that takes its place. Until a worker has a queue, or if
it cannot have it, it sends to the chosen tasks over links, and they draw from the queue of their worker.

When they are switched off nothing more is put into them, and they are emptied; but they stay until their node group is
over, since others may put tuples in for a while yet.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping
from typing import Any, Protocol

from tailrace.core.plan.node_groups import NodeGroup, node_group_of
from tailrace.core.plan.plan import OperatorPlan, Plan
from tailrace.core.protocol.messages import Member
from tailrace.errors import ProtocolError, RingError, SegmentError
from tailrace.policy.techniques import NODE
from tailrace.runtime.links.channels import RingPart, offer_ring, take_ring
from tailrace.runtime.shared_queues.node_queue import NodeQueue
from tailrace.runtime.shared_queues.pool import Pool
from tailrace.topology import Role

KIND = "queue"
RETRY_S = (0.02, 1.0)
"""Between questions to a maker that has no queue yet: at first, and at most."""

HANDED_S = 10.0
"""For a worker to map a queue that it has been told of. Then its name goes."""


class Ground(Protocol):
    """What queues need to know of their worker."""

    worker: int

    def member(self, worker: int) -> Member | None: ...

    def ask(self, member: Member, hello: dict[str, Any]) -> tuple[socket.socket, dict[str, Any]]:
        """Connect to a peer, and hear what it answers."""
        ...

    def no_queue(self, why: str) -> None:
        """A queue cannot be had."""
        ...


class NodeQueues:
    """Of one worker. ``switch``, ``follow`` and ``close`` are for one thread, the rest for any."""

    def __init__(self, near: Ground, plan: Plan, run: str, pools: Mapping[int, Pool]) -> None:
        self.by_task: Mapping[int, NodeQueue] = {}  # where to put what is meant for a task
        self._near = near
        self._plan = plan
        self._run = run
        self._pools = pools  # by operator
        self._operators = [operator for operator in plan.operators if operator.widest == NODE]
        self._wanted = False
        self._lock = threading.Lock()
        self._groups: dict[int, NodeGroup] = {}  # by operator, as all that follow
        self._queues: dict[int, NodeQueue] = {}
        self._missing: dict[int, set[int]] = {}  # workers that have not mapped what we made

    # -- on and off

    def switch(self, wanted: bool, members: Mapping[int, Member]) -> None:
        """Have queues among these, or put nothing more into those that there are."""
        with self._lock:
            self._wanted = wanted
            for queue in self._queues.values():
                self._draw_from(queue)
            self._list()
        self.follow(members)

    def _draw_from(self, queue: NodeQueue) -> None:
        if queue.pool is not None:
            queue.pool.draw_from(queue if self._wanted else None)
            queue.pool.empty(None if self._wanted else queue)

    # -- memberships

    def follow(self, members: Mapping[int, Member]) -> None:
        """The membership has changed, and nobody has been told yet that we act on it."""
        for operator in self._operators:
            group = node_group_of(self._plan, operator, members, self._near.worker)
            if group == self._groups.get(operator.index):
                continue
            self._leave(operator)
            if group is None or not self._wanted:
                continue
            with self._lock:
                self._groups[operator.index] = group
            if group.maker == self._near.worker:
                self._make(operator, group)
            else:
                threading.Thread(target=self._ask, args=(operator, group), name="queue", daemon=True).start()

    def _leave(self, operator: OperatorPlan) -> None:
        index = operator.index
        with self._lock:
            self._groups.pop(index, None)
            queue = self._queues.pop(index, None)
            made = self._missing.pop(index, None) is not None
            self._list()
        if queue is not None:
            if made:
                queue.part.withdraw()
            if queue.pool is not None:
                queue.pool.draw_from(None)
                queue.pool.empty(None)
            queue.close()

    def close(self) -> None:
        for operator in self._operators:
            self._leave(operator)

    def _list(self) -> None:
        tasks: dict[int, NodeQueue] = {}
        for index, queue in self._queues.items() if self._wanted else ():
            operator = self._plan.operators[index]
            for task, home in enumerate(self._plan.homes(operator), operator.first_task):
                if queue.group.has(home):
                    tasks[task] = queue
        self.by_task = tasks

    # -- making

    def _make(self, operator: OperatorPlan, group: NodeGroup) -> None:
        try:
            part = offer_ring(self._run, KIND)
        except SegmentError as error:
            self._near.no_queue(str(error))
            return
        with self._lock:
            self._missing[operator.index] = {worker for worker, _ in group.members} - {self._near.worker}
        self._join(operator, group, part)

    def offer(self, hello: Mapping[str, Any]) -> dict[str, Any] | None:
        """What a peer needs to map the queue that it asks for; None if we have not made it, or no longer have it."""
        with self._lock:
            queue = self._queues.get(hello["target"])
            members = [] if queue is None else [list(member) for member in queue.group.members]
            if queue is None or hello["target"] not in self._missing or hello.get("group") != members:
                return None
            return {"ring": queue.part.segment.path.name, "nonce": queue.part.segment.nonce.hex()}

    def handed(self, hello: Mapping[str, Any], connection: socket.socket) -> None:
        """Wait until the peer has mapped it. The last one takes the name along."""
        try:
            connection.settimeout(HANDED_S)
            connection.recv(1)
        except OSError:
            pass
        connection.close()
        with self._lock:
            queue, missing = self._queues.get(hello["target"]), self._missing.get(hello["target"])
            if queue is not None and missing is not None:
                missing.discard(hello["worker"])
                if not missing:
                    queue.part.withdraw()

    # -- asking

    def _ask(self, operator: OperatorPlan, group: NodeGroup) -> None:
        wait_s, longest_s = RETRY_S
        while self._groups.get(operator.index) is group:
            try:
                part = self._ask_once(operator, group)
            except (OSError, ProtocolError):
                time.sleep(wait_s)
                wait_s = min(2 * wait_s, longest_s)
            except (SegmentError, ValueError) as error:
                self._near.no_queue(str(error))
                return
            else:
                self._join(operator, group, part)
                return

    def _ask_once(self, operator: OperatorPlan, group: NodeGroup) -> RingPart:
        member = self._near.member(group.maker)
        if member is None:
            raise ProtocolError(f"nobody to ask: worker={group.maker}")
        asked = {"kind": KIND, "target": operator.index, "group": group.members}
        connection, reply = self._near.ask(member, asked)
        with connection:
            return take_ring(reply.get("ring"), reply.get("nonce"), KIND)

    def _join(self, operator: OperatorPlan, group: NodeGroup, part: RingPart) -> None:
        batch = operator.operator.options["max_size"] if operator.operator.role is Role.MAP_BATCH else 0
        try:
            queue = NodeQueue(part, group, batch)
        except RingError as error:  # more workers than a ring has places for
            if group.maker == self._near.worker:
                part.withdraw()
            part.close()
            self._near.no_queue(str(error))
            return
        pool = self._pools.get(operator.index)
        if pool is not None:
            queue.pool, queue.decode = pool, pool.decode
        with self._lock:
            over = self._groups.get(operator.index) is not group
            if not over:
                self._queues[operator.index] = queue
                self._draw_from(queue)  # before anybody here puts anything in
                self._list()
        if over:
            queue.close()
