"""Protocols for what a running task needs of the rest of its worker. ``worker`` decides what stands behind them.

They are types only. The classes behind them live here, in ``shared_queues``, in ``send_order`` and in ``worker``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tailrace.core.bundles import FeedbackMessage
from tailrace.core.protocol.acks import Folds
from tailrace.core.protocol.sightings import Sightings
from tailrace.core.queues.rounds import Rounds
from tailrace.core.send_order.outgoing import OutgoingQueue
from tailrace.core.tasks.base import Task
from tailrace.core.tasks.open_bundle import Call
from tailrace.runtime.links.channels import Channel
from tailrace.runtime.links.event_loop import EventLoop
from tailrace.runtime.links.out_links import OutLinks
from tailrace.runtime.links.peers import Peers


class CallMaker(Protocol):
    """Makes the calls of one task whose operator has ``calls=…``."""

    def is_needed(self, call: Call) -> bool:
        """Whether the result of a call may still be needed. If not, the task goes on as if there were no results."""
        ...

    async def make(self, call: Call) -> tuple[Any, BaseException | None]:
        """Make a call. Returns its result, or the error that it failed with for good. What it raises ends the run."""
        ...

    def oldest(self) -> tuple[int, Any] | None:
        """When the oldest call that may hang was begun, and its tuple. From any thread."""
        ...


class SharedInput(Protocol):
    """The input of a task that draws from one queue together with others, in place of a queue and links of its own."""

    rounds: Rounds
    make_room: Callable[[], None]
    """The task has taken bundles: let senders in that wait for room."""

    wake: Callable[[int], object]
    """Called with the number of tuples that have come for the task: wakes it, or others that can run them."""

    def wake_another(self) -> None:
        """The task was woken and cannot run: wake another one in its place."""
        ...

    def take_link(self, channel: Channel, worker: int, epoch: int) -> None:
        """Read this link, which a peer has opened to send bundles to the task."""
        ...

    def listen(self) -> None:
        """The task has a new runner: be woken there."""
        ...

    def set_able(self, able: bool) -> None:
        """Say whether the task could run what it is woken for."""
        ...

    def leave_shared_runner(self) -> None:
        """The task gets a runner of its own."""
        ...

    def request_own_runners(self) -> None:
        """Calls have proved long: the other tasks shall leave the shared runner too."""
        ...

    @property
    def queued_on_node(self) -> int:
        """Records in the queue of the node behind it. One worker of the node counts them; the others say 0."""
        ...


class Mailbox(Protocol):
    """A task of the same worker, as a sender sees it. For any thread, unless said otherwise."""

    task: Task
    bundle_bytes: int  # a running average; a lost update does no harm
    waiting: set[EventLoop]  # loops of senders that found the queue full

    @property
    def runner(self) -> EventLoop | None: ...

    @property
    def rounds(self) -> Rounds:
        """The rounds of admission that senders to this task take part in."""
        ...

    @property
    def shared_input(self) -> SharedInput | None: ...

    @property
    def idle(self) -> bool:
        """Whether it sleeps, and would run a tuple if it were woken for one."""
        ...

    def wake(self) -> None: ...

    def apply(self, folds: Folds, sent_ns: int) -> None:
        """Acks, by the thread that runs this task."""
        ...

    def receive_acks(self, folds: Folds, sent_ns: int) -> None: ...

    def receive_feedback(self, messages: list[FeedbackMessage], sent_ns: int) -> None: ...


class OutputQueue(Protocol):
    """A task's bundles for other workers, while a send loop sends them. Used by the task's thread."""

    queue: OutgoingQueue
    links: OutLinks  # which belong to the thread of the send loop

    def put(self, target: int, payload: bytes, tuples: int) -> None:
        """Leave this to the send loop. Raises ProtocolError if it is too large for a frame."""
        ...

    def holds_back(self) -> bool:
        """Whether the task must wait until more has left. It will be woken."""
        ...

    def is_empty(self) -> bool:
        """Whether everything has left. The task is woken when more has."""
        ...


class NodeQueuePort(Protocol):
    """A queue of the machine: whichever of its tasks is free first runs the tuples in it. For any thread."""

    portion: int  # tuples that a task takes at once
    largest: int  # bytes in a record
    new_id: Callable[[int], int]
    hand_over: Callable[[list[Any], EventLoop | None], list[Any]]
    """Gives bundles to tasks of this worker that could begin at once. Returns the rest."""

    def put(self, payload: bytes) -> bool:
        """False if there is no room."""
        ...


class WorkerServices(Peers, Protocol):
    """Services that a worker offers to its tasks, besides links to its peers. For any thread."""

    worker: int
    epoch: int

    @property
    def sightings(self) -> Sightings:
        """The lineages seen in what comes from other workers."""
        ...

    def mailbox_of(self, task: int) -> Mailbox | None:
        """The mailbox of a task's unit; None if it lives in another worker."""
        ...

    def node_queue_for(self, task: int) -> NodeQueuePort | None:
        """The queue of this machine that a task draws from together with those of other workers, if there is one."""
        ...

    def others(self) -> Sequence[int]:
        """One task of every other worker."""
        ...

    def tell(self, message: Any) -> None:
        """Send a message to the coordinator."""
        ...

    def cancel(self, emissions: Sequence[int]) -> None:
        """Run nothing more of these emissions in this worker."""
        ...

    def renew(self) -> None:
        """Reset the feedback of load-aware groupings: some were told of tuples that will not arrive."""
        ...
