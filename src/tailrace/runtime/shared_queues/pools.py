"""The pools of a worker: which of its tasks draw from shared queues now, and the queues they share with other workers.

There is a pool wherever tasks may draw from one queue, whether they do so or not. Until they do it has nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tailrace.core.plan.plan import Plan
from tailrace.core.protocol.messages import Member
from tailrace.core.queues.shared import SharedQueue
from tailrace.core.tasks.base import Task
from tailrace.policy.techniques import NODE
from tailrace.runtime.execution.ports import WorkerServices
from tailrace.runtime.execution.runner import Runner
from tailrace.runtime.execution.task_host import TaskHost
from tailrace.runtime.shared_queues.node_queue import NodeQueue
from tailrace.runtime.shared_queues.node_queues import NodeQueues
from tailrace.runtime.shared_queues.pool import Pool


class Pools:
    """All pools of one worker. ``switch``, ``follow`` and ``close`` are for the coordinator's listener thread."""

    def __init__(
        self,
        services: WorkerServices,
        plan: Plan,
        run: str,
        hosts: Mapping[int, TaskHost],
        queues: Mapping[int, SharedQueue[Task]],
        runner: Runner,
        new_runner: Callable[[str], Runner],
        say_no_queue: Callable[[str], None],
    ) -> None:
        self._services = services
        self._say_no_queue = say_no_queue
        self._plan = plan
        self._run = run
        self._wanted: str | None = None
        self._members: Mapping[int, Member] = {}
        self._pools: dict[int, Pool] = {}  # by operator
        for index, queue in queues.items():
            some = [host for task, host in hosts.items() if plan.operator_of[task] == index]
            self._pools[index] = Pool(queue, some, services, runner, new_runner)
        self._node_queues: NodeQueues | None = None  # until they are first wanted

    def switch(self, wanted: str | None) -> None:
        """Have tasks draw from one queue in each worker ("worker"), on each node ("node"), or each from its own."""
        if wanted == self._wanted:
            return
        self._wanted = wanted
        for pool in self._pools.values():
            for member in pool.members:
                shares = self._plan.shares(member.host.task.number, wanted)
                member.host.post(member.join if shares else member.leave)
        if wanted == NODE and self._node_queues is None:
            self._node_queues = NodeQueues(self._services, self._plan, self._run, self._pools, self._say_no_queue)
        if self._node_queues is not None:
            self._node_queues.switch(wanted == NODE, self._members)

    def start(self) -> None:
        """To be called once all hosts have runners, and those have started."""
        for pool in self._pools.values():
            if not all(host.shared for host in pool.drawing):
                pool.post(pool.start_intake)

    def follow(self, members: Mapping[int, Member]) -> None:
        """The membership has changed. Called before the coordinator hears that this worker acts on it."""
        self._members = members
        if self._node_queues is not None:
            self._node_queues.follow(members)

    def relink(self, workers: frozenset[int]) -> None:
        """These workers have been replaced: close the links from their former epochs."""
        for pool in self._pools.values():
            pool.post(partial(pool.relink, workers))

    # -- queues of the node, from any thread: see ``NodeQueues``

    def node_queue_for(self, task: int) -> NodeQueue | None:
        return None if self._node_queues is None else self._node_queues.by_task.get(task)

    def offer(self, hello: Mapping[str, Any]) -> dict[str, Any] | None:
        """The data that a peer needs to map the queue it asks for; None if it cannot have it from here."""
        return None if self._node_queues is None else self._node_queues.offer(hello)

    def offered(self, hello: Mapping[str, Any], connection: Any) -> None:
        """Wait until the peer has mapped the queue that it was offered."""
        if self._node_queues is not None:
            self._node_queues.offered(hello, connection)

    def close(self) -> None:
        if self._node_queues is not None:
            self._node_queues.close()
