"""The recurring duties of a task, whether tuples come or not: reports to the coordinator, snapshots of its counters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tailrace.clock import MILLISECOND_NS, system_clock
from tailrace.core.tasks.base import Task
from tailrace.metrics.counters import TaskSnapshot
from tailrace.runtime.connectors.fingerprint import fingerprint
from tailrace.runtime.execution.ports import WorkerServices

REPORT_NS = 25 * MILLISECOND_NS
SNAPSHOT_NS = 200 * MILLISECOND_NS
OVERDUE_NS = 1000 * MILLISECOND_NS


class Duties:
    """The recurring duties of one task. Used by the thread that runs it."""

    def __init__(self, task: Task, services: WorkerServices, snapshot: Callable[[], None]) -> None:
        self._task = task
        self._services = services
        self._snapshot = snapshot
        self.report_ns = 0  # when the next report is due; the other two likewise
        self._overdue_ns = 0
        self.snapshot_ns = 0

    def do_due(self, now_ns: int) -> None:
        if self._task.owns_roots:
            self._report(now_ns)
        if now_ns >= self.snapshot_ns:
            self.snapshot_ns = now_ns + SNAPSHOT_NS
            self._snapshot()

    def _report(self, now_ns: int) -> None:
        task, services = self._task, self._services
        if now_ns >= self.report_ns or task.stuck:
            self.report_ns = now_ns + REPORT_NS
            for message in task.reports(services.worker, services.epoch, fingerprint):
                services.tell(message)
        if now_ns >= self._overdue_ns:
            self._overdue_ns = now_ns + OVERDUE_NS
            if task.check_overdue(now_ns):
                services.renew()


def snapshots_of(task: Task, cpu_ns: int, backlog: tuple[int, int], queued_on_node: int) -> list[TaskSnapshot]:
    """The counters of a unit's tasks. By the thread that runs it.

    ``backlog``: tuples in the outgoing queue, now and at most since the task began.
    """
    task.settle()
    now_ns = system_clock()
    counters = task.counters
    leader = counters[0]
    counts = task.tap is None or task.tap.sharing[0] is task  # a queue is counted by one of those that share it
    leader.queued = len(task.queue) + queued_on_node if counts else 0
    leader.cpu_ns = cpu_ns
    leader.backlog, leader.largest_backlog = backlog[0], max(leader.largest_backlog, backlog[1])
    task.show()
    for one in counters:
        one.at_ns = now_ns
    return [one.snapshot() for one in counters]


def snapshots_in_call(task: Task, busy_since_ns: int, now_ns: int) -> list[TaskSnapshot]:
    """The counters of a unit whose task is in a long call, by another thread. The time in the call counts as busy."""
    counters = task.counters
    counters[0].queued, counters[0].at_ns = len(task.queue), now_ns
    leader, *fused = (one.snapshot() for one in counters)
    return [replace(leader, busy_ns=leader.busy_ns + now_ns - busy_since_ns), *fused]
