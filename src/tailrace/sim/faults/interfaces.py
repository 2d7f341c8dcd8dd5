"""Protocols: how the parts of a simulated cluster, and of a simulated process, see the whole that they belong to.

A cluster is made of a driver, wires and bounds; a process is made of links, threads, gates and a send loop. Each part
is given its whole, and imports only these protocols of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Protocol

from tailrace.core.plan.plan import Plan
from tailrace.core.protocol.coordinator import Coordinator
from tailrace.core.protocol.messages import Command, Persist
from tailrace.core.protocol.worker import Worker, WorkerCommand
from tailrace.core.routing.router import Lane
from tailrace.core.tasks.base import Task
from tailrace.sim.faults.events import Engine
from tailrace.sim.faults.node_queue import NodeQueue

Link = tuple[int, int, int, int, int]
"""(sending worker, its epoch, sending task, receiving task, connection). The receiving task is -1 - n for acks to task
n, FEEDBACK + n for feedback messages to task n, and CANCELS + n for cancelled emissions to worker n."""

Way = tuple[Link, int]
"""A link, and the epoch of the worker that it leads to."""


class AnyCluster(Protocol):
    """A simulated cluster, as its parts and the parts of its processes see it."""

    @property
    def plan(self) -> Plan: ...

    @property
    def rng(self) -> Random: ...

    @property
    def engine(self) -> Engine: ...

    @property
    def coordinator(self) -> Coordinator:
        """The current one. It may crash, and another takes its place."""
        ...

    @property
    def by_epoch(self) -> Mapping[int, AnyProcess]:
        """All processes so far, dead ones included."""
        ...

    @property
    def quiet(self) -> bool:
        """Whether there are no more faults."""
        ...

    @property
    def finished(self) -> bool: ...

    def delay(self) -> int: ...

    def disturbed(self, until_ns: int) -> None:
        """Until then lateness proves nothing, so checks of time are suspended."""
        ...

    def obey(self, commands: list[Command]) -> None: ...

    def write(self, persist: Persist) -> bool:
        """A write of the checkpoint is done. Returns False if the coordinator crashes right after it."""
        ...

    def transmit(self, link: Link, to_epoch: int, number: int, receiver: int, payload: Any) -> None: ...


class AnyProcess(Protocol):
    """A simulated process, as its parts and the parts of its cluster see it."""

    stopped_until_ns: int
    cut_off_until_ns: int

    @property
    def cluster(self) -> AnyCluster: ...

    @property
    def plan(self) -> Plan: ...

    @property
    def core(self) -> Worker: ...

    @property
    def worker(self) -> int: ...

    @property
    def epoch(self) -> int: ...

    @property
    def alive(self) -> bool: ...

    @property
    def tasks(self) -> Mapping[int, Task]: ...

    def guarded(self, action: Callable[[], None]) -> Callable[[], None]:
        """An action that happens only if the process is alive, and after it is no longer stopped."""
        ...

    def follow(self, commands: list[WorkerCommand]) -> None: ...

    def do(self, task: int, action: Callable[[], None]) -> None:
        """Run in the thread of this task: now, or after its current call."""
        ...

    def on_task(self, task: Task, work: Callable[[], Any]) -> None: ...

    def wake(self, task: Task) -> None: ...

    def queue_for(self, lane: Lane) -> NodeQueue | None: ...

    def way(self, sender: int, target: int, receiver: int) -> Way | None: ...

    def can_send(self, sender: int, target: int, receiver: int) -> bool:
        """Whether there is room on the link."""
        ...

    def send(self, sender: int, target: int, receiver: int, payload: Any) -> None: ...

    def way_was_cut(self, worker: int, at_ns: int) -> None: ...
